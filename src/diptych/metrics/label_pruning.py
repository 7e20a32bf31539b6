"""`LabelScan`: the nearest volumes by stored label maps, from a look at few of them. The same answer as a look at all.

Steps, each over what the one before left: bounds of groups of slices; the most promising slices exactly, for a limit;
bounds of single slices in groups within the limit, averaged over neighbours; then maps, volume by volume from the
lowest bound on, while the limit falls. Ties stay in. With a region, every slice is bounded by its blocks. Knows
prepared panels and selections; nothing about queries' words or how planes are decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from diptych.metrics.overlap import Prepared
from diptych.search.label_groups import admit, average_bounds, lowest_of_volumes
from diptych.search.label_scan import SLACK, average_ranges, best_places, mark_neighbours
from diptych.search.scan import Selection, rank
from diptych.search.score import expand

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Ints = NDArray[np.int64]

SEEDS = 256
"""Volumes whose slices are bounded first; four for each match wanted, where that is more."""
FIRST_BATCH = 32
"""Volumes that are looked at between two limits; twice as many each time."""


@dataclass(frozen=True, eq=False)
class Bounds:
    """What the distances of some volumes are at least."""

    volumes: Ints
    lowest: Singles
    """Of any slice of each volume."""
    averaged: Singles
    """Of each slice of these volumes, in the archive's order; infinite for some that are beyond the limit."""
    values: Singles
    """The same before they were averaged over neighbours."""


