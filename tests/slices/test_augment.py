"""Augmentation: the right way round, the right fill, the same for images and labels, a function of the seed."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import ndimage
from torch import Tensor

from diptych.slices import FILL, PAPER_AUGMENTATION, ROBUST_AUGMENTATION, Batch
from diptych.slices.augment import Augmentation, Changes, apply_changes, augment
from diptych.volumes.volume import mirror_anatomy

H, W = 40, 28


def make_batch(count: int = 1, spacing: tuple[float, float] = (1.0, 1.0), seed: int = 0) -> Batch:
    """Smooth images with a rim of `FILL`, and random labels."""
    generator = torch.Generator().manual_seed(seed)
    image = torch.full((count, 2, H, W), FILL)
    coarse = torch.rand((count, 2, 6, 5), generator=generator) * 4 - 2
    image[:, :, 8:-8, 6:-6] = torch.nn.functional.interpolate(coarse, (H - 16, W - 12), mode="bilinear")
    return Batch(
        image=image,
        lesion=torch.randint(4, (count, H, W), generator=generator),
        anatomy=torch.randint(7, (count, H, W), generator=generator),
        has_anatomy=torch.ones(count, dtype=torch.bool),
        diseased=torch.ones(count, dtype=torch.bool),
        position=torch.zeros(count),
        pixel_spacing=torch.tensor(spacing).repeat(count, 1),
        index=torch.arange(count),
        has_twin=torch.ones(count, dtype=torch.bool),
        twin=image.clone(),
    )


def changes(count: int = 1, *, degrees: float = 0.0, flipped: bool = False) -> Changes:
    ones, zeros = torch.ones(count, 2), torch.zeros(count, 2)
    angle = torch.full((count,), math.radians(degrees))
    return Changes(angle, torch.full((count,), flipped), gain=ones, offset=zeros, gamma=ones, noise=None)


def test_no_change_changes_nothing() -> None:
    batch = make_batch()
    same = apply_changes(batch, changes())
    torch.testing.assert_close(same.image, batch.image, atol=1e-4, rtol=0)
    assert torch.equal(same.lesion, batch.lesion)
    assert torch.equal(same.anatomy, batch.anatomy)


def test_a_flip_mirrors_columns_and_swaps_sides() -> None:
    batch = make_batch()
    flipped = apply_changes(batch, changes(flipped=True))
    torch.testing.assert_close(flipped.image, batch.image.flip(-1), atol=1e-4, rtol=0)
    assert torch.equal(flipped.lesion, batch.lesion.flip(-1))
    swapped = mirror_anatomy(batch.anatomy.flip(-1).numpy().astype(np.uint8))
    np.testing.assert_array_equal(flipped.anatomy, swapped)


def test_two_flips_are_none() -> None:
    batch = make_batch()
    back = apply_changes(apply_changes(batch, changes(flipped=True)), changes(flipped=True))
    assert torch.equal(back.anatomy, batch.anatomy)


@pytest.mark.parametrize("spacing", [(1.0, 1.0), (1.5625, 1.25), (0.7, 2.1)])
@pytest.mark.parametrize("degrees", [10.0, -35.0, 90.0])
def test_a_point_turns_counter_clockwise_in_millimetres(spacing: tuple[float, float], degrees: float) -> None:
    batch = make_batch(spacing=spacing)
    right, up = 4.0 * spacing[1], 2.0 * spacing[0]  # mm from the centre
    row, column = (H - 1) / 2 - up / spacing[0], (W - 1) / 2 + right / spacing[1]
    rows, columns = torch.meshgrid(torch.arange(H), torch.arange(W), indexing="ij")
    squares = ((rows - row) * spacing[0]) ** 2 + ((columns - column) * spacing[1]) ** 2
    batch.image[:] = FILL + 8 * torch.exp(-squares / (2 * 2.0**2))

    turned = apply_changes(batch, changes(degrees=degrees)).image[0, 0] - FILL

    middle = ndimage.center_of_mass(turned.numpy())
    angle = math.radians(degrees)
    expected_right = right * math.cos(angle) - up * math.sin(angle)
    expected_up = right * math.sin(angle) + up * math.cos(angle)
    found = ((middle[1] - (W - 1) / 2) * spacing[1], ((H - 1) / 2 - middle[0]) * spacing[0])
    assert found == pytest.approx((expected_right, expected_up), abs=0.25)


def slow_rotation(image: Tensor, degrees: float, flipped: bool, spacing: tuple[float, float]) -> Tensor:
    """What `apply_changes` means, by scipy: mirror, then turn about the centre in millimetres."""
    angle = math.radians(degrees)
    cos, sin = math.cos(angle), math.sin(angle)
    millimetres = np.diag(spacing)
    matrix = (
        np.linalg.inv(millimetres) @ np.array([[cos, sin], [-sin, cos]]) @ millimetres
    )  # output to input, (row, col)
    centre = np.array([(H - 1) / 2, (W - 1) / 2])
    plane = image.numpy()[:, ::-1] if flipped else image.numpy()
    turned = ndimage.affine_transform(plane, matrix, centre - matrix @ centre, order=1, mode="grid-constant", cval=FILL)
    return torch.from_numpy(turned)


@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("spacing", [(1.0, 1.0), (1.5625, 1.25)])
def test_rotation_equals_scipys(spacing: tuple[float, float], flipped: bool) -> None:
    batch = make_batch(spacing=spacing)
    fast = apply_changes(batch, changes(degrees=8.0, flipped=flipped)).image[0, 1]
    slow = slow_rotation(batch.image[0, 1], 8.0, flipped, spacing)
    torch.testing.assert_close(fast, slow, atol=2e-3, rtol=0)


def test_corners_are_filled_with_background() -> None:
    batch = make_batch()
    batch.image[:] = 1.0
    turned = apply_changes(batch, changes(degrees=10.0))
    assert turned.image[0, 0, 0, 0] == FILL
    assert turned.lesion[0, 0, 0] == turned.anatomy[0, 0, 0] == 0


def test_labels_and_twin_move_with_the_image() -> None:
    batch = make_batch()
    batch.lesion[:] = 0
    batch.lesion[:, 12:20, 16:22] = 2
    batch.image[:] = torch.where(batch.lesion == 2, 5.0, FILL)[:, None]
    batch.twin[:] = batch.image  # type: ignore[index]
    moved = apply_changes(batch, changes(degrees=-9.0, flipped=True))
    overlap = (moved.image[:, 0] > 1.0) == (moved.lesion == 2)
    assert overlap.float().mean() > 0.99
    assert moved.twin is not None
    assert torch.equal(moved.twin, moved.image)


def test_a_slice_changes_by_its_own_seed_whatever_its_neighbours() -> None:
    batch = make_batch(4)
    together = augment(batch, ROBUST_AUGMENTATION, [5, 6, 7, 8])
    third = Batch(**{name: value[2:3] for name, value in vars(batch).items() if value is not None})
    alone = augment(third, ROBUST_AUGMENTATION, [7])
    torch.testing.assert_close(together.image[2:3], alone.image, atol=1e-5, rtol=0)
    assert torch.equal(together.lesion[2:3], alone.lesion)


def test_draws_stay_within_bounds() -> None:
    drawn = Changes.draw(ROBUST_AUGMENTATION, range(500), (2, 4, 4))
    assert drawn.angle.abs().max() <= math.radians(10)
    assert drawn.angle.abs().max() > math.radians(9)
    assert 0.4 < drawn.flipped.float().mean() < 0.6
    assert (drawn.gain - 1).abs().max() <= 0.15


def test_the_papers_augmentation_leaves_intensities_alone() -> None:
    drawn = Changes.draw(PAPER_AUGMENTATION, range(50), (2, 4, 4))
    assert drawn.noise is None
    assert torch.all(drawn.gain == 1)
    assert torch.all(drawn.gamma == 1)
    assert torch.all(drawn.offset == 0)


def test_contrast_changes_leave_the_background_and_the_range() -> None:
    batch = make_batch(8)
    outside = batch.image == FILL
    stained = augment(batch, Augmentation(rotation=0, flip=0, gain=0.5, offset=2, gamma=0.5, noise=0.5), range(8))
    torch.testing.assert_close(stained.image[outside], torch.full_like(stained.image[outside], FILL), atol=1e-2, rtol=0)
    assert stained.image.min() >= FILL
    assert stained.image.max() <= 5.0
    assert not torch.allclose(stained.image, batch.image, atol=0.1)
