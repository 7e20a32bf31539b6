"""`LabelScan`: the nearest volumes by stored label maps, from a look at few of them. The same answer as a look at all.

Groups of slices are bounded first, in all volumes. Then, from the most promising volumes on and more of them each time:
bounds of single slices in groups within the limit, and maps, volume by volume from the lowest bound on. Ties stay in.
Knows prepared panels and selections; nothing about queries' words or how planes are decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from diptych.metrics.label_rows import LabelRows
from diptych.metrics.overlap import Prepared
from diptych.search.label_groups import lowest_of_volumes
from diptych.search.label_scan import SLACK
from diptych.search.label_volumes import Asked, Known, bound_volumes, look_at_volumes
from diptych.search.pool import Pool
from diptych.search.scan import Selection, rank

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Ints = NDArray[np.int64]

FIRST_BATCH = 256
"""Volumes that are looked at first, or four for each match wanted where that is more; sixteen times as many then."""
NOTHING = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class LabelScan:
    """One query against the slices of a selection."""

    panels: Sequence[tuple[float, Prepared]]
    """Weight and what to compare, for each panel."""
    selection: Selection
    heights: NDArray[np.floating] | None
    more: Floats
    """Distances to be added to those by label, of all slices of the selected volumes; empty where there are none."""

    def nearest(self) -> tuple[Ints, Ints, Floats]:
        """The first nearest slice of each of the best volumes, the volumes and their distances, nearest first."""
        selection = self.selection
        count = len(selection.starts)
        keys, slices = np.full(count, np.inf), np.zeros(count, dtype=np.int64)
        left, lowest = selection.volumes, self._lowest(selection.volumes)
        near, size = NOTHING, max(FIRST_BATCH, 4 * selection.top)
        while len(left):
            limit = self._limit(keys, near)
            within = lowest - SLACK <= limit
            left, lowest = left[within], lowest[within]
            order = np.argpartition(lowest, size) if size < len(left) else np.arange(len(left))
            batch, left, lowest = np.sort(left[order[:size]]), left[order[size:]], lowest[order[size:]]
            for asked, mine in self._parts(batch):
                near = self._look(asked, mine, near, keys, slices)
            size *= 16
        return slices[near], near, keys[near]

    def _lowest(self, volumes: Ints) -> Singles:
        """What the distances of some volumes are at least, by their groups."""
        lowest = np.zeros(len(volumes), dtype=np.float32)
        if not len(self.more):
            lowest_of_volumes(self._bounds, volumes, self._rows.groups.firsts, lowest)
        return lowest

    @cached_property
    def _bounds(self) -> Singles:
        """What the distances of each group's slices are at least; with further distances nothing is known of them."""
        bounds = np.zeros(self._rows.groups.room, dtype=np.float32)
        for weight, panel in self.panels if not len(self.more) else ():
            panel.rows.add_group_bounds(panel.asked, weight, bounds)
        return bounds

    def _look(self, asked: tuple[Asked, Asked], volumes: Ints, near: Ints, keys: Floats, slices: Ints) -> Ints:
        """Look at some volumes of one segment, most promising first; returns the nearest volumes so far, in order."""
        selection, panels, limit = self.selection, len(self.panels), self._limit(keys, near)
        local, lengths = self._rows.places.start[volumes], self._lengths[volumes]
        ends = np.cumsum(lengths)
        begins, values, lowest = ends - lengths, np.empty(int(ends[-1])), np.empty(len(volumes))
        promising = np.zeros(len(volumes), dtype=np.int64)
        first, second = asked

        def bound(share: slice) -> None:
            if share.start == share.stop:
                return
            mine, known = values[begins[share.start] : ends[share.stop - 1]], self._known.arrays
            out = mine, lowest[share], promising[share]
            where = volumes[share], local[share], known
            bound_volumes(first.for_bounds, second.for_bounds, panels, *where, limit, *out)

        self._pool.run(bound, lengths)
        order = np.argsort(lowest)
        order = order[: np.searchsorted(lowest, limit + SLACK, side="right", sorter=order)]
        allowed = np.empty(0, dtype=np.bool_) if selection.slices is None else selection.slices
        owners = NOTHING if selection.groups is None else selection.groups

        def look(share: slice) -> None:
            mine = order[share]
            look_at_volumes(
                first.for_maps,
                second.for_maps,
                first.for_bounds,
                panels,
                volumes[mine],
                local[mine],
                self._known.arrays,
                begins[mine],
                promising[mine],
                values,
                allowed,
                owners,
                *self._so_far(keys, near),
                keys,
                slices,
            )

        self._pool.run(look, lengths[order])
        known = np.sort(np.concatenate([near, volumes[order]]))
        found = rank(keys[known], known, selection.groups, selection.top, np.inf)
        return known[np.array(found, dtype=np.int64)]

    def _so_far(self, keys: Floats, near: Ints) -> tuple[Floats, Ints]:
        """Keys and owners of the nearest volumes, with room for as many as are wanted."""
        room, owners = np.full(self.selection.top, np.inf), np.full(self.selection.top, -1, dtype=np.int64)
        room[: len(near)] = keys[near]
        owners[: len(near)] = near if self.selection.groups is None else self.selection.groups[near]
        return room, owners

    def _limit(self, keys: Floats, near: Ints) -> float:
        """The distance of the worst match wanted, among those known so far."""
        return float(keys[near[-1]]) if len(near) == self.selection.top else np.inf

    def _parts(self, volumes: Ints) -> list[tuple[tuple[Asked, Asked], Ints]]:
        """By segment: the query made ready for it, and those of the volumes that it holds."""
        part = self._rows.places.part[volumes]
        return [(self._asked(number), volumes[part == number]) for number in np.unique(part).tolist()]

    def _asked(self, number: int) -> tuple[Asked, Asked]:
        """The panels against the maps of one segment; with one panel it stands twice, and is looked at once."""
        if number not in self._ready:
            all_of_them = [Asked.of(weight, panel.rows.parts[number], panel.asked) for weight, panel in self.panels]
            self._ready[number] = all_of_them[0], all_of_them[-1]
        return self._ready[number]

    @cached_property
    def _ready(self) -> dict[int, tuple[Asked, Asked]]:
        return {}

    @cached_property
    def _known(self) -> Known:
        places = self._rows.places
        return Known(places.begins, self._rows.groups.firsts, self._bounds, self._heights, self._more_begins, self.more)

    @cached_property
    def _more_begins(self) -> Ints:
        """Where each volume begins among the distances to be added; only those of selected volumes mean something."""
        if not len(self.more):
            return NOTHING
        begins, volumes = np.zeros(len(self._lengths), dtype=np.int64), self.selection.volumes
        begins[volumes] = np.append(0, np.cumsum(self._lengths[volumes])[:-1])
        return begins

    @property
    def _rows(self) -> LabelRows:
        """The first panel's maps: all panels' lie alike."""
        return self.panels[0][1].rows

    @property
    def _pool(self) -> Pool:
        return self._rows.pool

    @cached_property
    def _lengths(self) -> Ints:
        return self.selection.stops - self.selection.starts

    @cached_property
    def _heights(self) -> Singles:
        """Without heights slices are far apart."""
        if self.heights is None:
            return np.arange(int(self.selection.stops.max()), dtype=np.float32) * np.float32(1000)
        return np.asarray(self.heights, dtype=np.float32)
