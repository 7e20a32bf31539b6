"""What ids mean: FreeSurfer's and a user's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from diptych.annotation.label_mapping import FREESURFER, read_mapping
from diptych.errors import LabelError


@pytest.mark.parametrize(
    ("number", "label"),
    [
        *[(2, 1), (3, 1), (1035, 1), (41, 2), (42, 2), (2035, 2), (7, 3), (8, 3), (46, 4), (47, 4)],
        *[(4, 5), (5, 5), (31, 5), (43, 6), (44, 6), (63, 6), (16, 0), (14, 0), (0, 0)],
    ],
)
def test_freesurfer_ids(number: int, label: int) -> None:
    assert FREESURFER.apply(np.full((2, 2, 2), number)).tolist() == np.full((2, 2, 2), label).tolist()


def test_ids_of_both_sides_join_the_nearest_one() -> None:
    ids = np.array([2, 2, 251, 251, 251, 251, 41]).reshape(7, 1, 1)
    assert FREESURFER.apply(ids).ravel().tolist() == [1, 1, 1, 1, 2, 2, 2]


def test_an_unknown_id_is_refused_by_name() -> None:
    with pytest.raises(LabelError, match=r"aseg\.nii: ids 777 have no meaning"):
        FREESURFER.apply(np.array([[[2, 777]]]), source="aseg.nii")


def test_a_mapping_file_names_ids_and_ranges(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("# mine\n10-12  Left Cerebrum\n20: 2\n30, cerebrum  # both\n40 = 0\n")
    mapping = read_mapping(path)
    assert mapping.apply(np.array([[[0, 10, 12, 30, 20, 40]]])).tolist() == [[[0, 1, 1, 1, 2, 0]]]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("left cerebrum 2", "is no mapping"),
        ("2 brain", "'brain' is no label"),
        ("2 7", "'7' is no label"),
        ("9-3 1", "from low to high"),
        ("1 0", "names no anatomy label"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "mine.txt").write_text(line)
    with pytest.raises(LabelError, match=message):
        read_mapping(tmp_path / "mine.txt")


def test_both_sides_shared_and_neither_known(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("5 cerebrum")
    with pytest.raises(LabelError, match="map some ids to each side"):
        read_mapping(tmp_path / "mine.txt").apply(np.full((2, 2, 2), 5))
