"""Files become one volume: values as the scanner meant them, and a hash that sees through renaming."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from diptych.errors import GeometryError, MissingChannelError, UsageError, VolumeError
from diptych.volumes import Volume, find_patients, patient_from_files, read_patient, voxel_hash, write_nifti
from diptych.volumes.patient import blank_channels
from diptych.volumes.volume import CHANNELS
from tests.volumes.making import LPS, SHAPE, brain, nifti_bytes, packed, write_patient


def read_one(folder: Path, array: NDArray[Any], **fields: Any) -> Volume:
    (folder / "t1.nii").write_bytes(nifti_bytes(array, **fields))
    return read_patient(patient_from_files(t1=folder / "t1.nii", patient_key="A"))


def test_four_channels_in_order(tmp_path: Path) -> None:
    volume = read_patient(find_patients(write_patient(tmp_path, "A"))[0])
    assert volume.channels == ("t1", "t1gd", "t2", "flair")
    np.testing.assert_array_equal(volume.array, np.stack([brain(seed) for seed in range(4)]))
    assert (volume.array.dtype.name, len(volume.sources), volume.warnings) == ("float32", 4, ())


def test_twin_is_read_beside_the_patient(tmp_path: Path) -> None:
    write_patient(tmp_path, "A", ("t1n", "t2f"))
    write_patient(tmp_path, "A-twin", ("t1n", "t2f"))
    volume = read_patient(find_patients(tmp_path)[0])
    assert volume.twin is not None
    np.testing.assert_array_equal(volume.twin, volume.array)


def test_incomplete_twin(tmp_path: Path) -> None:
    write_patient(tmp_path, "A", ("t1n", "t2f"))
    write_patient(tmp_path, "A-twin", ("t1n",))
    with pytest.raises(MissingChannelError, match="healthy twin of patient A has no flair"):
        read_patient(find_patients(tmp_path)[0])


def test_scaling_is_applied(tmp_path: Path) -> None:
    volume = read_one(tmp_path, brain(), scl_slope=0.5, scl_inter=3)
    np.testing.assert_array_equal(volume.array[0], brain() * np.float32(0.5) + 3)


def test_big_endian_is_read(tmp_path: Path) -> None:
    np.testing.assert_array_equal(read_one(tmp_path, brain(), endianness=">").array[0], brain())


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_voxels_that_are_not_finite(tmp_path: Path, value: float) -> None:
    array = brain().astype(np.float64)
    array[3, 4, 5] = value
    with pytest.raises(VolumeError, match=r"t1.nii: 1 voxels are NaN or infinite"):
        read_one(tmp_path, array)


def test_empty_channel(tmp_path: Path) -> None:
    with pytest.raises(VolumeError, match="t1 has no voxel above zero"):
        read_one(tmp_path, np.zeros(SHAPE, np.int16))


def test_little_negative_signal_is_zeroed_and_said(tmp_path: Path) -> None:
    array = brain()
    array[0, 0, 0] = -7
    volume = read_one(tmp_path, array)
    assert volume.array[0, 0, 0, 0] == 0
    assert volume.warnings == ("Negative signal in t1 (down to -7) is set to zero.",)


def test_normalised_images_are_refused(tmp_path: Path) -> None:
    array = brain().astype(np.float32)
    with pytest.raises(VolumeError, match="before any normalisation"):
        read_one(tmp_path, (array - array.mean()) / array.std())


def test_labels_must_lie_on_the_image(tmp_path: Path) -> None:
    write_nifti(tmp_path / "t1.nii", brain(), LPS)
    write_nifti(tmp_path / "seg.nii", np.zeros((9, 8, 7), np.uint8), LPS)
    files = patient_from_files(t1=tmp_path / "t1.nii", lesion=tmp_path / "seg.nii", patient_key="A")
    with pytest.raises(GeometryError, match=r"seg.nii: 9 x 8 x 7 voxels, but .*t1.nii has 7 x 8 x 9"):
        read_patient(files)


def test_hash_ignores_name_place_labels_and_storage(tmp_path: Path) -> None:
    first = read_one(tmp_path, brain())
    moved = LPS.copy()
    moved[:3, 3] = 10
    moved[0, 0] = 1  # stored from left to right
    (tmp_path / "other.nii.gz").write_bytes(packed(nifti_bytes(brain()[::-1].astype(np.float32), moved)))
    second = read_patient(patient_from_files(t1=tmp_path / "other.nii.gz", patient_key="B"))
    assert voxel_hash(first) == voxel_hash(replace(second, lesion=np.ones(SHAPE, np.uint8)))


def test_hash_ignores_memory_order_and_negative_zero(tmp_path: Path) -> None:
    volume = read_one(tmp_path, brain())
    copied = np.where(volume.array == 0, np.float32(-0.0), np.ascontiguousarray(volume.array))
    assert voxel_hash(volume) == voxel_hash(replace(volume, array=copied))


def test_hash_sees_one_voxel_channel_name_and_axis_order(tmp_path: Path) -> None:
    volume = read_one(tmp_path, brain())
    changed = volume.array.copy()
    changed[0, 3, 4, 5] += 1
    others = [
        replace(volume, array=changed),
        replace(volume, channels=("t2",)),
        replace(volume, array=volume.array.transpose(0, 2, 1, 3)),
        replace(volume, array=volume.array.reshape(1, 8, 7, 9)),
    ]
    assert len({voxel_hash(volume), *map(voxel_hash, others)}) == 5


def test_a_folder_instead_of_files_gets_one_line() -> None:
    with pytest.raises(UsageError, match=r"read_patient\('folder'\): takes what find_patients gives"):
        read_patient("folder")  # type: ignore[arg-type]


def test_a_channel_that_is_blank_in_some_slices_is_named() -> None:
    array = np.ones((4, 9, 8, 7), dtype=np.float32)
    array[2, :, :, [0, 1, 5]] = 0
    array[:, :, :, 6] = 0  # no brain at all
    found = blank_channels(Volume("P", CHANNELS, array, np.eye(4)))
    assert found == [
        "t2 is blank in slices 0–1, 5, where other channels show brain; what is predicted there means nothing."
    ]
