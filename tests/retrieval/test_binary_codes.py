"""Binary codes beside a model give the distances that are else worked out, and no other model's are taken."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from diptych.errors import ModelError
from diptych.metrics.binary_codes import BINARY_CODES, load_binary_codes, save_binary_codes
from diptych.metrics.model_tables import model_tables, tables_of_model
from diptych.model import FeatureDecomposingNetwork, save_model
from tests.conftest import Run
from tests.retrieval.making import tiny_network


@pytest.fixture(scope="module")
def network() -> FeatureDecomposingNetwork:
    return tiny_network(seed=3)


def test_saved_codes_give_the_same_table_without_being_worked_out(
    network: FeatureDecomposingNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worked_out = {panel: model_tables(network).panel(panel)["hamming"] for panel in ("normal", "abnormal")}
    save_binary_codes(network, tmp_path)
    monkeypatch.setattr("diptych.metrics.model_tables.binary_codes", lambda codebook: pytest.fail("worked out again"))
    tables = tables_of_model(network, tmp_path, cache=tmp_path / "cache")
    for panel, expected in worked_out.items():
        assert np.array_equal(tables.panel(panel)["hamming"].entries, expected.entries)


def test_a_model_without_codes_has_none(tmp_path: Path) -> None:
    assert load_binary_codes(tmp_path, fingerprint="a" * 64, codes=4) == {}


def test_codes_of_another_model_are_refused(network: FeatureDecomposingNetwork, tmp_path: Path) -> None:
    save_binary_codes(network, tmp_path)
    with pytest.raises(ModelError, match="was made for model"):
        load_binary_codes(tmp_path, fingerprint="b" * 64, codes=network.config.codebook_size)


def test_codes_for_another_number_of_codes_are_refused(network: FeatureDecomposingNetwork, tmp_path: Path) -> None:
    save_binary_codes(network, tmp_path)
    with pytest.raises(ModelError, match="does not hold 5 normal codes"):
        load_binary_codes(tmp_path, fingerprint=network.fingerprint, codes=5)


def test_how_codes_are_made_is_kept_with_them(network: FeatureDecomposingNetwork, tmp_path: Path) -> None:
    lengths = {}
    for name, choice in {"ours": {}, "global": {"reading": "global"}, "other seed": {"seed": 5}}.items():
        save_binary_codes(network, tmp_path, **choice)  # type: ignore[arg-type]
        codes = load_binary_codes(tmp_path, fingerprint=network.fingerprint, codes=network.config.codebook_size)
        lengths[name] = codes["normal"].shape[1]
    found = BINARY_CODES.read(tmp_path, fingerprint=network.fingerprint)
    assert lengths["global"] < lengths["ours"]
    assert found is not None
    assert (found[1]["form"], found[1]["reading"], found[1]["seed"]) == ("merged", "per-row", "5")


def test_the_command_saves_them(network: FeatureDecomposingNetwork, tmp_path: Path, diptych: Run) -> None:
    save_model(network, tmp_path / "model")
    choice = ("--form", "literal", "--reading", "global", "--seed", 3)
    done = diptych("hash", tmp_path / "model", "--save", *choice, "--repeats", 0, "--select", 4)
    assert done.returncode == 0, done.stderr
    assert "(literal, global, seed 3)" in done.stderr
    assert (tmp_path / "model" / BINARY_CODES.file).is_file()
    assert "name a model" in diptych("hash", "--save").stderr
