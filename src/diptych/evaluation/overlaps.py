"""Label overlap between slices: the yardstick by which retrieval is judged.

Knows packed label maps. The mean Dice coefficient over classes comes in two conventions for a class that neither slice
has, and every figure must name its own:

    left out    the class does not count; two slices without any class at all overlap perfectly (1)
    zero        the class counts as 0, as the paper seems to do
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from diptych.retrieval.bits import shared_bits
from diptych.retrieval.planes import Planes

__all__ = ["ABSENT", "Absent", "dice_by_class", "mean_dice", "mean_dices", "pack_labels"]

Absent = Literal["left out", "zero"]
ABSENT: tuple[Absent, ...] = ("left out", "zero")
PACKED_AT_ONCE = 512


def pack_labels(labels: NDArray[np.integer], *, classes: int) -> Planes:
    """Pack label maps `[N, H, W]`, a few hundred at a time: unpacked masks of thousands of slices would fill memory."""
    starts = range(0, max(len(labels), 1), PACKED_AT_ONCE)
    return Planes.join([Planes.of_labels(labels[at : at + PACKED_AT_ONCE], classes=classes) for at in starts])


def mean_dice(queries: Planes, references: Planes, *, absent: Absent = "left out") -> NDArray[np.float32]:
    """Mean Dice over classes between every query and every reference, `[Q, N]`."""
    return mean_dices(queries, references)[absent]


def mean_dices(queries: Planes, references: Planes) -> dict[Absent, NDArray[np.float32]]:
    """The same in both conventions, for the price of one."""
    means: dict[Absent, NDArray[np.float32]] = {
        absent: np.empty((len(queries), len(references)), dtype=np.float32) for absent in ABSENT
    }
    for place in range(len(queries)):
        dice = dice_by_class(queries, place, references)
        for absent, rows in means.items():
            rows[place] = _mean(dice, absent)
    return means


def dice_by_class(queries: Planes, place: int, references: Planes) -> NDArray[np.float32]:
    """Dice between one query and every reference, `[N, C]`; not a number where neither has the class."""
    both = queries.areas[place] + references.areas  # [N, C]
    shared = shared_bits(queries.words[place], references.words)
    return np.where(both > 0, 2 * shared / np.maximum(both, 1), np.nan).astype(np.float32)


def _mean(dice: NDArray[np.float32], absent: Absent) -> NDArray[np.float32]:
    if absent == "zero":
        return np.asarray(np.nan_to_num(dice).mean(axis=1))
    present = np.count_nonzero(~np.isnan(dice), axis=1)
    return np.where(present > 0, np.nan_to_num(dice).sum(axis=1) / np.maximum(present, 1), 1.0).astype(np.float32)
