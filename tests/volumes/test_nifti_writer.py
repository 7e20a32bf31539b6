"""Written files are the same every time, whole or absent, and mean the same to every reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
from numpy.typing import NDArray

from diptych.errors import VolumeError
from diptych.volumes import write_nifti
from diptych.volumes.nifti import read_nifti
from tests.volumes.making import LPS, SHAPE, brain

OBLIQUE = np.array([[-1.96, 0.3, 0, 5], [0.3, 1.96, 0, -7], [0, 0, 3, 9], [0, 0, 0, 1.0]])


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32])
@pytest.mark.parametrize("name", ["a.nii", "a.nii.gz"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_comes_back_as_it_was(tmp_path: Path, dtype: type, name: str, order: str) -> None:
    array = np.array(brain() % 200, dtype=dtype, order=order)  # type: ignore[call-overload]
    write_nifti(tmp_path / name, array, OBLIQUE)
    image = read_nifti(tmp_path / name)
    np.testing.assert_array_equal(image.stored, array)
    np.testing.assert_allclose(image.affine, OBLIQUE, atol=1e-5)


def test_nibabel_agrees(tmp_path: Path) -> None:
    write_nifti(tmp_path / "a.nii.gz", brain(), OBLIQUE)
    image = nibabel.load(tmp_path / "a.nii.gz")
    np.testing.assert_array_equal(np.asanyarray(image.dataobj), brain())
    for form in (image.get_sform(), image.get_qform()):
        np.testing.assert_allclose(form, OBLIQUE, atol=1e-2)


def test_same_bytes_under_any_name_at_any_time(tmp_path: Path) -> None:
    for name in ("a.nii.gz", "b.nii.gz"):
        write_nifti(tmp_path / name, brain(), LPS)
    assert (tmp_path / "a.nii.gz").read_bytes() == (tmp_path / "b.nii.gz").read_bytes()
    assert (tmp_path / "a.nii.gz").read_bytes()[4:8] == b"\0\0\0\0"  # gzip's time stamp


def test_failure_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_nifti(tmp_path / "a.nii.gz", brain(), LPS)
    before = (tmp_path / "a.nii.gz").read_bytes()

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(VolumeError, match=r"a.nii.gz: cannot be written \(No space left"):
        write_nifti(tmp_path / "a.nii.gz", brain(1), LPS)
    assert [path.name for path in tmp_path.iterdir()] == ["a.nii.gz"]
    assert (tmp_path / "a.nii.gz").read_bytes() == before


@pytest.mark.parametrize(
    ("name", "array", "match"),
    [
        ("a.img", brain(), "end in .nii"),
        ("a.nii", brain().astype(np.float64), "cannot write a float64"),
        ("a.nii", brain()[0], "3-D"),
        ("a.nii", np.full(SHAPE, np.nan, np.float32), "NaN"),
    ],
)
def test_what_cannot_be_written(tmp_path: Path, name: str, array: NDArray[Any], match: str) -> None:
    with pytest.raises(VolumeError, match=match):
        write_nifti(tmp_path / name, array, LPS)
