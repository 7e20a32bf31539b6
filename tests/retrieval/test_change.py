"""Two studies of one patient: the same one has not changed, another one has, and what cannot be compared is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from diptych.archive.encoding import NetworkEncoder
from diptych.errors import UsageError
from diptych.retrieval.change import ClassChange, compare_studies
from diptych.retrieval.change_figure import draw_change
from diptych.retrieval.encoded_slice import read_one
from diptych.volumes import Volume
from diptych.volumes.alignment import align
from tests.archive.patients import write_patient
from tests.retrieval.making import tiny_network


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Volume:
    return read_one(write_patient(tmp_path_factory.mktemp("study"), "Case-1", seed=1))


def test_a_study_has_not_changed_from_itself(study: Volume, tmp_path: Path) -> None:
    network = tiny_network()
    change = compare_studies(study, study, NetworkEncoder(network), network, register=False)
    assert not change.has_changed
    assert change.abnormal.max() == change.normal.max() == 0
    assert change.classes[0].old_ml == change.classes[0].new_ml
    assert change.to_json()["changed_cells"] == {"abnormal": 0, "normal": 0}
    assert draw_change(change, slices=2).width > 300


def test_studies_on_other_grids_must_be_registered(study: Volume) -> None:
    network = tiny_network()
    other = replace(study, affine=study.affine @ np.diag([1.0, 1.0, 1.5, 1.0]))
    with pytest.raises(UsageError, match="let them be registered"):
        compare_studies(study, other, NetworkEncoder(network), network, register=False)


def test_a_turned_head_is_turned_back() -> None:
    grid = np.meshgrid(*(np.linspace(-1, 1, n) for n in (30, 36, 24)), indexing="ij")
    x, y, z = grid
    head = (x**2 + y**2 / 1.3 + z**2 < 0.7) * (100 + 60 * x + 40 * np.sin(4 * y) + 50 * (z > 0.2))
    affine = np.diag([-4.0, -4.0, 4.0, 1.0])
    fixed = Volume("A", ("t1",), head[None].astype(np.float32), affine)
    angle = np.radians(6.0)
    turn = np.eye(4)
    turn[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    moved = align(replace(fixed, affine=turn @ affine), fixed)
    assert moved.rotation_deg == pytest.approx(6.0, abs=0.8)
    assert moved.volume.shape == fixed.shape


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [(10, 15, "increased"), (10, 12, "stable"), (10, 3, "decreased"), (10, 0, "gone"), (0, 2, "new"), (0, 0, "none")],
)
def test_words_follow_ranos_thresholds_for_volumes(old: float, new: float, word: str) -> None:
    assert ClassChange("ET", old, new).rano == word
