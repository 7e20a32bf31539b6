"""From keys of slices to the best volumes: the plain scan, and who comes first.

Knows scores, volumes and patients; nothing about queries' words. `prune.py` gives the same answer with less work.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diptych.search.pool import Pool
from diptych.search.score import Keys, Score

Ints = NDArray[np.integer]


@dataclass(frozen=True, eq=False)
class Selection:
    """Which volumes and slices take part, and how matches are grouped."""

    starts: NDArray[np.int64]
    """First slice of every volume, `[V]`."""
    stops: NDArray[np.int64]
    """Slice after the last, `[V]`."""
    volumes: NDArray[np.int64]
    """Volumes that take part, ascending; none of them empty."""
    slices: NDArray[np.bool_] | None
    """Slices that may be found, `[N]`, or all of them."""
    groups: NDArray[np.int64] | None
    """Patient of each volume, `[V]`, when only the best volume of each patient is wanted."""
    top: int


def plain_scan(score: Score, selection: Selection, pool: Pool) -> Keys:
    """The best key of each volume, `[V]`, from a look at every slice that takes part."""
    found = selection.volumes
    best = np.full(len(selection.starts), score.nothing)
    best[found] = score.minima(selection.starts[found], selection.stops[found], pool, selection.slices)
    return best


def rank(keys: Keys, volumes: Ints, groups: NDArray[np.int64] | None, top: int, nothing: float) -> list[int]:
    """Places of the best `top` keys, one per group, by key and then by volume; volumes ascend."""
    candidates = np.flatnonzero(keys < nothing)
    if groups is None and len(candidates) > 4 * top:
        candidates = candidates[keys[candidates] <= np.partition(keys[candidates], top - 1)[top - 1]]
    order = candidates[np.argsort(keys[candidates], kind="stable")]
    if groups is not None:
        _, first = np.unique(groups[volumes[order]], return_index=True)
        order = order[np.sort(first)]
    return [int(place) for place in order[:top]]
