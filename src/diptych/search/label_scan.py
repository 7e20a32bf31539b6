"""Exact nearest slices by overlap of label maps, with a look at few of them.

The distance of two maps is 1 - the mean Dice coefficient over the classes that either has. Bounds, cheapest first:

    groups    what eight neighbouring maps have at most in each block (`label_groups.py`)
    blocks    what two maps share is at most the sum over blocks of the smaller amount
    runs      the maps themselves, run by run

A slice's distance is averaged over its neighbours; the average of their bounds bounds it. Volumes whose bound exceeds
the distance of the worst match wanted so far are left out; ties are not. Knows arrays; nothing about queries' words.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from diptych.compiling import compiled, prefetch
from diptych.search.label_maps import BLOCKS, LEVELS, LabelMaps, Levels

REACH_MM = 6.0
"""From this far on a neighbouring slice has no say; chosen on training and validation patients."""
FIELDS = 5
"""Classes in one word of 64 bits, 12 each: a map of 32 × 32 pixels has 3072 levels at most."""
FIELD = np.uint64(12)
MASK = np.uint64((1 << 12) - 1)
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
    def shared(self) -> NDArray[np.uint16]:
        """Levels shared with k levels in all pixels before the i-th, `[C, LEVELS + 1, H·W + 1]`."""
        classes = len(self.levels)
        sums = np.zeros((classes, LEVELS + 1, self.levels[0].size + 1), dtype=np.uint16)
        for level in range(1, LEVELS + 1):
            np.cumsum(np.minimum(self.levels.reshape(classes, -1), level), axis=1, out=sums[:, level, 1:])
        return sums

    def packed(self, states: NDArray[np.uint8]) -> NDArray[np.uint64]:
        """The same for whole states, all classes in few words: 12 bits hold what a map shares in a class.

        `[U, H·W + 1, W]`: levels that U states share with the query in all pixels before the i-th.
        """
        key = states.tobytes()
        if key not in self._packed:
            classes, pixels = len(self.levels), self.levels[0].size
            sums = np.zeros((len(states), pixels + 1, -(-classes // FIELDS)), dtype=np.uint64)
            _add_up_states(states, self.levels.reshape(classes, -1), sums)
            self._packed[key] = sums
        return self._packed[key]

    @cached_property
    def _packed(self) -> dict[bytes, NDArray[np.uint64]]:
        return {}

    @cached_property
    def inside(self) -> NDArray[np.uint16]:
        """Pixels of the region before the i-th, `[H·W + 1]`; empty without a region."""
        if self.region is None:
            return np.empty(0, dtype=np.uint16)
        return np.append(0, np.cumsum(self.region.reshape(-1))).astype(np.uint16)

    @cached_property
    def blocks(self) -> NDArray[np.uint8]:
        return _block_sums(self.levels).astype(np.uint8)

    @cached_property
    def outside(self) -> NDArray[np.uint8]:
        """Most levels that a class can have outside the region in each block."""
        rows, columns = self.levels.shape[1:]
        out = np.zeros((1, rows, columns)) if self.region is None else LEVELS * ~self.region[None]
        return np.asarray(_block_sums(out)[0].astype(np.uint8))


def _block_sums(levels: NDArray[np.generic]) -> NDArray[np.int64]:
    """Sums over blocks, `[C, BLOCKS²]`."""
    classes, rows, columns = levels.shape
    blocks = levels.reshape(classes, BLOCKS, rows // BLOCKS, BLOCKS, columns // BLOCKS)
    return np.asarray(blocks.sum(axis=(2, 4), dtype=np.int64).reshape(classes, BLOCKS**2))


def exact_distances(maps: LabelMaps, query: LabelQuery, rows: Ints) -> Floats:
    """1 - mean Dice between the query and some maps, `[n]`."""
    out = np.empty(len(rows))
    runs = maps.run_state, maps.run_length, maps.firsts, maps.areas
    if query.region is None:
        _exact(*runs, query.areas, query.packed(maps.states), rows, out)
    else:
        _exact_within(maps.states, *runs, query.areas, query.shared, query.inside, rows, out)
    return out


def shared_levels(maps: LabelMaps, query: LabelQuery, rows: Ints) -> tuple[Ints, Ints]:
    """Levels that some maps share with the query, and their own within its region, class by class, `[n, C]`."""
    shared = np.zeros((len(rows), maps.classes), dtype=np.int64)
    areas = np.zeros_like(shared)
    arrays = maps.states, maps.run_state, maps.run_length, maps.firsts, maps.areas
    _share(*arrays, query.shared, query.inside, rows, shared, areas)
    return shared, areas


def block_bounds(maps: LabelMaps, query: LabelQuery, rows: Ints) -> Floats:
    """For some maps, a distance that each of them has at least, from sums over blocks."""
    out = np.empty(len(rows))
    _bound_by_blocks(maps.blocks, query.blocks, query.areas, query.outside, rows, out)
    return out


@compiled
def _add_up_states(states: NDArray[np.uint8], levels: Levels, sums: NDArray[np.uint64]) -> None:
    for state in range(len(states)):
        for at in range(levels.shape[1]):
            for word in range(sums.shape[2]):
                sums[state, at + 1, word] = sums[state, at, word]
            for c in range(states.shape[1]):
                if states[state, c] > 0:
                    shared = np.uint64(min(states[state, c], levels[c, at]))
                    sums[state, at + 1, c // FIELDS] += shared << (np.uint64(c % FIELDS) * FIELD)


@compiled
def _exact(
    run_state: NDArray[np.uint8],
    run_length: NDArray[np.uint8],
    firsts: Ints,
    areas: NDArray[np.uint16],
    query_areas: Ints,
    packed: NDArray[np.uint64],
    rows: Ints,
    out: Floats,
) -> None:
    """Two look-ups a run, whatever it holds; words that lack a class have zeros."""
    words, pixels = np.uint64(packed.shape[2]), np.uint64(packed.shape[1])
    flat = packed.reshape(-1)
    for place in range(len(rows)):
        row = rows[place]
        if place + 2 < len(rows):
            ahead = firsts[rows[place + 2]]
            for line in range(4):
                prefetch(run_state, min(ahead + 64 * line, len(run_state) - 1))
                prefetch(run_length, min(ahead + 64 * line, len(run_state) - 1))
        one, two, at = np.uint64(0), np.uint64(0), np.uint64(0)
        for run in range(np.uint64(firsts[row]), np.uint64(firsts[row + 1])):
            end = at + np.uint64(run_length[run]) + np.uint64(1)
            state = np.uint64(run_state[run])
            if state > np.uint64(0):
                first = state * pixels
                one += flat[(first + end) * words] - flat[(first + at) * words]
                if words > np.uint64(1):
                    two += flat[(first + end) * words + np.uint64(1)] - flat[(first + at) * words + np.uint64(1)]
            at = end
        present, total = 0, 0.0
        for c in range(len(query_areas)):
            both = query_areas[c] + np.int64(areas[row, c])
            word = one if c < FIELDS else two
            common = np.int64((word >> (np.uint64(c % FIELDS) * FIELD)) & MASK)
            if both > 0:
                present += 1
            if common > 0:
                total += 2.0 * common / both
        out[place] = 1.0 - total / present if present > 0 else 0.0


@compiled
def _exact_within(
    states: NDArray[np.uint8],
    run_state: NDArray[np.uint8],
    run_length: NDArray[np.uint8],
    firsts: Ints,
    areas: NDArray[np.uint16],
    query_areas: Ints,
    shared: NDArray[np.uint16],
    inside: NDArray[np.uint16],
    rows: Ints,
    out: Floats,
) -> None:
    classes = states.shape[1]
    # For each state the classes it holds, so that a run touches no others.
    held = np.zeros((len(states), classes + 1), np.int64)
    for state in range(len(states)):
        for c in range(classes):
            if states[state, c] > 0:
                held[state, 0] += 1
                held[state, held[state, 0]] = c
    common = np.zeros(classes, np.int64)
    own = np.zeros(classes, np.int64)
    for place in range(len(rows)):
        row = rows[place]
        common[:] = 0
        own[:] = 0
        at = np.int64(0)
        for run in range(firsts[row], firsts[row + 1]):
            end = at + np.int64(run_length[run]) + 1
            state = run_state[run]
            for k in range(1, held[state, 0] + 1):
                c = held[state, k]
                level = states[state, c]
                common[c] += np.int64(shared[c, level, end]) - np.int64(shared[c, level, at])
                if len(inside) > 0:
                    own[c] += level * (np.int64(inside[end]) - np.int64(inside[at]))
            at = end
        present = 0
        total = 0.0
        for c in range(classes):
            both = query_areas[c] + (own[c] if len(inside) > 0 else np.int64(areas[row, c]))
            if both > 0:
                present += 1
            if common[c] > 0:
                total += 2.0 * common[c] / both
        out[place] = 1.0 - total / present if present > 0 else 0.0


@compiled
def _share(
    states: NDArray[np.uint8],
    run_state: NDArray[np.uint8],
    run_length: NDArray[np.uint8],
    firsts: Ints,
    areas: NDArray[np.uint16],
    shared: NDArray[np.uint16],
    inside: NDArray[np.uint16],
    rows: Ints,
    common: Ints,
    own: Ints,
) -> None:
    for place in range(len(rows)):
        row, at = rows[place], np.int64(0)
        for run in range(firsts[row], firsts[row + 1]):
            end = at + np.int64(run_length[run]) + 1
            for c in range(states.shape[1]):
                level = states[run_state[run], c]
                if level > 0:
                    common[place, c] += np.int64(shared[c, level, end]) - np.int64(shared[c, level, at])
                    if len(inside) > 0:
                        own[place, c] += level * (np.int64(inside[end]) - np.int64(inside[at]))
            at = end
        if len(inside) == 0:
            for c in range(states.shape[1]):
                own[place, c] = areas[row, c]


@compiled
def _bound_by_blocks(
    blocks: NDArray[np.uint8],
    query_blocks: NDArray[np.uint8],
    query_areas: Ints,
    outside: NDArray[np.uint8],
    rows: Ints,
    out: Floats,
) -> None:
    classes, count = query_blocks.shape
    for place in range(len(rows)):
        row = rows[place]
        present = 0
        total = 0.0
        for c in range(classes):
            most = np.int64(0)  # levels that both have
            least = np.int64(0)  # levels of the map inside the region
            for b in range(count):
                most += np.int64(min(blocks[row, c, b], query_blocks[c, b]))
                least += max(np.int64(blocks[row, c, b]) - np.int64(outside[b]), np.int64(0))
            if query_areas[c] > 0 or least > 0:
                present += 1
            if most > 0:
                total += 2.0 * most / (query_areas[c] + max(most, least))
        out[place] = 1.0 - total / present if present > 0 else 0.0


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


@compiled
def average_ranges(values: Floats, heights: NDArray[np.float32], ends: Ints, out: Floats) -> None:
    """Each value averaged over its neighbourhood within its range; ranges lie one after the other and end at `ends`.

    Slices less than `REACH_MM` apart have a say that falls in a straight line. Infinite where a neighbour is.
    """
    reach = np.float32(REACH_MM)
    begin = np.int64(0)
    for r in range(len(ends)):
        for i in range(begin, ends[r]):
            total, weight = values[i], np.float64(1.0)
            step = 1
            near = True
            while near:
                near = False
                for other in (i - step, i + step):
                    if begin <= other < ends[r]:
                        share = np.float32(1.0) - np.float32(abs(heights[other] - heights[i])) / reach
                        if share > 0:
                            total += share * values[other]
                            weight += share
                            near = True
                step += 1
            out[i] = total / weight
        begin = ends[r]


@compiled
def mark_neighbours(
    bounds: Floats, limit: float, heights: NDArray[np.float32], ends: Ints, needed: NDArray[np.bool_]
) -> None:
    """Mark each place whose bound is within `limit`, and all of its range that have a say in its average."""
    begin = np.int64(0)
    for r in range(len(ends)):
        for i in range(begin, ends[r]):
            if bounds[i] <= limit:
                needed[i] = True
                j = i - 1
                while j >= begin and abs(heights[i] - heights[j]) < REACH_MM:
                    needed[j] = True
                    j -= 1
                j = i + 1
                while j < ends[r] and abs(heights[j] - heights[i]) < REACH_MM:
                    needed[j] = True
                    j += 1
        begin = ends[r]


@compiled
def best_places(values: Floats, ends: Ints, lowest: Floats, places: Ints) -> None:
    """The smallest value of each range, and the first place that has it; ranges lie one after the other."""
    begin = np.int64(0)
    for r in range(len(ends)):
        lowest[r], places[r] = np.inf, begin
        for i in range(begin, ends[r]):
            if values[i] < lowest[r]:
                lowest[r], places[r] = values[i], i
        begin = ends[r]
