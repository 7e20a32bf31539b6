"""Fit label decoders to a finished network: its ids are the input, the share of each label the truth.

    decoders = fit_label_decoders(network, dataset, minutes=10)
    print(judge_labels(decoders, others).after)

The network is frozen; each batch is turned, mirrored and encoded anew, so that no two passes show the same ids. The
loss is cross-entropy with the true shares, which makes the maps honest, and one minus their overlap, which is what
searches compare: over the batch, so that rare labels count, and slice by slice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diptych.errors import StoreError
from diptych.fitting.fit_data import FittingLength, require_fitting_slices
from diptych.metrics.decoded_planes import PlaneDecoder
from diptych.metrics.label_decoders import LabelDecoders
from diptych.model import FeatureDecomposingNetwork
from diptych.model.label_networks import LabelDecoder, label_shares
from diptych.model.losses import label_loss
from diptych.progress import Progress, silent
from diptych.slices import SliceDataset
from diptych.slices.slice_batch import Batch

BATCH_SIZE = 32
LEARNING_RATE = 3e-3
WEIGHT_DECAY = 1e-2
WARM_UP = 0.05
"""Share of the fitting over which the step size rises."""
JUDGED_SLICES = 400
PANELS = ("normal", "abnormal")


@dataclass(frozen=True)
class LabelFigures:
    """How well small label maps fit the truth: soft Dice over all slices, mean over labels, by panel."""

    slices: int
    before: Mapping[str, float]
    """As the network itself decodes them, which without an anatomy head it does for lesions alone."""
    after: Mapping[str, float]
    """As the label decoders do."""


def fit_label_decoders(
    network: FeatureDecomposingNetwork,
    dataset: SliceDataset,
    *,
    steps: int | None = None,
    minutes: float | None = None,
    seed: int = 0,
    start: LabelDecoders | None = None,
    progress: Progress = silent,
) -> LabelDecoders:
    """Train for so many steps or minutes, going on from `start`; by steps, the same seed gives the same decoders."""
    require_fitting_slices(network, dataset)
    if not dataset.table.diseased.any():
        raise StoreError(f"{dataset.stores[0].path}: no slice has a lesion to learn from; prepare labelled patients")
    panels, slices = _pool(dataset)
    length = FittingLength(steps, minutes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        classes = network.description.panel_classes
        decoders = {panel: LabelDecoder(network.config, classes=classes[panel]) for panel in panels}
    if start is not None:
        for panel, decoder in decoders.items():
            decoder.load_state_dict(start.decoders[panel].state_dict())
            decoder.train()
    fitted = LabelDecoders(network, decoders)
    weights = [weight for decoder in decoders.values() for weight in decoder.parameters()]
    optimiser = torch.optim.AdamW(weights, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    rng = np.random.default_rng(seed)
    while length.share() < 1:
        warmth = min(1.0, length.share() / WARM_UP)
        optimiser.param_groups[0]["lr"] = warmth * length.falling(LEARNING_RATE)
        batch = dataset.batch(_draw(rng, slices, len(dataset)), rng.integers(2**62, size=BATCH_SIZE).tolist())
        ids = network.encode(batch.image)
        losses = []
        for panel in decoders:
            known = batch.has_anatomy if panel == "normal" else torch.ones_like(batch.has_anatomy)
            truth = _truth(panel, batch, classes[panel])
            losses.append(label_loss(fitted.logits(panel, getattr(ids, panel)[known]), truth[known]))
        loss = torch.stack(losses).sum()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        length.step()
        progress(*length.done(), f"loss {loss.item():.3f}")
    for decoder in decoders.values():
        decoder.eval()
    return fitted


@torch.no_grad()
def judge_labels(fitted: LabelDecoders, dataset: SliceDataset) -> LabelFigures | None:
    """Compare small maps with the truth, those of the network itself too; None without any slice to judge by."""
    network = fitted.network
    panels, slices = _pool(dataset)
    if not set(fitted.decoders) <= set(panels):
        return None
    judged = np.unique(slices[np.linspace(0, len(slices) - 1, JUDGED_SLICES).astype(np.int64)])
    ways = PlaneDecoder(network), PlaneDecoder(network, fitted)
    classes = network.description.panel_classes
    totals = {panel: np.zeros((len(ways), 3, classes[panel])) for panel in fitted.decoders}  # shared, found, true
    for start in range(0, len(judged), BATCH_SIZE):
        batch = dataset.batch(judged[start : start + BATCH_SIZE])
        ids = network.encode(batch.image)
        for panel, total in totals.items():
            truth = _truth(panel, batch, classes[panel])[:, 1:].cpu().numpy()
            for way, decoder in enumerate(ways):
                if panel not in decoder.panels:
                    continue
                maps = decoder.probabilities(panel, getattr(ids, panel).cpu().numpy())
                total[way] += [part.sum(axis=(0, 2, 3)) for part in (np.minimum(maps, truth), maps, truth)]
    before, after = (
        {panel: _mean_dice(total[way]) for panel, total in totals.items() if panel in decoder.panels}
        for way, decoder in enumerate(ways)
    )
    return LabelFigures(len(judged), before, after)


def _mean_dice(totals: NDArray[np.float64]) -> float:
    """Soft Dice, mean over the labels that occur, from `[3, C]`: what is shared, found and true."""
    shared, found, true = totals[:, totals[2] > 0]
    return float((2 * shared / (found + true)).mean())


def _pool(dataset: SliceDataset) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Panels that there are labels for, and the slices that have them: lesions alone where no anatomy is labelled."""
    with_anatomy = np.flatnonzero(dataset.has_anatomy[dataset.table.patient])
    return (PANELS, with_anatomy) if len(with_anatomy) else (("abnormal",), np.arange(len(dataset)))


def _draw(rng: np.random.Generator, labelled: NDArray[np.int64], slices: int) -> NDArray[np.int64]:
    """A batch; where some patients lack anatomy labels, half of it comes from anybody, for the lesions' sake."""
    if len(labelled) == slices:
        return rng.choice(labelled, BATCH_SIZE)
    half = BATCH_SIZE // 2
    return np.concatenate([rng.choice(labelled, BATCH_SIZE - half), rng.choice(slices, half)])


def _truth(panel: str, batch: Batch, classes: int) -> Tensor:
    return label_shares(batch.anatomy if panel == "normal" else batch.lesion, classes=classes)
