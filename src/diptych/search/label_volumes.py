"""The nearest slice of each of some volumes by label maps, from a look at few of their maps.

Within a volume, slices in groups within the limit are bounded by their blocks, others by their group; an average over
neighbours is bounded by the average of what is known of them. Then the most promising slice is looked at, map by map,
until no other can be nearer. The limit falls with every volume. Knows arrays of one segment; nothing about queries'
words.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.compiling import compiled, compiled_inline, prefetch
from diptych.search.label_groups import GROUP
from diptych.search.label_maps import LabelMaps
from diptych.search.label_scan import REACH_MM, SLACK, LabelQuery, average, map_distance

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Floats = NDArray[np.float64]
Singles = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Asked:
    """One panel of a query against the maps of one segment, as the loops below take it: arrays are flat."""

    for_bounds: tuple[Any, ...]
    """Weight, blocks and areas of the maps; blocks and areas of the query; levels that may lie outside its region."""
    for_maps: tuple[Any, ...]
    """Weight, and what `map_distance` needs."""

    @classmethod
    def of(cls, weight: float, maps: LabelMaps, query: LabelQuery) -> Asked:
        """Make everything ready that searches through these maps share."""
        blocks, own = query.blocks.reshape(-1), query.areas.astype(np.float32)
        mine = maps.blocks.reshape(-1), maps.areas.reshape(-1)
        return cls(
            (float(weight), *mine, blocks, own, np.float32(query.outside)),
            (float(weight), query.against(maps)),
        )


@dataclass(frozen=True, eq=False)
class Known:
    """What is known of all volumes of an archive."""

    begins: Ints
    """First slice of each, `[V + 1]`."""
    firsts: Ints
    """First group of each, `[V + 1]`."""
    bounds: Singles
    """What the distances of each group's slices are at least."""
    heights: Singles
    """Of every slice."""
    more_begins: Ints
    """Where each volume begins in `more`, `[V]`."""
    more: Floats
    """Distances to be added to those by label; none at all if empty."""

    @cached_property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """All of them, as the loops below take them."""
        return self.begins, self.firsts, self.bounds, self.heights, self.more_begins, self.more


EVEN = np.uint64(0x00FF00FF00FF00FF)
ONES = np.uint64(0x0001000100010001)


@compiled
def add_row_bounds(
    blocks: Bytes,
    areas: NDArray[np.uint16],
    first: int,
    asked: Bytes,
    own: Singles,
    outside: np.float32,
    weight: float,
    room: Bytes,
    words: NDArray[np.uint64],
    values: Floats,
) -> None:
    """Add what the weighted distances of rows from `first` on are at least, from sums over blocks and areas.

    One loop over all bytes is what compilers make quick; sixteen bytes of a class are then added up in two words, which
    is what `room` and `words`, the same bytes, are for.
    """
    width, classes = np.uint64(len(asked)), np.uint64(len(own))
    for i in range(np.uint64(len(values))):
        row = np.uint64(first) + i
        for k in range(width):
            room[k] = min(blocks[row * width + k], asked[k])
        present, total = np.float32(0.0), np.float32(0.0)
        for c in range(classes):
            one, other = words[np.uint64(2) * c], words[np.uint64(2) * c + np.uint64(1)]
            pairs = (one & EVEN) + ((one >> np.uint64(8)) & EVEN) + (other & EVEN) + ((other >> np.uint64(8)) & EVEN)
            most = np.float32(np.int32((pairs * ONES) >> np.uint64(48)))
            least = max(np.float32(areas[row * classes + c]) - outside, np.float32(0.0))
            present += np.float32(own[c] + least > 0)
            total += np.float32(2.0) * most / max(own[c] + max(most, least), np.float32(1.0))
        if present > 0:
            values[i] += weight * (np.float32(1.0) - total / present)


@compiled
def average_bounds(values: Floats, groups: Singles, limit: float, heights: Singles, averaged: Floats) -> float:
    """Average over neighbours what a volume's slices are at least, where that may be within the limit.

    That is in groups within it and where such a group has a say; averages are infinite elsewhere. Returns the lowest.
    """
    lowest, length = np.inf, len(values)
    averaged[:] = np.inf
    for group in range(len(groups)):
        if groups[group] <= limit:
            first, last = group * GROUP, min(group * GROUP + GROUP, length) - 1
            low, high = first, last
            while low > 0 and heights[first] - heights[low - 1] < np.float32(REACH_MM):
                low -= 1
            while high < length - 1 and heights[high + 1] - heights[last] < np.float32(REACH_MM):
                high += 1
            for i in range(low, high + 1):
                averaged[i] = average(values, heights, i, length)
                lowest = min(lowest, averaged[i])
    return lowest


