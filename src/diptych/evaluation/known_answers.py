"""Questions whose right answers follow from labels: how good what was found is, beside the best possible and chance.

Knows label maps and numbers of slices; nothing about codes. The mean Dice over classes leaves out classes that neither
slice has.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Judgement", "centred", "judge", "label_dice"]

Labels = NDArray[np.integer]


@dataclass(frozen=True)
class Judgement:
    """One question: mean Dice of the first slices found, of the best there are, and of a random slice."""

    found: float
    oracle: float
    chance: float


def label_dice(query: Labels, references: Labels, *, classes: int) -> NDArray[np.float64]:
    """Mean Dice over classes between one label map `[n]` and many `[N, n]`; 1 where neither has any label.

    >>> label_dice(np.array([1, 1, 2, 0]), np.array([[1, 0, 2, 0], [0, 0, 0, 0]]), classes=3).round(3).tolist()
    [0.833, 0.0]
    """
    total = np.zeros(len(references))
    present = np.zeros(len(references))
    for label in range(1, classes + 1):
        own, others = query == label, references == label
        both = np.count_nonzero(own) + np.count_nonzero(others, axis=1)
        shared = np.count_nonzero(others[:, own], axis=1)
        total += 2 * shared / np.maximum(both, 1)
        present += both > 0
    return np.where(present > 0, total / np.maximum(present, 1), 1.0)


def judge(
    dice: NDArray[np.float64], volume: NDArray[np.integer], allowed: NDArray[np.bool_], found: list[int]
) -> Judgement:
    """Judge slices that a question found, one per volume.

    Args:
        dice: what each slice is worth, `[N]`.
        volume: whose slice it is, `[N]`.
        allowed: which volumes may be found, `[V]`.
        found: slices, best first.
    """
    assert allowed[volume[found]].all(), "a question found a patient that it must not find"
    best = np.full(len(allowed), -np.inf)
    np.maximum.at(best, volume, dice)
    counts = np.bincount(volume, minlength=len(allowed))
    means = np.bincount(volume, weights=dice, minlength=len(allowed)) / np.maximum(counts, 1)
    usable = allowed & (counts > 0)
    oracle = np.sort(best[usable])[::-1][: len(found)]
    return Judgement(float(dice[found].mean()), float(oracle.mean()), float(means[usable].mean()))


def centred(labels: Labels) -> Labels:
    """Label maps `[N, H, W]` with the lesion's centre moved to the middle of the frame; what leaves it is lost."""
    moved = np.zeros_like(labels)
    _, H, W = labels.shape
    for place, one in enumerate(labels):
        rows, columns = np.nonzero(one)
        if not len(rows):
            continue
        rows_to = rows + H // 2 - round(float(rows.mean()))
        columns_to = columns + W // 2 - round(float(columns.mean()))
        inside = (rows_to >= 0) & (rows_to < H) & (columns_to >= 0) & (columns_to < W)
        moved[place, rows_to[inside], columns_to[inside]] = one[rows[inside], columns[inside]]
    return moved
