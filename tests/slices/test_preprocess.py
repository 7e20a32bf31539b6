"""What a slice is: values, place, orientation, position."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from diptych.errors import MissingChannelError, TooLargeError, UsageError, VolumeError
from diptych.slices import CLIP, FILL, SliceGeometry, slice_volume
from tests.slices.making import SMALL, make_volume

WHOLE = SliceGeometry(size=(26, 20), field=None)
"""The grid of `make_volume` itself, so that slicing resamples nothing."""


def test_channels_are_z_scored_over_their_own_signal() -> None:
    volume = make_volume(lesion_at=())
    stack = slice_volume(volume, WHOLE)
    for channel in range(4):
        brain = volume.array[channel] > 0
        expected = (volume.array[channel] - volume.array[channel][brain].mean()) / volume.array[channel][brain].std()
        np.testing.assert_allclose(stack.images[:, channel].transpose(2, 1, 0)[brain], expected[brain], atol=1e-4)


def test_outside_the_brain_is_fill_and_nothing_is_darker() -> None:
    volume = make_volume()
    stack = slice_volume(volume, WHOLE)
    outside = ~volume.brain.transpose(2, 1, 0)
    assert np.all(stack.images.transpose(0, 2, 3, 1)[outside] == FILL)
    assert stack.images.min() >= CLIP[0]


def test_outliers_are_clipped() -> None:
    volume = make_volume()
    volume.array[1, 10, 13, 6] = 1e6
    assert slice_volume(volume, WHOLE).images.max() == CLIP[1]


def test_rows_run_back_and_columns_run_left() -> None:
    volume = make_volume()
    volume.array[:, 4, 9, 6] = 1e5  # right of the middle, in front of it
    image = slice_volume(volume, WHOLE).images[6, 0]
    assert np.unravel_index(image.argmax(), image.shape) == (9, 4)


def test_labels_lie_on_the_image() -> None:
    volume = make_volume()
    assert volume.lesion is not None
    stack = slice_volume(volume, WHOLE)
    np.testing.assert_array_equal(stack.lesion, volume.lesion.transpose(2, 1, 0))
    np.testing.assert_array_equal(stack.anatomy, volume.anatomy.transpose(2, 1, 0))  # type: ignore[union-attr]


def test_the_twin_keeps_the_patients_intensity_scale() -> None:
    volume = make_volume()
    assert volume.lesion is not None
    stack = slice_volume(volume, WHOLE)
    assert stack.twin is not None
    healthy = (volume.lesion == 0).transpose(2, 1, 0)
    np.testing.assert_array_equal(
        stack.twin.transpose(0, 2, 3, 1)[healthy], stack.images.transpose(0, 2, 3, 1)[healthy]
    )


def test_the_field_is_centred_on_the_brain() -> None:
    volume = make_volume()
    in_a_corner = np.pad(volume.array, ((0, 0), (7, 0), (0, 4), (0, 0)))
    moved = replace(volume, array=in_a_corner, lesion=None, anatomy=None, twin=None)
    here, there = slice_volume(volume, SMALL), slice_volume(moved, SMALL)
    np.testing.assert_allclose(here.images, there.images, atol=1e-5)


def test_a_stray_voxel_does_not_move_the_field() -> None:
    volume = make_volume(lesion_at=(), shape=(60, 70, 12))
    before = slice_volume(volume, SMALL)
    volume.array[:, 0, 0, 3] = 60.0
    np.testing.assert_allclose(slice_volume(volume, SMALL).affine, before.affine)


@pytest.mark.parametrize("geometry", [SMALL, WHOLE, SliceGeometry((9, 31), None)], ids=str)
def test_affine_leads_from_pixels_to_the_same_place_in_the_body(geometry: SliceGeometry) -> None:
    volume = make_volume(lesion_at=())
    stack = slice_volume(volume, geometry)
    brain = volume.brain.astype(np.float64)
    seen = (stack.images[:, 0] - FILL > 1).astype(np.float64)

    def centre(weight: NDArray[np.float64], affine: NDArray[np.float64]) -> NDArray[np.float64]:
        index = np.stack(np.meshgrid(*map(np.arange, weight.shape), indexing="ij"))
        return np.asarray(affine[:3, :3] @ (index * weight).sum(axis=(1, 2, 3)) / weight.sum() + affine[:3, 3])

    np.testing.assert_allclose(
        centre(seen.transpose(2, 1, 0), stack.affine), centre(brain, volume.affine), atol=0.5 * max(volume.spacing)
    )


def test_pixel_spacing_is_rows_first() -> None:
    assert slice_volume(make_volume(), SMALL).pixel_spacing == pytest.approx((2.0, 2.5))


def test_z_mm_is_the_height_in_the_world() -> None:
    np.testing.assert_allclose(slice_volume(make_volume(), SMALL).z_mm, -50 + 3.0 * np.arange(12))


def test_position_runs_from_bottom_to_top_of_the_brain() -> None:
    stack = slice_volume(make_volume(), SMALL)
    np.testing.assert_allclose(stack.position, [0, *np.linspace(0, 1, 10), 1], atol=1e-6)


def test_blank_slices_are_left_out_and_the_others_keep_their_index() -> None:
    stack = slice_volume(make_volume(), SMALL).without_blank()
    assert stack.z_index.tolist() == list(range(1, 11))
    assert len(stack.images) == len(stack.position) == len(stack.z_mm) == 10


def test_a_brain_larger_than_the_field_is_said() -> None:
    stack = slice_volume(make_volume(), SliceGeometry((24, 16), (30.0, 60.0)))
    assert len(stack.warnings) == 1
    assert "mm long, the field 30 mm" in stack.warnings[0]


def test_a_subset_of_channels_in_the_order_asked_for() -> None:
    volume = make_volume()
    stack = slice_volume(volume, WHOLE, channels=("flair", "t1"))
    np.testing.assert_array_equal(stack.images, slice_volume(volume, WHOLE).images[:, [3, 0]])


def test_a_missing_channel_is_named() -> None:
    with pytest.raises(MissingChannelError, match="no channel t2"):
        slice_volume(make_volume(channels=("t1", "flair")), SMALL, channels=("t1", "t2"))


def test_a_constant_channel_is_refused() -> None:
    volume = make_volume()
    volume.array[2][volume.array[2] > 0] = 7.0
    with pytest.raises(VolumeError, match="channel t2 has the same value 7"):
        slice_volume(volume, SMALL)


def test_a_thin_and_endless_volume_takes_no_memory() -> None:
    """32,767 slices of 16 × 16 voxels are 8 million; as slices of the network they would be gigabytes."""
    volume = make_volume()
    endless = np.ones((len(volume.channels), 4, 4, 32767), np.float32)
    with pytest.raises(TooLargeError, match="32767 axial slices"):
        slice_volume(replace(volume, array=endless, lesion=None, anatomy=None, twin=None))


def test_an_empty_volume_is_refused() -> None:
    volume = make_volume()
    with pytest.raises(VolumeError, match="no voxel has any signal"):
        slice_volume(replace(volume, array=np.zeros_like(volume.array)), SMALL)


@pytest.mark.parametrize(("size", "field"), [((4, 128), None), ((64, 64), (0.0, 100.0)), ((64, 64), (np.nan, 9.0))])
def test_impossible_geometries_are_refused(size: tuple[int, int], field: tuple[float, float] | None) -> None:
    with pytest.raises(UsageError):
        SliceGeometry(size, field)