@compiled
def bound_volumes(
    one: tuple[Any, ...],
    other: tuple[Any, ...],
    panels: int,
    volumes: Ints,
    local: Ints,
    known: tuple[Any, ...],
    limit: float,
    values: Floats,
    lowest: Floats,
    promising: Ints,
) -> None:
    """What the distances of slices are at least, one volume after the other, and what those of volumes are.

    Slices have the bound of their group, or that of their blocks where their group's is within the limit. The bound of
    a volume is infinite where it is beyond the limit; `promising` is the place of the slice that has it.
    """
    weight, blocks, areas, asked, own, outside = one
    weight_2, blocks_2, areas_2, asked_2, own_2, outside_2 = other
    begins, firsts, bounds, heights, more_begins, more = known
    room, room_2 = np.empty(len(asked), np.uint8), np.empty(len(asked_2), np.uint8)
    words, words_2 = room.view(np.uint64), room_2.view(np.uint64)
    averaged = np.empty(longest(volumes, begins))
    at = 0
    for v in range(len(volumes)):
        volume = volumes[v]
        length = begins[volume + 1] - begins[volume]
        if v + 1 < len(volumes):  # have the next volume's rows on their way
            for group in range(firsts[volumes[v + 1]], firsts[volumes[v + 1] + 1]):
                if bounds[group] <= limit:
                    row = local[v + 1] + (group - firsts[volumes[v + 1]]) * GROUP
                    for byte in range(row * len(asked), (row + GROUP) * len(asked), 64):
                        prefetch(blocks, min(byte, len(blocks) - 1))
                    prefetch(areas, row * len(own))
                    if panels > 1:
                        for byte in range(row * len(asked_2), (row + GROUP) * len(asked_2), 64):
                            prefetch(blocks_2, min(byte, len(blocks_2) - 1))
                        prefetch(areas_2, row * len(own_2))
        for group in range(firsts[volume], firsts[volume + 1]):
            first = (group - firsts[volume]) * GROUP
            last = min(first + GROUP, length)
            mine = values[at + first : at + last]
            if bounds[group] > limit + SLACK:
                mine[:] = bounds[group]
            else:
                mine[:] = 0.0
                if len(more) > 0:
                    mine[:] = more[more_begins[volume] + first : more_begins[volume] + last]
                add_row_bounds(blocks, areas, local[v] + first, asked, own, outside, weight, room, words, mine)
                if panels > 1:
                    add_row_bounds(
                        blocks_2, areas_2, local[v] + first, asked_2, own_2, outside_2, weight_2, room_2, words_2, mine
                    )
        lowest[v] = average_bounds(
            values[at : at + length],
            bounds[firsts[volume] : firsts[volume + 1]],
            limit + SLACK,
            heights[begins[volume] : begins[volume + 1]],
            averaged[:length],
        )
        promising[v] = _lowest(averaged[:length])
        at += length


@compiled_inline
def longest(volumes: Ints, begins: Ints) -> Any:
    """Slices of the longest volume."""
    most = 0
    for volume in volumes:
        most = max(most, begins[volume + 1] - begins[volume])
    return most


