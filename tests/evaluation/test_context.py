"""Who asks and who may be found: never the same person."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from diptych.errors import StoreError, UsageError
from diptych.evaluation.compare_metrics import Trial
from diptych.evaluation.context import Context, people
from diptych.evaluation.retrieval_score import Truth, score
from diptych.slices import PatientRecord
from tests.evaluation.conftest import Scene
from tests.slices.making import make_store, make_volume


def records(context: Context, **hashes: str) -> dict[str, PatientRecord]:
    some = next(iter(context.records.values()))
    return {key.replace("_", "-"): replace(some, voxel_hash=value) for key, value in hashes.items()}


def test_time_points_and_equal_voxels_are_one_person(context: Context) -> None:
    found = people(records(context, BraTS_GLI_00001_000="a", BraTS_GLI_00001_001="b", X="b", Y="c"))
    assert found.tolist() == [0, 0, 0, 1]


def test_names_given_by_an_archive_count(context: Context) -> None:
    assert people(records(context, A="1", B="2", C="3"), {"A": "Ann", "C": "Ann"}).tolist() == [0, 1, 0]


def test_only_references_are_found(scene: Scene, tmp_path: Path) -> None:
    context = scene.context(tmp_path, queries=["P0", "P1", "P2"], references=["P1", "P3", "P4", "P5"])
    trial = context.trial()
    for metric in ("euclidean", "overlap"):
        found = np.array(context.keys)[trial.slices.volume[trial.search(metric, "both")]]
        assert set(found.flat) == {"P1", "P3", "P4", "P5"}
        assert "P1" not in found[[context.keys[trial.slices.volume[q]] for q in trial.queries].index("P1")]


def test_finding_the_own_patient_is_impossible_to_score() -> None:
    truth = Truth(np.ones((1, 4)), np.array([0, 1, 2, 3]), np.array([1]), people=np.array([0, 1, 1, 2]))
    assert truth.foreign.tolist() == [[True, False, False, True]]
    with pytest.raises(AssertionError, match="own patient"):
        score(np.array([[0, 2]]), truth)


def test_a_query_with_nobody_else_to_find_is_refused(scene: Scene, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no reference patient but itself"):
        scene.context(tmp_path, queries=["P0"])


def test_an_unknown_patient_is_named(scene: Scene, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nobody"):
        scene.context(tmp_path, queries=["P0", "nobody"])


def test_slices_of_another_size_are_refused(scene: Scene, tmp_path: Path) -> None:
    make_store(tmp_path / "small", [make_volume("P0"), make_volume("P1", seed=1)])
    with pytest.raises(StoreError, match="the model takes 32x64"):
        Scene(tmp_path / "small", scene.model).context(tmp_path)


def test_baselines_are_fitted_to_patients_on_neither_list(scene: Scene, tmp_path: Path) -> None:
    context = scene.context(tmp_path, queries=["P0", "P1"], references=["P1", "P2"])
    assert context.others == ("P3", "P4", "P5")


def test_ids_are_encoded_once(scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = scene.context(tmp_path).slices()
    again = scene.context(tmp_path)
    monkeypatch.setattr(type(again.network), "encode", None)
    second = again.slices()
    for panel in ("normal", "abnormal"):
        assert np.array_equal(first.ids[panel], second.ids[panel])
        assert np.array_equal(first.labels[panel], second.labels[panel])
    assert np.array_equal(first.volume, second.volume)


def test_a_trial_without_lists_lets_everybody_ask_everybody(context: Context) -> None:
    trial = Trial(context.slices(), context.tables)
    assert len(trial.queries) == 6
    assert trial.longest == 5


def test_a_part_that_cannot_answer_says_why() -> None:
    from types import SimpleNamespace
    from typing import Any

    from diptych.errors import StoreError
    from diptych.evaluation.part import Part, Section
    from diptych.evaluation.runner import _answered

    def fails(context: Any, progress: Any) -> Section:
        raise StoreError("no anatomy labels")

    healthy: Any = SimpleNamespace(queries=("A",), records={"A": SimpleNamespace(lesion_pixels=(0, 0))})
    ill: Any = SimpleNamespace(queries=("A",), records={"A": SimpleNamespace(lesion_pixels=(0, 9))})
    part = Part("p", "P", "?", fails)
    assert "no query patient has a lesion" in _answered(part, healthy, lambda *a: None).numbers["left_out"]
    assert _answered(part, ill, lambda *a: None).numbers["left_out"] == "no anatomy labels."
