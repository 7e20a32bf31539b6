"""`diptych hash` from outside."""

from __future__ import annotations

import json

import pytest

from tests.conftest import Run

SMALL = ("hash", "--codes", 24, "--dead", 0.5, "--select", 10, "--repeats", 1)


@pytest.mark.e2e
def test_figures_of_a_random_codebook(diptych: Run) -> None:
    done = diptych(*SMALL, "--json")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)["random"]
    assert figures["distinct"] == 13
    assert figures["forward selection"]["bits"] == 10
    assert figures["timing"]["reduction"] == 1 - figures["timing"]["hamming"] / figures["timing"]["euclidean"]


@pytest.mark.e2e
def test_the_table_names_both_selectors(diptych: Run) -> None:
    printed = diptych(*SMALL).stdout
    assert "algorithm A.1 (per-row)" in printed
    assert "forward selection" in printed
    assert "1 - t_H/t_E" in printed


@pytest.mark.e2e
def test_no_live_code_is_refused(diptych: Run) -> None:
    done = diptych("hash", "--dead", 1)
    assert done.returncode == 2
    assert "leaves no live code" in done.stderr