@compiled
def look_at_volumes(
    one: tuple[Any, ...],
    other: tuple[Any, ...],
    bounding: tuple[Any, ...],
    panels: int,
    volumes: Ints,
    local: Ints,
    known: tuple[Any, ...],
    places: Ints,
    promising: Ints,
    bounded: Floats,
    allowed: NDArray[np.bool_],
    owners: Ints,
    near_keys: Floats,
    near_owners: Ints,
    keys: Floats,
    slices: Ints,
) -> None:
    """The distance of the first nearest slice of each volume, and that slice, by volume, into `keys` and `slices`.

    Of volumes that cannot be among the matches neither is told, or a distance beyond the limit. `bounded` has bounds of
    slices, each volume's from `places` on, and `promising` the lowest one's place; `bounding` is what bounds the first
    panel; `allowed` are slices that may be found, all if empty; `near_keys` and `near_owners`, the matches so far, are
    kept up to date. Of two panels the second is looked at first, and the other one where that does not decide.
    """
    weight, maps = one
    weight_2, maps_2 = other
    _, blocks, areas, asked, own, outside = bounding
    begins, firsts, bounds, all_heights, more_begins, more = known
    most = longest(volumes, begins)
    averages, has_seen, seconds = np.empty(most), np.empty(most, np.uint8), np.empty(most)
    room, single = np.empty(len(asked), np.uint8), np.empty(1)
    words = room.view(np.uint64)
    for v in range(len(volumes)):
        if v + 4 < len(volumes):
            fetch_first(maps_2, local[v + 4] + promising[v + 4])
            fetch_first(maps, local[v + 4] + promising[v + 4])
        if v + 2 < len(volumes):
            prefetch(bounded, places[v + 2] + promising[v + 2])
            fetch_runs(maps_2, local[v + 2] + promising[v + 2])
            fetch_runs(maps, local[v + 2] + promising[v + 2])
        volume = volumes[v]
        begin, length = begins[volume], begins[volume + 1] - begins[volume]
        heights, values = all_heights[begin : begin + length], bounded[places[v] : places[v] + length]
        averaged, seen = averages[:length], has_seen[:length]
        limit = near_keys[-1]
        groups = bounds[firsts[volume] : firsts[volume + 1]]
        if average_bounds(values, groups, limit + SLACK, heights, averaged) > limit + SLACK:
            continue
        seen[:] = 0
        if len(allowed) > 0:
            for i in range(length):
                if not allowed[begin + i]:
                    averaged[i] = np.inf
        best, best_place = np.inf, 0
        while True:
            i = _lowest(averaged)
            if averaged[i] == np.inf or averaged[i] > min(limit, best) + SLACK:
                break
            j = _next_unseen(seen, panels, heights, i)
            if j < 0:  # what is averaged is exact
                if averaged[i] < best or (averaged[i] == best and i < best_place):
                    best, best_place = averaged[i], i
                averaged[i] = np.inf
                continue
            row = local[v] + j
            value = more[more_begins[volume] + j] if len(more) > 0 else 0.0
            if panels > 1 and seen[j] == 0:
                seconds[j] = weight_2 * map_distance(maps_2, row)
                single[0] = value
                add_row_bounds(blocks, areas, row, asked, own, outside, weight, room, words, single)
                values[j] = single[0] + seconds[j]
            else:
                values[j] = value + weight * map_distance(maps, row)
                if panels > 1:
                    values[j] += seconds[j]
            seen[j] += 1
            _average_anew(values, heights, j, averaged)
        keys[volume], slices[volume] = best, begin + best_place
        if best < limit:
            _take_in(best, owners[volume] if len(owners) > 0 else volume, near_keys, near_owners)


@compiled
def fetch_first(maps: tuple[Any, ...], row: int) -> None:
    """Have it on its way where a map begins."""
    prefetch(maps[2], row)


@compiled
def fetch_runs(maps: tuple[Any, ...], row: int) -> None:
    """Have the runs of a map on their way."""
    states, lengths, firsts = maps[0], maps[1], maps[2]
    for run in range(firsts[row], firsts[row + 1], 64):
        prefetch(states, run)
        prefetch(lengths, run)
    prefetch(maps[3], row * len(maps[4]))


@compiled
def _lowest(averaged: Floats) -> int:
    """The first place of the lowest value."""
    place, lowest = 0, np.inf
    for i in range(len(averaged)):
        if averaged[i] < lowest:
            place, lowest = i, averaged[i]
    return place


@compiled
def _average_anew(values: Floats, heights: Singles, j: int, averaged: Floats) -> None:
    """Averages in which a slice has a say, where they are still open."""
    low, high, length = j, j, len(values)
    while low > 0 and heights[j] - heights[low - 1] < np.float32(REACH_MM):
        low -= 1
    while high < length - 1 and heights[high + 1] - heights[j] < np.float32(REACH_MM):
        high += 1
    for i in range(low, high + 1):
        if averaged[i] < np.inf:
            averaged[i] = average(values, heights, i, length)


@compiled
def _next_unseen(seen: Bytes, panels: int, heights: Singles, i: int) -> int:
    """The slice itself, or one with a say in its average, that has a panel to look at; -1 if none has."""
    length = len(seen)
    if seen[i] < panels:
        return i
    j = i - 1
    while j >= 0 and heights[i] - heights[j] < np.float32(REACH_MM):
        if seen[j] < panels:
            return j
        j -= 1
    j = i + 1
    while j < length and heights[j] - heights[i] < np.float32(REACH_MM):
        if seen[j] < panels:
            return j
        j += 1
    return -1


@compiled
def _take_in(key: float, owner: int, keys: Floats, owners: Ints) -> None:
    """Keep the best key of each of the nearest owners, in order."""
    last = len(keys) - 1
    for place in range(len(keys)):
        if owners[place] == owner:
            last = place
    if key < keys[last]:
        while last > 0 and keys[last - 1] > key:
            keys[last], owners[last] = keys[last - 1], owners[last - 1]
            last -= 1
        keys[last], owners[last] = key, owner
