"""`LabelSearch`: exact search with a comparison of decoded label maps, `overlap` or `fusion`.

A slice's distance is averaged with those of the slices a few millimetres above and below it, because errors of single
slices cancel: that finds better matches. Knows the engine's slices and a comparison; not what is compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from diptych.metrics.fusion import Fusion, candidates
from diptych.metrics.label_planes import Planes
from diptych.metrics.label_pruning import LabelScan
from diptych.metrics.overlap import Overlap
from diptych.search import PANELS, Match, PanelMatch, Query
from diptych.search.label_scan import REACH_MM
from diptych.search.query import Filter, panel_weights, panels_of
from diptych.search.scan import Selection, rank
from diptych.search.score import expand

Ints = NDArray[np.int64]


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

    @property
    def overlap(self) -> Overlap:
        """What compares labels."""
        return self.comparison.overlap if isinstance(self.comparison, Fusion) else self.comparison

    def search(self, query: Query) -> list[Match]:
        """The best slice of each of the best volumes (or patients), nearest first; the query's metric is not read."""
        return self.search_batch([query])[0]

    def search_batch(self, queries: Sequence[Query]) -> list[list[Match]]:
        """The same for many queries, which are decoded together."""
        needs = [self._known(query, panels_of(query.by)) for query in queries]
        asked: list[dict[str, Planes]] = [{} for _ in queries]
        for panel in PANELS:
            mine = [place for place, panels in enumerate(needs) if panel in panels]
            if mine:
                decoded = self.comparison.asked([queries[place] for place in mine], panel)
                for place, one in zip(mine, decoded, strict=True):
                    asked[place][panel] = one
        return [self._search(query, one) for query, one in zip(queries, asked, strict=True)]

    def _search(self, query: Query, asked: Mapping[str, Planes]) -> list[Match]:
        selection = self.engine.select(query)
        if isinstance(self.comparison, Fusion):  # orders those that overlap best
            wide = replace(selection, top=candidates(query.top))
            chosen = self._nearest(query, asked, wide, self.overlap)[1]
            selection = replace(selection, volumes=np.sort(chosen))
        slices, volumes, keys = self._nearest(query, asked, selection, self.comparison)
        matches = self._matches(query, asked, slices, volumes)
        return [replace(match, key=key) for match, key in zip(matches, keys.tolist(), strict=True)]

    def _nearest(
        self, query: Query, asked: Mapping[str, Planes], selection: Selection, comparison: Overlap | Fusion
    ) -> tuple[Ints, Ints, NDArray[np.float64]]:
        """The first nearest slice of each of the best volumes, the volumes and their distances, nearest first."""
        weights = panel_weights(query, lambda panel: comparison.spread(query, panel))
        overlap = self.overlap
        if not self.prunes or any(overlap.stored(panel) is None for panel in weights):
            return _nearest(self._selected(query, weights, asked, selection, comparison), selection)
        panels = [
            (weight * comparison.label_rate(query, panel), overlap.prepared(query, panel, asked[panel]))
            for panel, weight in weights.items()
        ]
        more = comparison.more(query, weights, selection)
        return LabelScan(panels, selection, self.heights, more).nearest()

    def rerank(self, query: Query, candidates: list[Match]) -> list[Match]:
        """Order the volumes of these candidates."""
        allowed = np.zeros(self.engine.index.volumes, dtype=np.bool_)
        allowed[[match.volume for match in candidates]] = True
        return self.search(replace(query, where=replace(query.where, volumes=allowed)))

    def distances(self, query: Query) -> NDArray[np.float64]:
        """From the query to every slice, whatever its filter says, `[N]`."""
        weights, everything = self.weights(query), self.engine.select(replace(query, where=Filter()))
        asked = {panel: self.comparison.asked([query], panel)[0] for panel in weights}
        return self._selected(query, weights, asked, everything, self.comparison)

    def weights(self, query: Query) -> dict[str, float]:
        """What each panel's distance is multiplied by."""
        return panel_weights(query, lambda panel: self.comparison.spread(query, panel))

    def _known(self, query: Query, weights: Collection[str]) -> list[str]:
        """The panels that the query searches by, and the other one where both sides have it: matches tell of it too."""
        known = self.comparison.panels
        return [panel for panel in PANELS if panel in weights or (panel in known and getattr(query, panel) is not None)]

    def _selected(
        self,
        query: Query,
        weights: Mapping[str, float],
        asked: Mapping[str, Planes],
        selection: Selection,
        comparison: Overlap | Fusion,
    ) -> NDArray[np.float64]:
        """Distances of the slices that take part, each averaged over its neighbourhood."""
        starts, stops = selection.starts[selection.volumes], selection.stops[selection.volumes]
        more = comparison.more(query, weights, selection)
        distances = more if len(more) else np.zeros(int((stops - starts).sum()))
        for panel, weight in weights.items():
            rate = weight * comparison.label_rate(query, panel)
            distances = distances + rate * self.overlap.distances(query, panel, asked[panel], selection)
        if self.heights is None or not len(distances):
            return distances
        heights = self.heights[expand(starts, stops)]
        return average_neighbours(distances, heights, np.repeat(np.arange(len(starts)), stops - starts))

    def _matches(self, query: Query, asked: Mapping[str, Planes], slices: Ints, volumes: Ints) -> list[Match]:
        """What the slices found have in common with the query, cell by cell, all in one go."""
        if not len(slices):
            return []
        weights = self.weights(query)
        near, owner, shares = self._neighbourhoods(slices, volumes)
        panels: dict[str, list[PanelMatch]] = {}
        for panel, one in asked.items():
            distances, cells = self.comparison.compare(query, panel, one, near)
            total, parts = np.zeros(len(slices)), np.zeros((len(slices), *cells.shape[1:]))
            np.add.at(total, owner, shares * distances)
            np.add.at(parts, owner, shares[:, None, None] * cells)
            weight = weights.get(panel, 0.0)
            panels[panel] = [PanelMatch(d, p, weight) for d, p in zip(total.tolist(), parts, strict=True)]
        return [
            Match(
                slice=int(found),
                volume=int(volume),
                patient=int(self.engine.index.patient_of_volume[volume]),
                distance=sum(each[place].weight * each[place].distance for each in panels.values()),
                contributions=np.sum(
                    [each[place].weight * each[place].contributions for each in panels.values()], axis=0
                ),
                normal=panels["normal"][place] if "normal" in panels else None,
                abnormal=panels["abnormal"][place] if "abnormal" in panels else None,
            )
            for place, (found, volume) in enumerate(zip(slices.tolist(), volumes.tolist(), strict=True))
        ]

    def _neighbourhoods(self, slices: Ints, volumes: Ints) -> tuple[Ints, Ints, NDArray[np.float64]]:
        """Slices with a say in the distances of those found, whose neighbours they are, and their shares."""
        if self.heights is None:
            return slices, np.arange(len(slices)), np.ones(len(slices))
        near, shares = [], []
        for found, volume in zip(slices.tolist(), volumes.tolist(), strict=True):
            first, end = self.engine.index.volume_starts[volume : volume + 2].tolist()
            places, share = neighbours(found - first, self.heights[first:end])
            near.append(first + places)
            shares.append(share)
        owner = np.repeat(np.arange(len(slices)), [len(share) for share in shares])
        return np.concatenate(near), owner, np.concatenate(shares)