@dataclass(frozen=True, eq=False)
class LabelScan:
    """One query against the slices of a selection."""

    panels: Sequence[tuple[float, Prepared]]
    """Weight and what to compare, for each panel."""
    selection: Selection
    heights: NDArray[np.floating] | None

    def nearest(self) -> tuple[Ints, Ints, Floats]:
        """The first nearest slice of each of the best volumes, the volumes and their distances, nearest first."""
        selection = self.selection
        count = len(selection.starts)
        keys, slices = np.full(count, np.inf), np.zeros(count, dtype=np.int64)
        if not len(selection.volumes):
            return selection.volumes, selection.volumes, np.empty(0)
        if self.panels[0][1].asked.region is not None:
            self._look_at_all(self._by_blocks(), keys, slices)
        else:
            self._look_at_groups(keys, slices)
        order = rank(keys, np.arange(count), selection.groups, selection.top, np.inf)
        best = np.array(order, dtype=np.int64)
        return slices[best], best, keys[best]

    def _look_at_groups(self, keys: Floats, slices: Ints) -> None:
        """Bounds of groups, a limit from the most promising, bounds of slices, and maps."""
        volumes = self.selection.volumes
        groups = self.panels[0][1].rows.groups
        bounds = np.zeros(int(groups.firsts[-1]), dtype=np.float32)
        for weight, panel in self.panels:
            panel.rows.add_group_bounds(panel.asked, weight, volumes, bounds)
        lowest = np.empty(len(volumes), dtype=np.float32)
        lowest_of_volumes(bounds, volumes, groups.firsts, lowest)
        wanted = min(max(SEEDS, 4 * self.selection.top), len(volumes))
        promising = np.sort(volumes[np.argpartition(lowest, wanted - 1)[:wanted]])
        seeds = self._by_slices(promising, bounds, np.inf)
        nearest = np.argsort(seeds.lowest, kind="stable")[: 2 * self.selection.top]
        limit = self._first_limit(promising[np.sort(nearest)], seeds)
        self._look_at_all(self._by_slices(volumes[lowest - SLACK <= limit], bounds, limit), keys, slices, limit)

    def _first_limit(self, volumes: Ints, bounds: Bounds) -> float:
        """No match wanted is further than the worst of these volumes, each by its most promising slice alone."""
        rows, ends, heights = self._flat(volumes)
        promising = bounds.averaged[rows].astype(np.float64)
        if self.selection.slices is not None:
            promising[~self.selection.slices[rows]] = np.inf
        lowest, places = np.empty(len(ends)), np.empty(len(ends), dtype=np.int64)
        best_places(promising, ends, lowest, places)
        excess = np.full(len(rows), np.inf)
        excess[places[np.isfinite(lowest)]] = 0.0
        needed = np.zeros(len(rows), dtype=np.bool_)
        mark_neighbours(excess, 0.0, heights, ends, needed)
        values = np.full(len(rows), np.inf)
        values[needed] = self._exact(rows[needed])
        keys = np.full(len(self.selection.starts), np.inf)
        keys[volumes] = np.where(np.isfinite(lowest), self._averaged(values, heights, ends)[places], np.inf)
        return self._limit(keys)

    def _by_slices(self, volumes: Ints, bounds: Singles, limit: float) -> Bounds:
        """Bounds of single slices, averaged over neighbours, where groups are within the limit."""
        rows, limit = self.panels[0][1].rows, limit + SLACK
        firsts, begins = rows.groups.firsts, rows.places.begins
        admitted = np.zeros(len(bounds), dtype=np.bool_)
        admit(bounds, limit, self._heights, volumes, begins, firsts, admitted)
        values, averaged = np.zeros(len(rows), dtype=np.float32), self._averages
        for weight, panel in self.panels:
            panel.rows.add_slice_bounds(panel.asked, weight, volumes, admitted, values)
        lowest = np.empty(len(volumes), dtype=np.float32)
        average_bounds(values, bounds, admitted, self._heights, volumes, begins, firsts, averaged, lowest)
        return Bounds(volumes, lowest, averaged, values)

    def _by_blocks(self) -> Bounds:
        """The same of all slices from their blocks, within a region."""
        volumes = self.selection.volumes
        rows, ends, heights = self._flat(volumes)
        total = np.zeros(len(rows))
        for weight, panel in self.panels:
            total += weight * panel.rows.block_bounds(panel.asked, rows)
        averaged, values = self._averages, np.zeros(len(self._averages), dtype=np.float32)
        averaged[rows], values[rows] = self._averaged(total, heights, ends), total
        return Bounds(volumes, np.minimum.reduceat(averaged[rows], np.append(0, ends[:-1])), averaged, values)

    def _look_at_all(self, bounds: Bounds, keys: Floats, slices: Ints, limit: float = np.inf) -> None:
        """Volumes from the lowest bound on, while they may be among the matches."""
        order = np.argsort(bounds.lowest, kind="stable")
        size = FIRST_BATCH + self.selection.top
        while len(order) and bounds.lowest[order[0]] - SLACK <= limit:
            batch, order = np.sort(order[:size]), order[size:]
            limits = np.full(len(batch), limit)
            self._look(
                Bounds(bounds.volumes[batch], bounds.lowest[batch], bounds.averaged, bounds.values),
                limits,
                keys,
                slices,
            )
            limit = min(limit, self._limit(keys))
            order = order[bounds.lowest[order] - SLACK <= limit]
            size *= 2

    def _look(self, bounds: Bounds, limits: NDArray[np.floating], keys: Floats, slices: Ints) -> None:
        """The best slice of each volume among those with a bound within its limit, by the maps themselves.

        First slices that are within their limit, then neighbours of those that still are.
        """
        rows, ends, heights = self._flat(bounds.volumes)
        limit_of_row = np.repeat(limits, self._lengths(bounds.volumes))
        known = bounds.averaged[rows] - limit_of_row <= SLACK
        values = bounds.values[rows].astype(np.float64)
        values[known] = self._exact(rows[known])
        excess = self._averaged(values, heights, ends) - limit_of_row
        excess[~known] = np.inf
        needed = np.zeros(len(rows), dtype=np.bool_)
        mark_neighbours(excess, SLACK, heights, ends, needed)
        rest = needed & ~known
        values[rest] = self._exact(rows[rest])
        distances = self._averaged(values, heights, ends)
        distances[excess > SLACK] = np.inf  # what may still rest on bounds is beyond the limit
        if self.selection.slices is not None:
            distances[~self.selection.slices[rows]] = np.inf
        lowest, places = np.empty(len(ends)), np.empty(len(ends), dtype=np.int64)
        best_places(distances, ends, lowest, places)
        keys[bounds.volumes], slices[bounds.volumes] = lowest, rows[places]

    def _exact(self, rows: Ints) -> Floats:
        return np.asarray(np.sum([weight * panel.exact(rows) for weight, panel in self.panels], axis=0))

    def _limit(self, keys: Floats) -> float:
        """The distance of the worst match wanted, among those known so far."""
        selection = self.selection
        order = rank(keys, np.arange(len(keys)), selection.groups, selection.top, np.inf)
        return float(keys[order[-1]]) if len(order) == selection.top else np.inf

    def _averaged(self, values: Floats, heights: Singles, ends: Ints) -> Floats:
        if self.heights is None:
            return values.copy()
        out = np.empty(len(values))
        average_ranges(values, heights, ends, out)
        return out

    def _flat(self, volumes: Ints) -> tuple[Ints, Ints, Singles]:
        """All slices of some volumes, where each volume ends among them, and their heights."""
        rows = expand(self.selection.starts[volumes], self.selection.stops[volumes])
        return rows, np.cumsum(self._lengths(volumes)), self._heights[rows]

    def _lengths(self, volumes: Ints) -> Ints:
        return self.selection.stops[volumes] - self.selection.starts[volumes]

    @cached_property
    def _averages(self) -> Singles:
        """Room for a bound of every slice; only those of volumes that were bounded mean something."""
        return np.empty(int(self.selection.stops.max()), dtype=np.float32)

    @cached_property
    def _heights(self) -> Singles:
        """Without heights slices are far apart."""
        if self.heights is None:
            return np.arange(int(self.selection.stops.max()), dtype=np.float32) * np.float32(1000)
        return np.asarray(self.heights, dtype=np.float32)
