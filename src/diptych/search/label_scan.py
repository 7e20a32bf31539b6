"""Exact nearest slices by overlap of label maps, with a look at few of them.

The distance of two maps is 1 - the mean Dice coefficient over the classes that either has. Bounds, cheapest first:

    groups    what eight neighbouring maps have at most in each block (`label_groups.py`)
    blocks    what two maps share is at most the sum over blocks of the smaller amount (`label_volumes.py`)
    runs      the maps themselves, run by run

A slice's distance is averaged over its neighbours; the average of their bounds bounds it. Volumes whose bound exceeds
the distance of the worst match wanted so far are left out; ties are not. Here are the query, the maps' distances and
the average. Knows arrays; nothing about queries' words.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.compiling import compiled, compiled_inline
from diptych.search.label_maps import BLOCKS, LEVELS, LabelMaps, Levels

REACH_MM = 6.0
"""From this far on a neighbouring slice has no say; chosen on training and validation patients."""
SLACK = 1e-5
"""Room for rounding: a bound may be low, never high."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class LabelQuery:
    """One map `[C, H, W]` to compare with, and where: what all comparisons with it share."""

    levels: Levels
    """Levels of the query, zero outside its region."""
    region: NDArray[np.bool_] | None = None
    """Pixels that are compared, `[H, W]`; all of them by default."""

    @cached_property
    def areas(self) -> Ints:
        return np.asarray(self.levels.sum(axis=(1, 2), dtype=np.int64))

    @cached_property
    def fields(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]:
        """Where each class lies in words of 64 bits: word, first bit, and a mask as wide as its area, `[C]` each.

        Maps share no more with a query than it has, so that one word is enough for most.
        """
        largest = self.areas if self.region is None else np.maximum(self.areas, LEVELS * np.count_nonzero(self.region))
        words, firsts, masks = (np.zeros(len(largest), dtype=np.uint64) for _ in range(3))
        word, bit = 0, 0
        for c, area in enumerate(largest.tolist()):
            width = int(area).bit_length()
            if bit + width > 64:
                word, bit = word + 1, 0
            words[c], firsts[c], masks[c] = word, bit, (1 << width) - 1
            bit += width
        return words, firsts, masks

    def against(self, maps: LabelMaps) -> tuple[Any, ...]:
        """Everything that `map_distance` needs."""
        packed, inside = self.packed(maps.states), self.packed_inside(maps.states)
        runs = maps.run_state, maps.run_length, maps.firsts, maps.areas.reshape(-1)
        return *runs, self.areas, packed.reshape(-1), inside.reshape(-1), *packed.shape[1:], *self.fields

    def packed(self, states: NDArray[np.uint8]) -> NDArray[np.uint64]:
        """Levels that states share with the query in all pixels before the i-th, all classes in few words.

        `[U, H·W + 1, W]` for U states; `fields` tells where the classes lie.
        """
        return self._added_up(states, self.levels, "shared")

    def packed_inside(self, states: NDArray[np.uint8]) -> NDArray[np.uint64]:
        """The levels of states themselves within the region, packed alike; empty without a region."""
        if self.region is None:
            return np.zeros((0, 0, 1), dtype=np.uint64)
        return self._added_up(states, np.broadcast_to(LEVELS * self.region, self.levels.shape), "inside")

    def _added_up(self, states: NDArray[np.uint8], levels: NDArray[np.integer], what: str) -> NDArray[np.uint64]:
        key = what, states.tobytes()
        if key not in self._packed:
            words, firsts, _ = self.fields
            sums = np.zeros((len(states), levels[0].size + 1, int(words.max()) + 1), dtype=np.uint64)
            flat = np.ascontiguousarray(levels, dtype=np.uint8).reshape(len(levels), -1)
            _add_up_states(states, flat, words, firsts, sums)
            self._packed[key] = sums
        return self._packed[key]

    @cached_property
    def _packed(self) -> dict[tuple[str, bytes], NDArray[np.uint64]]:
        return {}

    @cached_property
    def blocks(self) -> NDArray[np.uint8]:
        return _block_sums(self.levels).astype(np.uint8)

    @property
    def outside(self) -> int:
        """Most levels that a class can have outside the region."""
        return 0 if self.region is None else LEVELS * int(np.count_nonzero(~self.region))


