"""The working grid covers the brain, changes nothing at equal voxel sizes, and leads back."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from diptych.annotation.lesions.grid import brain_box, working_image, working_labels
from diptych.errors import VolumeError
from diptych.volumes import CHANNELS, Volume


def volume_of(spacing: tuple[float, float, float] = (2.0, 2.0, 2.0), *, empty: bool = False) -> Volume:
    array: NDArray[np.float32] = np.zeros((4, 16, 20, 12), dtype=np.float32)
    if not empty:
        array[:, 3:13, 2:18, 4:10] = np.random.default_rng(0).uniform(50, 150, (4, 10, 16, 6))
    affine = np.diag([-spacing[0], -spacing[1], spacing[2], 1.0])
    return Volume(patient_key="p", channels=CHANNELS, array=array, affine=affine)


def test_equal_voxels_stay_as_they_are() -> None:
    volume = volume_of()
    box = brain_box(volume, 2.0)
    assert box.shape == (10, 16, 6)
    assert np.allclose(box.to_working(volume.array), volume.array[:, 3:13, 2:18, 4:10])
    assert np.allclose(box.to_source(box.to_working(volume.array)), volume.array, atol=1e-4)


def test_other_voxels_are_covered_and_lead_back() -> None:
    volume = volume_of((1.0, 1.5, 3.0))
    box = brain_box(volume, 2.0)
    assert box.shape == (5, 12, 9)
    ramp = np.broadcast_to(np.arange(20, dtype=np.float32)[:, None], (1, 16, 20, 12))
    back = box.to_source(box.to_working(ramp))
    assert np.allclose(back[:, 5:11, 5:15, 5:9], ramp[:, 5:11, 5:15, 5:9], atol=0.1)


def test_z_scores_inside_zero_outside() -> None:
    volume = volume_of()
    image = working_image(volume, brain_box(volume, 2.0))
    assert np.allclose(image.mean(axis=(1, 2, 3)), 0, atol=1e-4)
    assert np.allclose(image.std(axis=(1, 2, 3)), 1, atol=1e-3)


def test_labels_take_the_largest_share() -> None:
    volume = volume_of((1.0, 1.0, 1.0))
    lesion = np.zeros(volume.shape, dtype=np.uint8)
    lesion[3:9, 2:10, 4:8] = 2
    labels = working_labels(lesion, brain_box(volume, 2.0), classes=4)
    assert labels.shape == (5, 8, 3)
    assert (labels[:3, :4, :2] == 2).all()
    assert (labels[3:] == 0).all()


def test_empty_brain_is_refused() -> None:
    with pytest.raises(VolumeError, match="p: no voxel has signal"):
        brain_box(volume_of(empty=True), 2.0)


def test_flat_channel_is_refused() -> None:
    volume = volume_of()
    volume.array[2][volume.array[2] > 0] = 7
    with pytest.raises(VolumeError, match="channel t2 has one value"):
        working_image(volume, brain_box(volume, 2.0))
