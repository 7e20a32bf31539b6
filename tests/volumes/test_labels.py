"""Label codes of every release become one set; anything else is refused with the values listed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from diptych.errors import LabelError
from diptych.volumes import Volume, find_patients, mirror_anatomy, patient_from_files, read_patient, write_nifti
from tests.volumes.making import LPS, SINCE_2023, UNTIL_2022, brain, write_labels, write_patient


def read(
    folder: Path,
    names: tuple[str, ...],
    values: list[float],
    *,
    dtype: type = np.uint8,
    key: str = "A",
    codes: Mapping[int, int] | None = None,
) -> Volume:
    write_patient(folder, key, names[:1])
    write_labels(folder / f"{key}-seg.nii", values, dtype)
    return read_patient(find_patients(folder)[0], lesion_codes=codes)


def lesion(volume: Volume) -> list[int]:
    assert volume.lesion is not None
    return [int(value) for value in volume.lesion[3, 3, 1:5]]


@pytest.mark.parametrize(
    ("names", "values", "labels", "warned"),
    [
        (UNTIL_2022, [1, 2, 4], [1, 2, 3, 0], False),
        (SINCE_2023, [1, 2, 3], [1, 2, 3, 0], False),
        (SINCE_2023, [1, 2, 3, 4], [1, 2, 3, 0], True),
        (SINCE_2023, [1, 2, 4], [1, 2, 0, 0], True),
        (UNTIL_2022, [1, 2], [1, 2, 0, 0], False),
        (SINCE_2023, [0], [0, 0, 0, 0], False),
    ],
    ids=["2017-2022", "2023", "2024", "2024 without ET", "old without ET", "healthy"],
)
def test_releases(tmp_path: Path, names: tuple[str, ...], values: list[float], labels: list[int], warned: bool) -> None:
    volume = read(tmp_path, names, values)
    assert lesion(volume) == labels
    assert [warning for warning in volume.warnings if "resection cavity" in warning] == list(volume.warnings)
    assert bool(volume.warnings) == warned


def test_names_that_tell_no_release(tmp_path: Path) -> None:
    write_nifti(tmp_path / "scan.nii", brain(), LPS)
    labels = write_labels(tmp_path / "drawn.nii", [1, 4])
    volume = read_patient(patient_from_files(t1=tmp_path / "scan.nii", lesion=labels))
    assert lesion(volume) == [1, 3, 0, 0]
    assert "Label 4 is read as enhancing tumour" in volume.warnings[0]


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int64, np.float32, np.float64])
def test_whole_numbers_of_any_type(tmp_path: Path, dtype: type) -> None:
    assert lesion(read(tmp_path, SINCE_2023, [1, 2, 3], dtype=dtype)) == [1, 2, 3, 0]


@pytest.mark.parametrize(
    ("values", "dtype", "match"),
    [
        ([1, 7, 9], np.uint8, r"label values \[7, 9\]"),
        ([1, 300], np.int16, "label values 300 "),
        ([-1, 2], np.int16, "label values -1 "),
        ([0.5, 2.25], np.float32, r"label values 0.5, 2.25 "),
        (list(np.linspace(0, 1, 8)), np.float32, "label values"),
    ],
)
def test_values_out_of_range(tmp_path: Path, values: list[float], dtype: type, match: str) -> None:
    with pytest.raises(LabelError, match=match):
        read(tmp_path, SINCE_2023, values, dtype=dtype)


def test_paediatric_codes_are_refused_unless_given(tmp_path: Path) -> None:
    with pytest.raises(LabelError, match="paediatric"):
        read(tmp_path, SINCE_2023, [1, 2, 4], key="BraTS-PED-00001-000")
    volume = read(tmp_path, SINCE_2023, [1, 2, 4], key="BraTS-PED-00001-000", codes={1: 3, 2: 1, 3: 1, 4: 2})
    assert lesion(volume) == [3, 1, 2, 0]


def test_given_codes_must_lead_to_known_labels(tmp_path: Path) -> None:
    with pytest.raises(LabelError, match="code 1 stands for class 9"):
        read(tmp_path, SINCE_2023, [1], codes={1: 9})


def test_anatomy_values(tmp_path: Path) -> None:
    write_patient(tmp_path, "A", ("t1n",))
    write_labels(tmp_path / "A-anatomy.nii", [1, 6, 7])
    with pytest.raises(LabelError, match=r"A-anatomy.nii: label values \[7\] are not anatomy"):
        read_patient(find_patients(tmp_path)[0])


def test_mirrored_twice_is_unchanged() -> None:
    labels = np.arange(7, dtype=np.uint8)
    np.testing.assert_array_equal(mirror_anatomy(mirror_anatomy(labels)), labels)
