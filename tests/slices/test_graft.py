"""Grafted lesions: the partner's brain, the slice's own lesion, and the partner as true twin."""

from __future__ import annotations

from dataclasses import replace

import torch

from diptych.slices import FILL, Batch
from diptych.slices.augment import graft_lesions

H, W = 20, 14
SEEDS = [3, 4, 5, 6]


def make_batch() -> Batch:
    """Two pairs of a healthy and a diseased slice, the healthy ones dark (0) and the diseased ones bright (1)."""
    diseased = torch.tensor([False, True, True, False])
    image = torch.full((4, 2, H, W), FILL)
    image[:, :, 2:-2, 2:-2] = diseased.float().view(4, 1, 1, 1)
    lesion = torch.zeros(4, H, W, dtype=torch.int64)
    lesion[diseased, 0:12, 4:10] = 2
    return Batch(
        image=image,
        lesion=lesion,
        anatomy=diseased.long().view(4, 1, 1).repeat(1, H, W),
        has_anatomy=~diseased,
        diseased=diseased,
        position=torch.zeros(4),
        pixel_spacing=torch.ones(4, 2),
        index=torch.arange(4),
        has_twin=torch.zeros(4, dtype=torch.bool),
        twin=image.clone(),
    )


def test_lesion_and_partner_are_joined() -> None:
    grafted = graft_lesions(make_batch(), 1.0, SEEDS)
    assert torch.all(grafted.image[1, :, 6:9, 6:8] == 1)  # inside the lesion: its own pixels
    assert torch.all(grafted.image[1, :, 15:18, 6:8] == 0)  # far from it: the partner's
    assert torch.all(grafted.image[1, :, :2] == FILL)


def test_the_partner_is_the_true_twin() -> None:
    batch = make_batch()
    grafted = graft_lesions(batch, 1.0, SEEDS)
    assert grafted.twin is not None
    assert torch.equal(grafted.twin[[1, 2]], batch.image[[0, 3]])
    assert grafted.has_twin.tolist() == [False, True, True, False]


def test_labels_follow() -> None:
    grafted = graft_lesions(make_batch(), 1.0, SEEDS)
    assert not grafted.lesion[1, :2].any()  # no lesion outside the brain
    assert torch.all(grafted.lesion[1, 2:12, 4:10] == 2)
    assert not grafted.anatomy.any()  # the anatomy is the partner's
    assert grafted.has_anatomy.all()


def test_healthy_slices_stay_as_they_are() -> None:
    batch = make_batch()
    grafted = graft_lesions(batch, 1.0, SEEDS)
    assert torch.equal(grafted.image[[0, 3]], batch.image[[0, 3]])


def test_no_share_no_grafts() -> None:
    batch = make_batch()
    assert graft_lesions(batch, 0.0, SEEDS) is batch


def test_slices_with_a_true_twin_keep_it() -> None:
    batch = replace(make_batch(), has_twin=torch.tensor([True, False, False, False]))
    assert graft_lesions(batch, 1.0, SEEDS).has_twin.tolist() == [True, False, True, False]


def test_a_lesion_that_misses_the_partners_brain_leaves_a_healthy_slice() -> None:
    batch = make_batch()
    batch.image[[0, 3], :, :14] = FILL
    assert not graft_lesions(batch, 1.0, SEEDS).diseased.any()


def test_a_single_slice_has_no_partner() -> None:
    batch = Batch(**{name: value[1:2] for name, value in vars(make_batch()).items() if value is not None})
    assert not graft_lesions(batch, 1.0, SEEDS[:1]).has_twin.any()
