"""Which validation slices the picture grid shows, and what the network makes of them now.

The same slices all through a run: the largest lesion of a few patients, and one slice without any lesion.
"""

from __future__ import annotations

import numpy as np
import torch

from diptych.model import FeatureDecomposingNetwork
from diptych.slices import SliceDataset
from diptych.training.pictures import Example
from diptych.training.validate import evenly_spaced

__all__ = ["choose_examples", "make_examples"]

PATIENTS = 3


def choose_examples(dataset: SliceDataset) -> list[int]:
    """Indices into `dataset`: the slice with the most lesion of each of a few patients, then a healthy one."""
    chosen = []
    for key in evenly_spaced(dataset.keys, PATIENTS):
        slices = np.flatnonzero(dataset.table.patient == dataset.keys.index(key))
        pixels = (dataset.batch(slices).lesion > 0).sum(dim=(1, 2))
        chosen.append(int(slices[int(pixels.argmax())]))
    healthy = np.flatnonzero(~dataset.table.diseased)
    if len(healthy):  # the one nearest to the middle of the head
        chosen.append(int(healthy[np.abs(dataset.table.position[healthy] - 0.5).argmin()]))
    return chosen


def make_examples(
    network: FeatureDecomposingNetwork, dataset: SliceDataset, indices: list[int], *, device: torch.device
) -> list[Example]:
    """Decompose the chosen slices; the network is left in the mode it was in."""
    batch = dataset.batch(indices)
    was_training = network.training
    network.eval()
    found = network.decompose(batch.image.to(device))
    network.train(was_training)
    predicted = found.lesion_probabilities.argmax(dim=1).to(torch.uint8)
    return [
        Example(
            label=f"{_short(dataset.keys[dataset.table.patient[index]])}\nheight {float(batch.position[row]):.0%}",
            image=batch.image[row].numpy(),
            reconstruction=found.reconstruction[row].cpu().numpy(),
            healthy_twin=found.healthy_twin[row].cpu().numpy(),
            true_twin=batch.twin[row].numpy() if batch.twin is not None and bool(batch.has_twin[row]) else None,
            lesion=batch.lesion[row].to(torch.uint8).numpy(),
            predicted_lesion=predicted[row].cpu().numpy(),
        )
        for row, index in enumerate(indices)
    ]


def _short(key: str) -> str:
    return key if len(key) <= 22 else f"...{key[-19:]}"
