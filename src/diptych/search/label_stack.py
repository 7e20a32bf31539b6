"""`LabelStack`: a patient's label maps at some heights, to be compared with those of others in three dimensions.

Knows arrays: what two stacks share is added up over the heights that both have, all heights in one loop over runs.
Nothing about queries' words, shifts or which patient it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from diptych.compiling import compiled, prefetch
from diptych.search.label_maps import BLOCKS, LEVELS, LabelMaps, Levels

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class LabelStack:
    """K maps from bottom to top, and where they are compared: what all comparisons with them share."""

    heights: Ints
    """In steps, ascending, `[K]`."""
    levels: Levels
    """`[K, C, H, W]`, zero outside the region."""
    region: NDArray[np.bool_] | None = None
    """Pixels that are compared, `[H, W]`; all of them by default."""

    def which(self, heights: Ints) -> Ints:
        """Which map lies at each height, -1 where none does."""
        places = np.full(int(self.heights[-1] - self.heights[0]) + 2, -1, dtype=np.int64)  # the last one is no height
        places[self.heights - self.heights[0]] = np.arange(len(self.heights))
        steps = heights - self.heights[0]
        return np.asarray(places[np.where((steps >= 0) & (steps < len(places) - 1), steps, -1)])

    @cached_property
    def areas(self) -> Ints:
        """Sums of levels, `[K, C]`."""
        return np.asarray(self.levels.sum(axis=(2, 3), dtype=np.int64))

    @cached_property
    def amounts(self) -> Ints:
        """The same of all heights together, `[C]`."""
        return np.asarray(self.areas.sum(axis=0))

    @cached_property
    def blocks(self) -> Bytes:
        """Sums of levels over blocks, `[K, C · BLOCKS²]`."""
        count, classes, rows, columns = self.levels.shape
        tiles = self.levels.reshape(count, classes, BLOCKS, rows // BLOCKS, BLOCKS, columns // BLOCKS)
        return np.asarray(tiles.sum(axis=(3, 5), dtype=np.uint8).reshape(count, -1))

    @cached_property
    def shared(self) -> NDArray[np.uint16]:
        """Levels shared with k levels in all pixels before the i-th, `[K, C, LEVELS + 1, H·W + 1]`."""
        count, classes = self.levels.shape[:2]
        flat = self.levels.reshape(count, classes, -1)
        sums = np.zeros((count, classes, LEVELS + 1, flat.shape[2] + 1), dtype=np.uint16)
        _add_up(flat, sums)
        return sums

    @cached_property
    def inside(self) -> NDArray[np.uint16]:
        """Pixels of the region before the i-th, `[H·W + 1]`; empty without a region."""
        if self.region is None:
            return np.empty(0, dtype=np.uint16)
        return np.append(0, np.cumsum(self.region.reshape(-1))).astype(np.uint16)

    def shared_levels(self, maps: LabelMaps, rows: Ints, which: Ints) -> tuple[Ints, Ints]:
        """Levels that some maps share with one of these each, and their own within the region, `[n, C]`."""
        shared = np.zeros((len(rows), maps.classes), dtype=np.int64)
        areas = np.zeros_like(shared)
        filled = np.append(self.areas.any(axis=1), False)  # the last one stands for no map
        arrays = maps.states, maps.run_state, maps.run_length, maps.firsts, maps.areas
        _share(*arrays, self.shared, self.inside, filled, rows, which, shared, areas)
        return shared, areas


@compiled
def _add_up(levels: Bytes, sums: NDArray[np.uint16]) -> None:
    for k in range(levels.shape[0]):
        for c in range(levels.shape[1]):
            for level in range(1, sums.shape[2]):
                total = np.uint16(0)
                for at in range(levels.shape[2]):
                    total += np.uint16(min(levels[k, c, at], level))
                    sums[k, c, level, at + 1] = total


@compiled
def _share(
    states: Bytes,
    run_state: Bytes,
    run_length: Bytes,
    firsts: Ints,
    areas: NDArray[np.uint16],
    tables: NDArray[np.uint16],
    inside: NDArray[np.uint16],
    filled: NDArray[np.bool_],
    rows: Ints,
    which: Ints,
    common: Ints,
    own: Ints,
) -> None:
    """Maps that have nothing to share, and whose amounts are known, are not even read."""
    classes = states.shape[1]
    held = np.zeros((len(states), classes + 1), np.int64)  # how many classes each state holds, and which
    for state in range(len(states)):
        for c in range(classes):
            if states[state, c] > 0:
                held[state, 0] += 1
                held[state, held[state, 0]] = c
    for place in range(len(rows)):
        row, k, at = rows[place], which[place], np.int64(0)
        if place + 2 < len(rows):
            for run in range(firsts[rows[place + 2]], firsts[rows[place + 2] + 1], 64):
                prefetch(run_state, run)
                prefetch(run_length, run)
        if len(inside) == 0:
            for c in range(classes):
                own[place, c] = areas[row, c]
        if filled[k] or len(inside) > 0:
            for run in range(firsts[row], firsts[row + 1]):
                end = at + np.int64(run_length[run]) + 1
                state = run_state[run]
                for n in range(1, held[state, 0] + 1):
                    c = held[state, n]
                    level = states[state, c]
                    if filled[k]:
                        common[place, c] += np.int64(tables[k, c, level, end]) - np.int64(tables[k, c, level, at])
                    if len(inside) > 0:
                        own[place, c] += level * (np.int64(inside[end]) - np.int64(inside[at]))
                at = end
