"""`LabelSearch`: exact search with a comparison of decoded label maps, `overlap` or `fusion`.

A slice's distance is averaged with those of the slices a few millimetres above and below it, because errors of single
slices cancel: that finds better matches. Knows the engine's slices and a comparison; not what is compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import count

import numpy as np
from numpy.typing import NDArray

from diptych.metrics.fusion import Fusion
from diptych.metrics.label_planes import Planes
from diptych.metrics.label_pruning import LabelScan
from diptych.metrics.overlap import Overlap
from diptych.search import PANELS, Match, PanelMatch, Query
from diptych.search.query import Filter, panel_weights
from diptych.search.scan import Selection, rank
from diptych.search.score import expand

REACH_MM = 6.0
"""From this far on a slice has no say; chosen on training and validation patients."""


class LabelSearch:
    """Searches the slices of a comparison's engine.

    Args:
        comparison: what tells how far apart two slices are.
        heights: of the slices in millimetres, `[N]`; without them every slice stands for itself alone.
        prunes: look at few slices where stored maps allow that; the answer is the same.
    """

    def __init__(
        self, comparison: Overlap | Fusion, *, heights: NDArray[np.floating] | None = None, prunes: bool = True
    ) -> None:
        self.prunes = prunes
        self.comparison = comparison
        self.engine = comparison.engine
        self.heights = heights

    def search(self, query: Query) -> list[Match]:
        """The best slice of each of the best volumes (or patients), nearest first; the query's metric is not read."""
        weights, selection = self.weights(query), self.engine.select(query)
        asked = {panel: self.comparison.asked(query, panel) for panel in self._known(query, weights)}
        if self.prunes and all(self.comparison.stored(panel) is not None for panel in weights):
            panels = [(weights[panel], self.comparison.prepared(query, panel, asked[panel])) for panel in weights]
            slices, volumes = LabelScan(panels, selection, self.heights, bounded=query.region is None).nearest()
        else:
            slices, volumes = _nearest(self._selected(query, weights, asked, selection), selection)
        return [
            self._match(query, asked, weights, int(found), int(volume))
            for found, volume in zip(slices, volumes, strict=True)
        ]

    def rerank(self, query: Query, candidates: list[Match]) -> list[Match]:
        """Order the volumes of these candidates."""
        allowed = np.zeros(self.engine.index.volumes, dtype=np.bool_)
        allowed[[match.volume for match in candidates]] = True
        return self.search(replace(query, where=replace(query.where, volumes=allowed)))

    def distances(self, query: Query) -> NDArray[np.float64]:
        """From the query to every slice, whatever its filter says, `[N]`."""
        weights, everything = self.weights(query), self.engine.select(replace(query, where=Filter()))
        asked = {panel: self.comparison.asked(query, panel) for panel in weights}
        return self._selected(query, weights, asked, everything)

    def weights(self, query: Query) -> dict[str, float]:
        """What each panel's distance is multiplied by."""
        return panel_weights(query, lambda panel: self.comparison.spread(query, panel))

    def _known(self, query: Query, weights: Mapping[str, float]) -> list[str]:
        """The panels that the query searches by, and the other one where both sides have it: matches tell of it too."""
        known = self.comparison.panels
        return [panel for panel in PANELS if panel in weights or (panel in known and getattr(query, panel) is not None)]

    def _selected(
        self, query: Query, weights: Mapping[str, float], asked: Mapping[str, Planes], selection: Selection
    ) -> NDArray[np.float64]:
        """Distances of the slices that take part, each averaged over its neighbourhood."""
        parts = [
            weight * self.comparison.distances(query, panel, asked[panel], selection)
            for panel, weight in weights.items()
        ]
        distances = np.asarray(np.sum(parts, axis=0))
        if self.heights is None or not len(distances):
            return distances
        starts, stops = selection.starts[selection.volumes], selection.stops[selection.volumes]
        heights = self.heights[expand(starts, stops)]
        return average_neighbours(distances, heights, np.repeat(np.arange(len(starts)), stops - starts))

    def _match(
        self, query: Query, asked: Mapping[str, Planes], weights: Mapping[str, float], found: int, volume: int
    ) -> Match:
        panels = {
            panel: replace(self._compare(query, panel, one, found, volume), weight=weights.get(panel, 0.0))
            for panel, one in asked.items()
        }
        return Match(
            slice=found,
            volume=volume,
            patient=int(self.engine.index.patient_of_volume[volume]),
            distance=sum(panel.weight * panel.distance for panel in panels.values()),
            contributions=np.sum([panel.weight * panel.contributions for panel in panels.values()], axis=0),
            normal=panels.get("normal"),
            abnormal=panels.get("abnormal"),
        )

    def _compare(self, query: Query, panel: str, one: Planes, found: int, volume: int) -> PanelMatch:
        """What a slice and its neighbours have in common with the query, cell by cell."""
        if self.heights is None:
            return self.comparison.compare(query, panel, one, found)
        first, end = self.engine.index.volume_starts[volume : volume + 2].tolist()
        places, shares = neighbours(found - first, self.heights[first:end])
        parts = [self.comparison.compare(query, panel, one, first + place) for place in places.tolist()]
        return PanelMatch(
            float(sum(share * part.distance for share, part in zip(shares, parts, strict=True))),
            np.sum([share * part.contributions for share, part in zip(shares, parts, strict=True)], axis=0),
            1.0,
        )


def _nearest(distances: NDArray[np.float64], selection: Selection) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first nearest slice of each of the best volumes, and the volumes."""
    volumes = selection.volumes
    starts, stops = selection.starts[volumes], selection.stops[volumes]
    if not len(volumes):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    places = expand(starts, stops)
    if selection.slices is not None:
        distances = np.where(selection.slices[places], distances, np.inf)
    begins = np.cumsum(stops - starts) - (stops - starts)
    keys = np.minimum.reduceat(distances, begins)
    order = rank(keys, volumes, selection.groups, selection.top, np.inf)
    best = [begins[k] + np.argmin(distances[begins[k] : begins[k] + stops[k] - starts[k]]) for k in order]
    return places[np.array(best, dtype=np.int64)], volumes[np.array(order, dtype=np.int64)]


def average_neighbours(
    distances: NDArray[np.float64], heights: NDArray[np.floating], volumes: NDArray[np.integer]
) -> NDArray[np.float64]:
    """Each distance averaged over the neighbourhood of its slice, `[n]`; slices of a volume stand in order of height.

    Args:
        distances: `[n]`.
        heights: millimetres, `[n]`.
        volumes: whose slice it is, `[n]`.
    """
    total, weight = np.array(distances, dtype=np.float64), np.ones(len(distances))
    for step in count(1):
        apart = np.abs(heights[step:] - heights[:-step])
        share = np.where(volumes[step:] == volumes[:-step], np.maximum(1 - apart / REACH_MM, 0), 0)
        if not share.any():
            return total / weight
        total[step:] += share * distances[:-step]
        total[:-step] += share * distances[step:]
        weight[step:] += share
        weight[:-step] += share
    raise AssertionError("a volume ends somewhere")


def neighbours(place: int, heights: NDArray[np.floating]) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Slices with a say in the distance of the one in that place of its volume, and their shares, which add up to 1."""
    weights = np.maximum(1 - np.abs(heights - heights[place]) / REACH_MM, 0).astype(np.float64)
    places = np.flatnonzero(weights)
    return places, weights[places] / weights.sum()
