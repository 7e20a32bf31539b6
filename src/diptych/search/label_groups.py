"""`LabelGroups`: what label maps of neighbouring slices have in common, so that one look bounds eight distances.

For each group of slices of one volume: the largest sum of levels in every block, and the smallest area. No slice of the
group shares more with a query than the sum over blocks of the smaller of the query's amount and the group's largest.
`refine` then looks at the blocks of single slices where a group may be near enough, and averages bounds over neighbours
as distances are. Knows arrays; nothing about queries' words or segments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.compiling import compiled, compiled_inline, prefetch
from diptych.search.label_maps import BLOCKS
from diptych.search.label_scan import REACH_MM

GROUP = 8
"""Slices of a group, at most."""
BLOCK_COUNT = BLOCKS * BLOCKS

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class LabelGroups:
    """The groups of all volumes of one panel, in the archive's order."""

    firsts: Ints
    """First group of each volume, and their number at the end, `[V + 1]`."""
    blocks: Bytes
    """Largest sums over blocks, `[G, C · BLOCKS²]`."""
    areas: NDArray[np.uint16]
    """Smallest areas, `[G, C]`."""

    @classmethod
    def empty(cls, volume_starts: Ints, classes: int) -> LabelGroups:
        """Groups of volumes with these slices, still to be filled by `add`."""
        firsts = np.append(0, np.cumsum(-(-np.diff(volume_starts) // GROUP))).astype(np.int64)
        blocks = np.zeros((int(firsts[-1]), classes * BLOCK_COUNT), dtype=np.uint8)
        return cls(firsts, blocks, np.zeros((len(blocks), classes), dtype=np.uint16))

    @property
    def nbytes(self) -> int:
        """Bytes that grow with the archive."""
        return self.blocks.nbytes + self.areas.nbytes

    def add(self, blocks: Bytes, areas: NDArray[np.uint16], volumes: Ints, starts: Ints, lengths: Ints) -> None:
        """Take in some volumes, whose slices begin at `starts` in the arrays given."""
        _collect(blocks.reshape(len(blocks), -1), areas, volumes, starts, lengths, self.firsts, self.blocks, self.areas)

    def add_bounds(self, blocks: Bytes, areas: Ints, weight: float, volumes: Ints, out: Floats) -> None:
        """Add weighted bounds of a query with these sums over blocks `[C, BLOCKS²]` to those of the volumes' groups."""
        asked = np.ascontiguousarray(blocks).reshape(-1), areas.astype(np.int64)
        _bound(self.blocks, self.areas, *asked, weight, volumes, self.firsts, out)


@compiled
def _collect(
    blocks: Bytes,
    areas: NDArray[np.uint16],
    volumes: Ints,
    starts: Ints,
    lengths: Ints,
    firsts: Ints,
    largest: Bytes,
    smallest: NDArray[np.uint16],
) -> None:
    for v in range(len(volumes)):
        for place in range(lengths[v]):
            group, row = firsts[volumes[v]] + place // GROUP, starts[v] + place
            if place % GROUP == 0:
                largest[group] = blocks[row]
                smallest[group] = areas[row]
            else:
                for k in range(blocks.shape[1]):
                    largest[group, k] = max(largest[group, k], blocks[row, k])
                for c in range(areas.shape[1]):
                    smallest[group, c] = min(smallest[group, c], areas[row, c])


EVEN = np.uint64(0x00FF00FF00FF00FF)
ONES = np.uint64(0x0001000100010001)


@compiled_inline
def least_distance(
    blocks: Bytes, row: np.uint64, least: Any, asked: Bytes, own: Floats, room: Bytes, words: NDArray[np.uint64]
) -> Any:
    """What the distance of a row is at least, from flat sums over blocks and the least that each class covers.

    One loop over all bytes is what compilers make quick; sixteen bytes of a class are then added up in two words, which
    is what `room` and `words`, the same bytes, are for.
    """
    width, classes = np.uint64(len(asked)), np.uint64(len(own))
    for k in range(width):
        room[k] = min(blocks[row * width + k], asked[k])
    present, total = np.float32(0.0), np.float32(0.0)
    for c in range(classes):
        one, other = words[np.uint64(2) * c], words[np.uint64(2) * c + np.uint64(1)]
        pairs = (one & EVEN) + ((one >> np.uint64(8)) & EVEN) + (other & EVEN) + ((other >> np.uint64(8)) & EVEN)
        most = np.float32(np.int32((pairs * ONES) >> np.uint64(48)))
        smallest = np.float32(least[row * classes + c])
        present += np.float32(own[c] + smallest > 0)
        total += np.float32(2.0) * most / max(own[c] + max(most, smallest), np.float32(1.0))
    return np.float32(1.0) - total / present if present > 0 else np.float32(0.0)


@compiled
def _bound(
    blocks: Bytes,
    least: NDArray[np.uint16],
    asked: Bytes,
    areas: Ints,
    weight: float,
    volumes: Ints,
    firsts: Ints,
    out: Floats,
) -> None:
    flat, amounts, own = blocks.reshape(-1), least.reshape(-1), areas.astype(np.float32)
    room = np.empty(len(asked), np.uint8)
    words = room.view(np.uint64)
    for v in range(len(volumes)):
        for group in range(firsts[volumes[v]], firsts[volumes[v] + 1]):
            bound = least_distance(flat, np.uint64(group), amounts, asked, own, room, words)
            out[group] += np.float32(weight) * bound


@compiled
def lowest_of_volumes(bounds: Floats, volumes: Ints, firsts: Ints, out: Floats) -> None:
    """The lowest bound among the groups of each volume."""
    for v in range(len(volumes)):
        lowest = np.float32(np.inf)
        for group in range(firsts[volumes[v]], firsts[volumes[v] + 1]):
            lowest = min(lowest, bounds[group])
        out[v] = lowest


@compiled
def add_slice_bounds(
    blocks: Bytes,
    areas: NDArray[np.uint16],
    asked: Bytes,
    asked_areas: Ints,
    weight: float,
    local: Ints,
    begins: Ints,
    lengths: Ints,
    groups: Ints,
    admitted: NDArray[np.bool_],
    out: Floats,
) -> None:
    """Add weighted bounds of single slices in admitted groups of volumes to `out`, which is in the archive's order.

    Volumes begin at `local` in `blocks`, at `begins` in the archive and at `groups` among the groups.
    """
    flat, amounts, own = blocks.reshape(-1), areas.reshape(-1), asked_areas.astype(np.float32)
    room = np.empty(len(asked), np.uint8)
    words = room.view(np.uint64)
    for v in range(len(local)):
        for place in range(lengths[v]):
            if admitted[groups[v] + place // GROUP]:
                ahead = np.uint64(min(local[v] + place + GROUP, len(blocks) - 1)) * np.uint64(len(asked))
                prefetch(flat, ahead)
                prefetch(flat, ahead + np.uint64(len(asked) - 1))
                bound = least_distance(flat, np.uint64(local[v] + place), amounts, asked, own, room, words)
                out[begins[v] + place] += np.float32(weight) * bound


@compiled
def admit(
    bounds: Floats,
    limit: float,
    heights: Floats,
    volumes: Ints,
    begins: Ints,
    firsts: Ints,
    admitted: NDArray[np.bool_],
) -> None:
    """Mark the groups within the limit, and those with a slice that has a say in one of theirs."""
    for v in range(len(volumes)):
        volume = volumes[v]
        first, last, begin, end = firsts[volume], firsts[volume + 1], begins[volume], begins[volume + 1]
        for group in range(first, last):
            admitted[group] = bounds[group] <= limit
        for group in range(first, last):
            if bounds[group] <= limit:
                low = begin + (group - first) * GROUP
                high = min(low + GROUP, end) - 1
                other = group - 1
                while other >= first and heights[low] - heights[low - 1 - (group - 1 - other) * GROUP] < REACH_MM:
                    admitted[other] = True
                    other -= 1
                other = group + 1
                while other < last and heights[begin + (other - first) * GROUP] - heights[high] < REACH_MM:
                    admitted[other] = True
                    other += 1


@compiled
def average_bounds(
    values: Floats,
    bounds: Floats,
    admitted: NDArray[np.bool_],
    heights: Floats,
    volumes: Ints,
    begins: Ints,
    firsts: Ints,
    averaged: Floats,
    lowest: Floats,
) -> None:
    """Bounds of slices in admitted groups, averaged over neighbours: others have the bound of their group.

    What lies in no admitted group cannot be within the limit: its average, and `averaged`, is left infinite.
    """
    reach = np.float32(REACH_MM)
    for v in range(len(volumes)):
        volume = volumes[v]
        begin, end, first = begins[volume], begins[volume + 1], firsts[volume]
        for i in range(begin, end):
            if not admitted[first + (i - begin) // GROUP]:
                values[i] = bounds[first + (i - begin) // GROUP]
        best = np.float32(np.inf)
        for i in range(begin, end):
            averaged[i] = np.float32(np.inf)
            if admitted[first + (i - begin) // GROUP]:
                total, weight = values[i], np.float32(1.0)
                j = i - 1
                while j >= begin and heights[i] - heights[j] < reach:
                    share = np.float32(1.0) - (heights[i] - heights[j]) / reach
                    total += share * values[j]
                    weight += share
                    j -= 1
                j = i + 1
                while j < end and heights[j] - heights[i] < reach:
                    share = np.float32(1.0) - (heights[j] - heights[i]) / reach
                    total += share * values[j]
                    weight += share
                    j += 1
                averaged[i] = total / weight
                best = min(best, averaged[i])
        lowest[v] = best
