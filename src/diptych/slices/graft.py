"""Lesions grafted on healthy slices: training images of real patients whose healthy twin is known.

A phantom comes with its true twin; a patient does not. But a batch holds healthy and diseased slices in pairs from the
same height of the head (`sampling.py`), so the lesion of one can be laid over the other: the healthy slice, as it was,
is then the true twin of what results. There is no mass effect, and seams are only blurred; grafts are for learning what
to leave out of the healthy twin, and stay a minority beside real lesions.

Knows batches; which slices are grafted is a function of their own seeds alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from diptych.slices.batch import Batch
from diptych.slices.preprocess import FILL

__all__ = ["graft_lesions"]

SEAM = 5
"""Pixels over which the lesion fades into its new surroundings."""


def graft_lesions(batch: Batch, share: float, seeds: Sequence[int]) -> Batch:
    """Turn a share of the diseased slices into grafts: the lesion stays, the brain around it is the partner's.

    Slices 2i and 2i + 1 are partners. Only a diseased slice with a healthy partner can be grafted, and only where
    neither has a true twin of its own.
    """
    assert batch.twin is not None
    partner = (torch.arange(len(batch)) ^ 1).clamp(max=len(batch) - 1)
    drawn = torch.tensor([float(torch.rand((), generator=torch.Generator().manual_seed(seed ^ 1))) for seed in seeds])
    alone = ~(batch.has_twin | batch.has_twin[partner])
    chosen = (batch.diseased & ~batch.diseased[partner] & alone & (drawn < share)).nonzero().flatten()
    if len(chosen) == 0:
        return batch
    ground = partner[chosen]
    healthy = batch.image[ground]
    covered = _brain(healthy) & _brain(batch.image[chosen])  # [n, H, W]
    lesion = batch.lesion[chosen] * covered
    opacity = avg_pool2d((lesion > 0).float(), SEAM, stride=1, padding=SEAM // 2) * covered
    image = torch.lerp(healthy, batch.image[chosen], opacity.unsqueeze(1))
    return replace(
        batch,
        image=batch.image.index_copy(0, chosen, image),
        lesion=batch.lesion.index_copy(0, chosen, lesion),
        anatomy=batch.anatomy.index_copy(0, chosen, batch.anatomy[ground]),
        has_anatomy=batch.has_anatomy.index_copy(0, chosen, batch.has_anatomy[ground]),
        diseased=batch.diseased.index_copy(0, chosen, (lesion > 0).flatten(1).any(dim=1)),
        twin=batch.twin.index_copy(0, chosen, healthy),
        has_twin=batch.has_twin.index_fill(0, chosen, True),
    )


def _brain(images: Tensor) -> Tensor:
    """Where any channel shows tissue, `[n, H, W]`."""
    return (images > FILL).any(dim=1)
