"""`LabelScan`: the nearest volumes by stored label maps, from a look at few of them. The same answer as a look at all.

Steps, each over what the one before left: bounds by area for every slice; a few volumes exactly, for a limit; averages
of bounds over neighbours; bounds by blocks; then maps, volume by volume from the lowest bound on, while the limit
falls. Ties stay in. Knows prepared panels and selections; nothing about queries' words or how planes are decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from diptych.metrics.overlap import Prepared
from diptych.search.label_scan import SLACK, average_ranges, mark_neighbours
from diptych.search.scan import Selection, rank
from diptych.search.score import expand

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SEEDS = 2
"""Volumes per match wanted that are looked at first."""
FIRST_BATCH = 16
"""Volumes that are looked at between two limits; twice as many each time."""


@dataclass(frozen=True, eq=False)
class LabelScan:
    """One query against the slices of a selection."""

    panels: Sequence[tuple[float, Prepared]]
    """Weight and what to compare, for each panel."""
    selection: Selection
    heights: NDArray[np.floating] | None
    bounded: bool = True
    """Whether areas bound distances: only where there is no region."""

    def nearest(self) -> tuple[Ints, Ints]:
        """The first nearest slice of each of the best volumes, and the volumes, nearest first."""
        selection = self.selection
        count = len(selection.starts)
        keys, slices = np.full(count, np.inf), np.zeros(count, dtype=np.int64)
        volumes = selection.volumes
        if not len(volumes):
            return volumes, volumes
        bounds, lowest = self._area_bounds(volumes)
        seeds = volumes[np.argsort(lowest, kind="stable")[: SEEDS * selection.top]]
        self._look(np.sort(seeds), None, np.inf, keys, slices)
        limit = self._limit(keys)
        left = volumes[(lowest <= limit) & ~np.isin(volumes, seeds)]
        self._look_at_rest(left, bounds, limit, keys, slices)
        order = rank(keys, np.arange(count), selection.groups, selection.top, np.inf)
        best = np.array(order, dtype=np.int64)
        return slices[best], best

    def _area_bounds(self, volumes: Ints) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Of all slices, and the lowest of each volume."""
        bounds = np.zeros(int(self.selection.stops.max()), dtype=np.float32)
        lowest = np.zeros(len(volumes), dtype=np.float32)
        for weight, panel in self.panels if self.bounded else ():
            lowest = panel.rows.add_area_bounds(panel.asked, weight * panel.label_share, volumes, bounds)
        return bounds, lowest - np.float32(SLACK)

    def _look_at_rest(
        self, volumes: Ints, bounds: NDArray[np.float32], limit: float, keys: Floats, slices: Ints
    ) -> None:
        """Bounds that cost more, for fewer and fewer, and then the maps of those that are still in."""
        values = bounds[self._flat(volumes)[0]].astype(np.float64)
        volumes, values = self._within(limit, volumes, values)
        volumes, values = self._within(limit, volumes, self._by_blocks(limit, volumes, values))
        if not len(volumes):
            return
        _, ends, heights = self._flat(volumes)
        averaged = self._averaged(values, heights, ends) - SLACK
        lowest = np.minimum.reduceat(averaged, np.append(0, ends[:-1]))
        begins = np.append(0, np.cumsum(self._lengths(volumes)))
        order = np.argsort(lowest, kind="stable")
        size = FIRST_BATCH
        while len(order) and lowest[order[0]] <= limit:
            batch, order = np.sort(order[:size]), order[size:]
            known = np.concatenate([averaged[begins[one] : begins[one + 1]] for one in batch.tolist()])
            self._look(volumes[batch], known, limit, keys, slices)
            limit = self._limit(keys)
            order = order[lowest[order] <= limit]
            size *= 2

    def _within(self, limit: float, volumes: Ints, values: Floats) -> tuple[Ints, Floats]:
        """Volumes with a slice whose bound, averaged over its neighbours, is within the limit, and their bounds."""
        if not len(volumes):
            return volumes, values
        _, ends, heights = self._flat(volumes)
        averaged = self._averaged(values, heights, ends) - SLACK
        inside = np.minimum.reduceat(averaged, np.append(0, ends[:-1])) <= limit
        return volumes[inside], values[np.repeat(inside, self._lengths(volumes))]

    def _by_blocks(self, limit: float, volumes: Ints, values: Floats) -> Floats:
        """Better bounds for slices that have a say in an average within the limit."""
        if not len(volumes):
            return values
        rows, ends, heights = self._flat(volumes)
        needed = np.zeros(len(rows), dtype=np.bool_)
        mark_neighbours(self._averaged(values, heights, ends) - SLACK, limit, heights, ends, needed)
        near = rows[needed]
        total = np.zeros(len(near))
        for weight, panel in self.panels:
            total += weight * panel.label_share * panel.rows.block_bounds(panel.asked, near)
        values[needed] = np.maximum(values[needed], total)
        return values

    def _look(self, volumes: Ints, bounds: Floats | None, limit: float, keys: Floats, slices: Ints) -> None:
        """The best slice of some volumes, among those within the limit."""
        rows, ends, heights = self._flat(volumes)
        needed = np.ones(len(rows), dtype=np.bool_)
        if bounds is not None:
            needed[:] = False
            mark_neighbours(bounds, limit, heights, ends, needed)
        near = rows[needed]
        values = np.full(len(rows), np.inf)
        values[needed] = np.sum([weight * panel.exact(near) for weight, panel in self.panels], axis=0)
        distances = self._averaged(values, heights, ends)
        if self.selection.slices is not None:
            distances[~self.selection.slices[rows]] = np.inf
        begins = np.append(0, ends[:-1])
        keys[volumes] = np.minimum.reduceat(distances, begins)
        for volume, begin, end in zip(volumes.tolist(), begins.tolist(), ends.tolist(), strict=True):
            slices[volume] = rows[begin + int(np.argmin(distances[begin:end]))]

    def _limit(self, keys: Floats) -> float:
        """The distance of the worst match wanted, among those known so far."""
        selection = self.selection
        order = rank(keys, np.arange(len(keys)), selection.groups, selection.top, np.inf)
        return float(keys[order[-1]]) if len(order) == selection.top else np.inf

    def _averaged(self, values: Floats, heights: NDArray[np.float32], ends: Ints) -> Floats:
        if self.heights is None:
            return values.copy()
        out = np.empty(len(values))
        average_ranges(values, heights, ends, out)
        return out

    def _flat(self, volumes: Ints) -> tuple[Ints, Ints, NDArray[np.float32]]:
        """All slices of some volumes, where each volume ends among them, and their heights."""
        rows = expand(self.selection.starts[volumes], self.selection.stops[volumes])
        return rows, np.cumsum(self._lengths(volumes)), self._heights[rows]

    def _lengths(self, volumes: Ints) -> Ints:
        return self.selection.stops[volumes] - self.selection.starts[volumes]

    @cached_property
    def _heights(self) -> NDArray[np.float32]:
        """Without heights slices are far apart."""
        if self.heights is None:
            return np.arange(int(self.selection.stops.max()), dtype=np.float32) * np.float32(1000)
        return np.asarray(self.heights, dtype=np.float32)