def _block_sums(levels: NDArray[np.generic]) -> NDArray[np.int64]:
    """Sums over blocks, `[C, BLOCKS²]`."""
    classes, rows, columns = levels.shape
    blocks = levels.reshape(classes, BLOCKS, rows // BLOCKS, BLOCKS, columns // BLOCKS)
    return np.asarray(blocks.sum(axis=(2, 4), dtype=np.int64).reshape(classes, BLOCKS**2))


def exact_distances(maps: LabelMaps, query: LabelQuery, rows: Ints) -> Floats:
    """1 - mean Dice between the query and some maps, `[n]`."""
    out = np.empty(len(rows))
    _exact(query.against(maps), rows, out)
    return out


@compiled
def _add_up_states(
    states: NDArray[np.uint8],
    levels: Levels,
    words: NDArray[np.uint64],
    firsts: NDArray[np.uint64],
    sums: NDArray[np.uint64],
) -> None:
    for state in range(len(states)):
        for c in range(states.shape[1]):
            if states[state, c] > 0:
                total = np.uint64(0)
                for at in range(levels.shape[1]):
                    total += np.uint64(min(states[state, c], levels[c, at]))
                    sums[state, at + 1, words[c]] += total << firsts[c]


@compiled
def map_distance(against: tuple[Any, ...], row: int) -> float:
    """1 - mean Dice of one map: two look-ups a run and word, whatever it holds."""
    run_state, run_length, firsts, areas, query_areas, packed, inside, pixels, words, word, first_bit, mask = against
    one, own = np.uint64(0), np.uint64(0)
    two, own_two = np.uint64(0), np.uint64(0)
    at, pixels, words = np.uint64(0), np.uint64(pixels), np.uint64(words)
    for run in range(np.uint64(firsts[row]), np.uint64(firsts[row + 1])):
        end = at + np.uint64(run_length[run]) + np.uint64(1)
        state = np.uint64(run_state[run])
        if state > np.uint64(0):
            begin, behind = (state * pixels + at) * words, (state * pixels + end) * words
            one += packed[behind] - packed[begin]
            if words > 1:
                two += packed[behind + np.uint64(1)] - packed[begin + np.uint64(1)]
            if len(inside) > 0:
                own += inside[behind] - inside[begin]
                if words > 1:
                    own_two += inside[behind + np.uint64(1)] - inside[begin + np.uint64(1)]
        at = end
    present, total = 0, 0.0
    for c in range(len(query_areas)):
        common = np.int64(((one if word[c] == 0 else two) >> first_bit[c]) & mask[c])
        if len(inside) > 0:
            both = query_areas[c] + np.int64(((own if word[c] == 0 else own_two) >> first_bit[c]) & mask[c])
        else:
            both = query_areas[c] + np.int64(areas[row * len(query_areas) + c])
        if both > 0:
            present += 1
        if common > 0:
            total += 2.0 * common / both
    return 1.0 - total / present if present > 0 else 0.0


@compiled
def _exact(against: tuple[Any, ...], rows: Ints, out: Floats) -> None:
    for place in range(len(rows)):
        out[place] = map_distance(against, rows[place])


def pair_distances(maps: LabelMaps, one: Ints, other: Ints, region: NDArray[np.bool_] | None) -> Floats:
    """1 - mean Dice between maps of a list, pair by pair, within a region of pixels."""
    inside = np.ones(int(maps.size.prod()), np.bool_) if region is None else np.ascontiguousarray(region).reshape(-1)
    out = np.empty(len(one))
    _pairs(maps.states, maps.run_state, maps.run_length, maps.firsts, one, other, inside, out)
    return out


@compiled
def _pairs(
    states: NDArray[np.uint8],
    run_state: NDArray[np.uint8],
    run_length: NDArray[np.uint8],
    firsts: Ints,
    one: Ints,
    other: Ints,
    inside: NDArray[np.bool_],
    out: Floats,
) -> None:
    classes = states.shape[1]
    pixels = np.zeros((2, len(inside)), np.int64)
    sums = np.zeros((2, classes), np.int64)
    for pair in range(len(one)):
        for side in range(2):
            row = one[pair] if side == 0 else other[pair]
            at = 0
            for run in range(firsts[row], firsts[row + 1]):
                for _ in range(np.int64(run_length[run]) + 1):
                    pixels[side, at] = run_state[run]
                    at += 1
        sums[:] = 0
        for at in range(len(inside)):
            if inside[at] and pixels[0, at] + pixels[1, at] > 0:
                for c in range(classes):
                    a, b = states[pixels[0, at], c], states[pixels[1, at], c]
                    sums[0, c] += min(a, b)
                    sums[1, c] += a + b
        present = 0
        total = 0.0
        for c in range(classes):
            if sums[1, c] > 0:
                present += 1
                total += 2.0 * sums[0, c] / sums[1, c]
        out[pair] = 1.0 - total / present if present > 0 else 0.0


@compiled_inline
def average(values: Floats, heights: NDArray[np.float32], i: Any, length: Any) -> Any:
    """The average over the neighbourhood of one of a volume's values, which stand in order of height.

    Slices less than `REACH_MM` apart have a say that falls in a straight line.
    """
    reach = np.float32(REACH_MM)
    total, weight = values[i], np.float64(1.0)
    j = i - 1
    while j >= 0 and heights[i] - heights[j] < reach:
        share = np.float32(1.0) - (heights[i] - heights[j]) / reach
        total += share * values[j]
        weight += share
        j -= 1
    j = i + 1
    while j < length and heights[j] - heights[i] < reach:
        share = np.float32(1.0) - (heights[j] - heights[i]) / reach
        total += share * values[j]
        weight += share
        j += 1
    return total / weight
