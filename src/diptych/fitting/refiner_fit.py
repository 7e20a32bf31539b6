"""Fit a refiner to a finished network: lesion-shaped voids in healthy tissue, whose truth is known.

    refiner = fit_refiner(network, dataset, minutes=15)
    print(judge_refiner(refiner, others))

Voids are the lesions of other slices, laid on tissue that is healthy here. A slice's own lesion is voided with them,
but nobody knows what ought to be there, so it is not judged. The loss is absolute error and structural dissimilarity
inside the void.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from diptych.errors import StoreError
from diptych.fitting.fit_data import FittingLength, require_fitting_slices
from diptych.model import FeatureDecomposingNetwork
from diptych.model.losses import ssim_map
from diptych.model.refiner import Refiner, void_of
from diptych.progress import Progress, silent
from diptych.retrieval.refined_twin import TwinRefiner, decoded_guide
from diptych.slices import FILL, SliceDataset

BATCH_SIZE = 8
LEARNING_RATE = 2e-3
SPAN = 5.0
"""Span of pixel values above the background that SSIM assumes while fitting."""
SMALLEST_VOID = 40
"""Pixels of brain that a void must cover to be learnt from."""
SMALLEST_BRAIN = 0.15
"""Share of a slice that must be brain for it to be judged: slivers at the top have hardly any contrast."""
JUDGED = 110
"""Voids that a finished refiner is judged on."""
DISSIMILARITY = 1.0
"""Weight of 1 - SSIM beside the absolute error."""


@dataclass(frozen=True, eq=False)
class Voided:
    """Slices with voids in them."""

    images: Tensor
    """`[B, C, H, W]`."""
    void: Tensor
    """What is taken out, bool `[B, H, W]`."""
    known: Tensor
    """The part of it that is healthy tissue, so that the truth is in `images`; bool `[B, H, W]`."""


def lay_voids(images: Tensor, lesion: Tensor, shapes: Tensor) -> Voided:
    """Lay lesion-shaped voids `[B, H, W]` on slices that may have lesions `[B, H, W]` of their own."""
    brain = (images > FILL).any(dim=1)
    own = void_of(lesion)
    void = (void_of(shapes) | own) & brain
    return Voided(images, void, void & ~own)


def fit_refiner(
    network: FeatureDecomposingNetwork,
    dataset: SliceDataset,
    *,
    steps: int | None = None,
    minutes: float | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> TwinRefiner:
    """Train for so many steps or minutes; by steps, the same seed gives the same refiner."""
    require_fitting_slices(network, dataset)
    diseased = np.flatnonzero(dataset.table.diseased)
    if not len(diseased):
        raise StoreError(
            f"{dataset.stores[0].path}: no slice has a lesion to take shapes from; prepare labelled patients"
        )
    length = FittingLength(steps, minutes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        refiner = Refiner(network.config.channels)
    rng = np.random.default_rng(seed)
    optimiser = torch.optim.AdamW(refiner.parameters(), lr=LEARNING_RATE, weight_decay=1e-4)
    loss_shown = 0.0
    while length.share() < 1:
        given = _draw(rng, dataset, diseased)
        length.step()
        if given is None:
            continue
        optimiser.param_groups[0]["lr"] = length.falling(LEARNING_RATE) * min(1.0, length.taken / 50)
        painted = refiner(given.images, given.void, decoded_guide(network, given.images, given.void))
        loss = _loss(painted, given)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(refiner.parameters(), 1.0)
        optimiser.step()
        loss_shown = 0.98 * loss_shown + 0.02 * loss.item() if loss_shown else loss.item()
        progress(*length.done(), f"loss {loss_shown:.3f}")
    return TwinRefiner(network, refiner.eval())


def _draw(rng: np.random.Generator, dataset: SliceDataset, diseased: NDArray[np.int64]) -> Voided | None:
    """Any slices, with the lesions of others; None where too little healthy tissue is covered."""
    slices = dataset.batch(rng.integers(len(dataset), size=BATCH_SIZE), rng.integers(2**62, size=BATCH_SIZE).tolist())
    shapes = dataset.batch(rng.choice(diseased, BATCH_SIZE), rng.integers(2**62, size=BATCH_SIZE).tolist())
    given = lay_voids(slices.image, slices.lesion, shapes.lesion)
    enough = given.known.sum(dim=(1, 2)) >= SMALLEST_VOID
    if not bool(enough.any()):
        return None
    return Voided(given.images[enough], given.void[enough], given.known[enough])


def _loss(painted: Tensor, given: Voided) -> Tensor:
    """Absolute error and 1 - SSIM over the pixels whose truth is known."""
    known = given.known.unsqueeze(1).expand_as(painted)
    off = F.l1_loss(painted[known], given.images[known])
    alike = ssim_map(painted - FILL, given.images - FILL, data_range=SPAN)[known].mean()
    return off + DISSIMILARITY * (1 - alike)


@dataclass(frozen=True)
class Inpainting:
    """How near a fill comes to the truth inside voids, by channel: means over slices."""

    ssim: tuple[float, ...]
    psnr: tuple[float, ...]
    mse: tuple[float, ...]


Fill = Callable[[Voided], Tensor]
"""From slices with voids to slices without."""


def judge_fill(fill: Fill, voided: list[Voided]) -> Inpainting:
    """SSIM, PSNR and MSE inside the voids; pixels are above the background and a slice's own span is 1."""
    rows = []
    for given in voided:
        found, truth = fill(given) - FILL, given.images - FILL
        span = truth.amax(dim=(2, 3), keepdim=True).clamp_min(1e-6)
        found, truth = found / span, truth / span
        alike, off = ssim_map(found, truth, data_range=1.0), (found - truth).square()
        for place, known in enumerate(given.known):
            mse = off[place][:, known].mean(dim=1)
            rows.append(torch.stack([alike[place][:, known].mean(dim=1), -10 * torch.log10(mse.clamp_min(1e-9)), mse]))
    means = torch.stack(rows).mean(dim=0)
    return Inpainting(*(tuple(row.tolist()) for row in means))


def healthy_voids(dataset: SliceDataset, *, count: int, seed: int = 0) -> list[Voided]:
    """Lesion-free slices of a dataset with lesions of its other slices as voids, the same ones for the same seed."""
    rng = np.random.default_rng(seed)
    diseased, healthy = (np.flatnonzero(mask) for mask in (dataset.table.diseased, ~dataset.table.diseased))
    chosen: list[Voided] = []
    for _ in range(20 * count):
        if len(chosen) == count or not (len(diseased) and len(healthy)):
            break
        here, other = dataset.batch([rng.choice(healthy)]), dataset.batch([rng.choice(diseased)])
        shape = other.lesion.flip(-1) if rng.random() < 0.5 else other.lesion
        given = lay_voids(here.image, here.lesion, shape)
        if int(given.known.sum()) >= SMALLEST_VOID and float((here.image > FILL).float().mean()) >= SMALLEST_BRAIN:
            chosen.append(given)
    return chosen


def judge_refiner(refiner: TwinRefiner, dataset: SliceDataset) -> Inpainting | None:
    """The refiner on healthy voids of others; None where there are none."""
    voided = healthy_voids(dataset, count=JUDGED)
    return judge_fill(lambda given: refiner.paint(given.images, given.void), voided) if voided else None
