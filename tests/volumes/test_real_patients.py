"""Real patients at 2 mm and at full size read as they should, quickly, and without a warning."""

from __future__ import annotations

import time
from pathlib import Path

import nibabel
import numpy as np
import pytest

from diptych.errors import LayoutError
from diptych.volumes import CHANNELS, find_patients, read_patient, voxel_hash

pytestmark = pytest.mark.data


def test_small_patients(brats: Path) -> None:
    patients = find_patients(brats / "patients")
    assert len(patients) == 140
    for files in patients[::7]:
        volume = read_patient(files, required=CHANNELS)
        assert (volume.shape, volume.spacing) == ((120, 120, 78), (2.0, 2.0, 2.0))
        assert volume.lesion is not None
        assert volume.anatomy is not None


def test_none_of_them_looks_like_a_raw_head(brats: Path) -> None:
    patients = find_patients(brats / "patients") + find_patients(brats / "full")
    assert {warning for files in patients for warning in read_patient(files).warnings} == set()


def test_full_size_patients_agree_with_nibabel(brats: Path) -> None:
    for files in find_patients(brats / "full"):
        volume = read_patient(files, required=CHANNELS)
        assert volume.shape == (240, 240, 155)
        for channel, path in zip(volume.array, files.channels.values(), strict=True):
            np.testing.assert_array_equal(channel, np.asanyarray(nibabel.load(path).dataobj))


def test_full_size_patient_is_quick(brats: Path) -> None:
    files = find_patients(brats / "full")[0]
    start = time.process_time()
    read_patient(files)
    assert time.process_time() - start < 3


def test_left_labels_lie_on_the_left(brats: Path) -> None:
    volume = read_patient(find_patients(brats / "patients")[0])
    assert volume.anatomy is not None
    left, right = (np.argwhere(volume.anatomy == label)[:, 0].mean() for label in (1, 2))
    assert left > right  # x grows towards the left


def test_all_hashes_differ(brats: Path) -> None:
    hashes = {voxel_hash(read_patient(files)) for files in find_patients(brats / "patients")[:30]}
    assert len(hashes) == 30


def test_one_patient_in_both_sizes_is_refused(brats: Path) -> None:
    with pytest.raises(LayoutError, match="is also in"):
        find_patients(brats)
