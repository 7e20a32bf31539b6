"""Degradations: nothing at strength 0, something at 1, only where there is or was brain, a function of the seed."""

from __future__ import annotations

import pytest
import torch

from diptych.slices import FILL
from diptych.slices.augment import Augmentation, augment
from diptych.slices.degradations import CHANGES, Dice, degrade, drop_channels
from tests.slices.test_augment import make_batch

SEEDS = [11, 12, 13]
MOVES_THE_EDGE = {"misregistered", "stripped"}


def brains() -> torch.Tensor:
    return make_batch(3).image


@pytest.mark.parametrize("name", CHANGES)
def test_no_strength_is_no_change(name: str) -> None:
    images = brains()
    same = CHANGES[name](images, torch.zeros(3), Dice.throw(SEEDS, 2))
    torch.testing.assert_close(same, images, atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", CHANGES)
def test_full_strength_changes_the_brain_and_what_lies_outside_stays(name: str) -> None:
    images = brains()
    changed = CHANGES[name](images, torch.ones(3), Dice.throw(SEEDS, 2))
    assert changed.isfinite().all()
    assert ((changed - images).abs().flatten(1).amax(dim=1) > 0.05).all()
    if name not in MOVES_THE_EDGE:
        assert (changed[images == FILL] == FILL).all()


def test_a_slice_is_degraded_by_its_seed_alone() -> None:
    images = brains()
    whole = degrade(images, 1.0, SEEDS)
    one = degrade(images[1:2], 1.0, SEEDS[1:2])
    torch.testing.assert_close(one[0], whole[1])


def test_dropped_channels_leave_one_that_is_enough() -> None:
    images = torch.ones(200, 4, 2, 3)
    kept = (drop_channels(images, 0.7, (1, 3), range(200)) > FILL).all(dim=(2, 3))  # [B, C]
    assert kept[:, (1, 3)].any(dim=1).all()
    assert 0.25 < float(kept.all(dim=1).float().mean()) < 0.45
    assert int((kept.sum(dim=1) == 1).sum()) > 20


def test_degraded_batches_keep_the_clean_slices_and_forget_lesions_cut_off() -> None:
    batch = make_batch(3)
    batch = augment(
        type(batch)(**{**vars(batch), "clean": batch.image}), Augmentation(rotation=0, flip=0, degradations=1.0), SEEDS
    )
    assert batch.clean is not None
    torch.testing.assert_close(batch.clean, make_batch(3).image, atol=1e-4, rtol=0)
    gone = (batch.clean > FILL).any(dim=1) & ~(batch.image > FILL).any(dim=1)
    assert not batch.lesion[gone].any()


def test_a_share_of_slices_is_left_as_scanned() -> None:
    images, seeds = torch.randn(400, 2, 8, 8).clamp(min=-2), list(range(400))
    touched = (degrade(images, 1.0, seeds, share=0.5) != images).flatten(1).any(dim=1)
    all_touched = (degrade(images, 1.0, seeds) != images).flatten(1).any(dim=1)
    assert not (touched & ~all_touched).any()
    assert 0.35 < float(touched.float().mean() / all_touched.float().mean()) < 0.65
