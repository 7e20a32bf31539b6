"""How well slices were found: mean label Dice of the first Q volumes, beside the oracle's and chance's (section 4.4.6).

    truth = Truth(dice, volume_of_slice, query_volume)      dice from `overlaps.mean_dice`, [queries, slices]
    found = best_volumes(distances, truth)                  any metric's distances, [queries, slices]
    score(found, truth).of_oracle()                         {1: 0.81, 3: …}

Knows arrays; nothing about models or archives. One slice per volume counts, the query's own patient never does: what
was found is asserted to be of others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from diptych.errors import InputError
from diptych.metrics.label_planes import Planes, shared_bits

TOPS = (1, 3, 5, 10)


@dataclass(frozen=True, eq=False)
class Truth:
    """What each reference slice is worth to each query."""

    dice: NDArray[np.floating]
    """`[Q, N]`."""
    volume_of_slice: NDArray[np.integer]
    """`[N]`; the slices of a volume stand together, volumes in ascending order."""
    query_volume: NDArray[np.integer]
    """The query's own volume, which is never found, `[Q]`; -1 for a query from elsewhere."""
    people: NDArray[np.integer] | None = None
    """Whose volume it is, `[V]`: other volumes of the same person are not found either. One person each by default."""
    references: NDArray[np.bool_] | None = None
    """Volumes that may be found at all, `[V]`; all by default."""

    @cached_property
    def starts(self) -> NDArray[np.intp]:
        """First slice of each volume, `[V]`."""
        return np.flatnonzero(np.diff(self.volume_of_slice, prepend=-1))

    @cached_property
    def foreign(self) -> NDArray[np.bool_]:
        """Which volumes each query may find, `[Q, V]`."""
        people = np.arange(len(self.starts)) if self.people is None else np.asarray(self.people)
        own = np.asarray(self.query_volume)[:, None]
        others = (people != people[own]) | (own < 0)
        return np.asarray(others if self.references is None else others & self.references)

    @cached_property
    def oracle(self) -> NDArray[np.float64]:
        """Dice of the slices that a search by the Dice itself finds, best volume first, `[Q, V - 1]`."""
        return np.take_along_axis(self.dice, best_volumes(-self.dice, self), axis=1).astype(np.float64)

    @cached_property
    def chance(self) -> NDArray[np.float64]:
        """Expected Dice of a random slice of a random volume, `[Q]`."""
        lengths = np.diff(self.starts, append=len(self.volume_of_slice))
        means = np.add.reduceat(self.dice, self.starts, axis=1) / lengths
        return np.asarray(np.where(self.foreign, means, 0).sum(axis=1) / self.foreign.sum(axis=1), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class RetrievalScore:
    """Mean Dice of the first slices found, for several numbers of them."""

    dice: dict[int, NDArray[np.float64]]
    """By how many count: the mean over them, query by query, `[Q]`; bootstrap over these."""
    oracle: dict[int, NDArray[np.float64]]
    chance: NDArray[np.float64]

    def mean(self) -> dict[int, float]:
        """Mean over queries."""
        return {top: float(values.mean()) for top, values in self.dice.items()}

    def of_oracle(self) -> dict[int, float]:
        """Share of what the oracle reaches, 0…1."""
        return {top: float(values.mean() / self.oracle[top].mean()) for top, values in self.dice.items()}


def best_volumes(distances: NDArray[np.floating], truth: Truth) -> NDArray[np.intp]:
    """The nearest slice of each volume, nearest volume first, `[Q, V - 1]`; ties go to the earlier slice."""
    nearest, keys = nearest_slices(distances, truth)
    order = np.argsort(np.where(truth.foreign, keys, np.inf), axis=1, kind="stable")
    return np.take_along_axis(nearest, order, axis=1)[:, : int(truth.foreign.sum(axis=1).min())]


def nearest_slices(distances: NDArray[np.floating], truth: Truth) -> tuple[NDArray[np.intp], NDArray[np.floating]]:
    """The nearest slice of every volume, `[Q, V]`, and its distance."""
    if distances.shape != truth.dice.shape:
        raise InputError(
            f"distances of shape {distances.shape}: the truth has {truth.dice.shape}; compare like with like"
        )
    ends = np.append(truth.starts[1:], len(truth.volume_of_slice))
    spans = zip(truth.starts, ends, strict=True)
    nearest = np.stack([start + np.argmin(distances[:, start:end], axis=1) for start, end in spans], axis=1)
    return nearest, np.take_along_axis(distances, nearest, axis=1)


def score(found: NDArray[np.integer], truth: Truth, *, tops: Sequence[int] = TOPS) -> RetrievalScore:
    """Score slices found for each query, `[Q, at least one]`, best first; `tops` beyond what there is are left out."""
    volumes = np.searchsorted(truth.starts, found, side="right") - 1
    assert np.take_along_axis(truth.foreign, volumes, axis=1).all(), "a query found its own patient, or no reference"
    dice = np.take_along_axis(truth.dice, found, axis=1).astype(np.float64)
    counted = [top for top in tops if top <= min(found.shape[1], truth.oracle.shape[1])]
    return RetrievalScore(
        {top: dice[:, :top].mean(axis=1) for top in counted},
        {top: truth.oracle[:, :top].mean(axis=1) for top in counted},
        truth.chance,
    )


def largest_lesion_slices(
    lesion_area: NDArray[np.floating] | NDArray[np.integer], volume_of_slice: NDArray[np.integer]
) -> NDArray[np.intp]:
    """The paper's queries: of each volume the slice with the largest lesion; lesion-free volumes have none."""
    starts = np.flatnonzero(np.diff(volume_of_slice, prepend=-1))
    spans = zip(starts, np.append(starts[1:], len(volume_of_slice)), strict=True)
    largest = np.array([start + np.argmax(lesion_area[start:end]) for start, end in spans], dtype=np.intp)
    return largest[lesion_area[largest] > 0]


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
