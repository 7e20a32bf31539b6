"""Fit a label encoder to a finished network: its own abnormal ids are the truth, lesion labels the input.

    sketcher = fit_label_encoder(network, dataset, minutes=5)
    print(judge_sketches(sketcher, others).agreement)

The network is frozen; each batch is augmented and encoded anew, so that no two passes show the same ids. The loss is
cross-entropy over ids, which makes the encoder's probabilities honest; that near codes count comes with how ids are
chosen from them (`LabelEncoder.ids`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from diptych.errors import StoreError
from diptych.fitting.fit_data import FittingLength, require_fitting_slices
from diptych.model import FeatureDecomposingNetwork
from diptych.model.label_networks import LabelEncoder
from diptych.progress import Progress, silent
from diptych.retrieval.sketch import Sketcher
from diptych.slices import SliceDataset

BATCH_SIZE = 32
HEALTHY_SHARE = 8
"""One slice in so many is taken from all slices, the others from those with a lesion."""
HABIT_SLICES = 256
"""Slices whose ids the encoder begins with."""
LEARNING_RATE = 3e-3
JUDGED_SLICES = 400


@dataclass(frozen=True)
class SketchFigures:
    """How well sketches of true label maps stand for the slices that they were drawn on."""

    slices: int
    """Slices with a lesion that were looked at."""
    agreement: float
    """Share of cells in which sketch and network have the same id."""
    lesion_agreement: float
    """The same, over cells that the lesion touches."""
    lesion_dice: float
    """Dice between the painted lesion and the one that its ids decode to, over all slices at once."""


def fit_label_encoder(
    network: FeatureDecomposingNetwork,
    dataset: SliceDataset,
    *,
    steps: int | None = None,
    minutes: float | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> Sketcher:
    """Train for so many steps or minutes; by steps, the same seed gives the same encoder."""
    diseased = _check(network, dataset)
    length = FittingLength(steps, minutes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = LabelEncoder(network.config)
    rng = np.random.default_rng(seed)
    chosen = rng.choice(len(dataset), size=min(HABIT_SLICES, len(dataset)), replace=False)
    encoder.start(network.encode(dataset.batch(np.sort(chosen)).image).abnormal)

    optimiser = torch.optim.AdamW(encoder.parameters(), lr=LEARNING_RATE)
    while length.share() < 1:
        optimiser.param_groups[0]["lr"] = length.falling(LEARNING_RATE)
        batch = dataset.batch(_draw(rng, diseased, len(dataset)), rng.integers(2**62, size=BATCH_SIZE).tolist())
        ids = network.encode(batch.image).abnormal
        loss = F.cross_entropy(encoder(batch.lesion), ids)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        length.step()
        progress(*length.done(), f"loss {loss.item():.3f}")
    return Sketcher(network, encoder.eval())


@torch.no_grad()
def judge_sketches(sketcher: Sketcher, dataset: SliceDataset) -> SketchFigures | None:
    """Compare sketches of true labels with the network's own ids; None without any slice that has a lesion."""
    network, codebook = sketcher.network, sketcher.network.abnormal_quantizer.codebook
    diseased = np.flatnonzero(dataset.table.diseased)
    if not len(diseased):
        return None
    judged = np.unique(diseased[np.linspace(0, len(diseased) - 1, JUDGED_SLICES).astype(np.int64)])
    totals = np.zeros(6)
    for start in range(0, len(judged), BATCH_SIZE):
        batch = dataset.batch(judged[start : start + BATCH_SIZE])
        sketched = sketcher.encoder.ids(batch.lesion, codebook)
        same = sketched == network.encode(batch.image).abnormal
        lesion = batch.lesion > 0
        touched = F.adaptive_max_pool2d(lesion.float(), network.config.latent_size).bool()
        decoded = network.decode_lesion(sketched).argmax(dim=1) > 0
        counts = (same, same | True, same & touched, touched, decoded & lesion)
        totals += [*(int(count.sum()) for count in counts), int(decoded.sum()) + int(lesion.sum())]
    same_all, cells, same_lesion, lesion_cells, overlap, areas = totals.tolist()
    return SketchFigures(
        len(judged), same_all / cells, same_lesion / lesion_cells, 2 * overlap / areas if areas else math.nan
    )


def _check(network: FeatureDecomposingNetwork, dataset: SliceDataset) -> NDArray[np.int64]:
    """The slices with a lesion, once it is clear that the slices are such as the network takes."""
    require_fitting_slices(network, dataset)
    diseased = np.flatnonzero(dataset.table.diseased)
    if not len(diseased):
        raise StoreError(f"{dataset.stores[0].path}: no slice has a lesion to learn from; prepare labelled patients")
    return diseased


def _draw(rng: np.random.Generator, diseased: NDArray[np.int64], slices: int) -> NDArray[np.int64]:
    any_slice = rng.integers(slices, size=BATCH_SIZE // HEALTHY_SHARE)
    return np.concatenate([rng.choice(diseased, BATCH_SIZE - len(any_slice)), any_slice])