def _nearest(
    distances: NDArray[np.float64], selection: Selection
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """The first nearest slice of each of the best volumes, the volumes and their distances."""
    volumes = selection.volumes
    starts, stops = selection.starts[volumes], selection.stops[volumes]
    if not len(volumes):
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
    places = expand(starts, stops)
    if selection.slices is not None:
        distances = np.where(selection.slices[places], distances, np.inf)
    begins = np.cumsum(stops - starts) - (stops - starts)
    keys = np.minimum.reduceat(distances, begins)
    order = rank(keys, volumes, selection.groups, selection.top, np.inf)
    best = [begins[k] + np.argmin(distances[begins[k] : begins[k] + stops[k] - starts[k]]) for k in order]
    found = np.array(order, dtype=np.int64)
    return places[np.array(best, dtype=np.int64)], volumes[found], keys[found]


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
    shares = list(_shares(heights, volumes))
    for step, share in enumerate(shares, start=1):
        total[step:] += share * distances[:-step]
        weight[step:] += share
    for step, share in enumerate(shares, start=1):
        total[:-step] += share * distances[step:]
        weight[:-step] += share
    return total / weight


def _shares(heights: NDArray[np.floating], volumes: NDArray[np.integer]) -> Iterator[NDArray[np.floating]]:
    """The say that each slice has in the average of the one so many places after it, for 1, 2, … places."""
    for step in range(1, len(heights)):
        apart = np.abs(heights[step:] - heights[:-step])
        share = np.where(volumes[step:] == volumes[:-step], np.maximum(1 - apart / REACH_MM, 0), 0)
        if not share.any():
            return
        yield share


def neighbours(place: int, heights: NDArray[np.floating]) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Slices with a say in the distance of the one in that place of its volume, and their shares, which add up to 1."""
    weights = np.maximum(1 - np.abs(heights - heights[place]) / REACH_MM, 0).astype(np.float64)
    places = np.flatnonzero(weights)
    return places, weights[places] / weights.sum()
