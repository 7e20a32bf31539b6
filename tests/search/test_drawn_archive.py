"""Archives drawn for benchmarks: they have the moments of the real patients that their statistics were fitted to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from diptych.search import PANELS

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_drawn_archives_have_the_moments_of_real_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from drawn_archive import REAL, draw_archive, moments

    drawn = draw_archive(60, seed=3)
    found = moments(drawn)
    far = {name: (found[name], real) for name, real in REAL.items() if not 0.8 < found[name] / real < 1.25}
    assert not far


def test_the_same_seed_draws_the_same_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from drawn_archive import draw_archive

    one, other = draw_archive(2, seed=5), draw_archive(2, seed=5)
    assert all(np.array_equal(one.ids[panel], other.ids[panel]) for panel in PANELS)
    assert all(np.array_equal(one.labels[panel].run_state, other.labels[panel].run_state) for panel in PANELS)
