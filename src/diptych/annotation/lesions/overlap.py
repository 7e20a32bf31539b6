"""How well two lesion maps agree: Dice by compartment, and how far an ensemble is of one mind. Knows arrays only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["REGIONS", "dice_by_region", "disagreement", "mean_dice"]

REGIONS: dict[str, tuple[int, ...]] = {"ET": (3,), "ED": (2,), "TC": (1, 3), "NET": (1,), "WT": (1, 2, 3)}
"""Compartments as BraTS groups the labels: tumour core is everything but oedema, whole tumour is all three."""


def dice_by_region(predicted: NDArray[np.uint8], reference: NDArray[np.uint8]) -> dict[str, float | None]:
    """Dice of each region; None where neither map has it.

    >>> dice_by_region(np.array([3, 3, 2], dtype=np.uint8), np.array([3, 0, 2], dtype=np.uint8))["ED"]
    1.0
    """
    figures: dict[str, float | None] = {}
    for name, labels in REGIONS.items():
        ours, theirs = np.isin(predicted, labels), np.isin(reference, labels)
        size = int(ours.sum()) + int(theirs.sum())
        figures[name] = 2 * int((ours & theirs).sum()) / size if size else None
    return figures


def mean_dice(patients: Sequence[Mapping[str, float | None]]) -> dict[str, dict[str, float]]:
    """Means over patients by both conventions of the project: an absent compartment is left out, or counts as 0."""
    means: dict[str, dict[str, float]] = {}
    for name in REGIONS:
        known = [value for figures in patients if (value := figures[name]) is not None]
        if known:
            means[name] = {
                "dice": float(np.mean(known)),
                "dice_absent_as_0": float(np.sum(known) / len(patients)),
                "patients": len(known),
            }
    return means


def disagreement(maps: Sequence[NDArray[np.uint8]], agreed: NDArray[np.uint8]) -> float:
    """How far each model's own labels are from the ensemble's: 1 minus Dice, mean over models and ET, ED, NET.

    0 says that all models draw the same lesion (or all draw none), 1 that they share nothing.
    """
    misses = [
        1 - dice
        for labels in maps
        for name, dice in dice_by_region(labels, agreed).items()
        if name in ("ET", "ED", "NET") and dice is not None
    ]
    return float(np.mean(misses)) if misses else 0.0
