"""`OverlapSearch`: slices ordered by how well the label maps overlap that their codes decode to.

A slice's distance is averaged with those of the slices a few millimetres above and below it,
because errors of single slices cancel: that finds better matches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count

import numpy as np
from numpy.typing import NDArray

from diptych.errors import UsageError
from diptych.metrics.label_planes import Planes, count_bits, pack_bits, row_distances, unpack_bits
from diptych.search import Match, PanelMatch, Query, SearchEngine
from diptych.search.scan import Selection, rank
from diptych.search.score import expand

METRIC = "overlap"
SPREAD_PAIRS = 4096

DecodePlanes = Callable[[str, NDArray[np.integer]], Planes]
"""A panel and ids `[n, h, w]` to their planes."""


class OverlapSearch:
    """Searches the slices of an engine's index by their planes.

    Args:
        engine: knows the slices.
        planes: what they decode to, by panel.
        decode: makes the planes of a query.
        heights: of the slices in millimetres, `[N]`; without them every slice stands for itself alone.
    """

    def __init__(
        self,
        engine: SearchEngine,
        planes: Mapping[str, Planes],
        decode: DecodePlanes,
        *,
        heights: NDArray[np.floating] | None = None,
    ) -> None:
        self.engine = engine
        self.planes = planes
        self.decode = decode
        self.heights = heights
        self._areas: dict[tuple[str, bytes], NDArray[np.int32]] = {}
        self._spreads: dict[tuple[str, bytes], float] = {}

    def search(self, query: Query, *, given: Mapping[str, Planes] | None = None) -> list[Match]:
        """The best slice of each of the best volumes (or patients), nearest first.

        Args:
            query: as for `SearchEngine.search`; its metric is not looked at.
            given: planes of the query itself by panel, for label maps that no code stands for.
        """
        asked = self._asked(query, given or {})
        selection = self.engine.select(query)
        factors = self._factors(query)
        total = sum(factor * self._distances(query, panel, asked, selection) for panel, factor in factors.items())
        slices, volumes = _nearest(self._steadied(np.asarray(total), selection), selection)
        return [
            self._match(query, asked, factors, int(found), int(volume))
            for found, volume in zip(slices, volumes, strict=True)
        ]

    def rerank(self, query: Query, *, candidates: int, given: Mapping[str, Planes] | None = None) -> list[Match]:
        """Let the query's own metric choose the `candidates` best volumes, and order those by overlap."""
        if candidates < query.top:
            raise UsageError(f"rerank {candidates}: re-rank at least as many volumes as are wanted, {query.top}")
        coarse = self.engine.search(replace(query, top=candidates))
        allowed = np.zeros(self.engine.index.volumes, dtype=np.bool_)
        allowed[[match.volume for match in coarse]] = True
        return self.search(replace(query, where=replace(query.where, volumes=allowed)), given=given)

    def spread(self, query: Query, panel: str) -> float:
        """Standard deviation of the distance between random slices: what a search by both divides by."""
        key = panel, self._region_key(query)
        if key not in self._spreads:
            planes, count = self.planes[panel], len(self.engine.index)
            one, other = np.random.default_rng(0).integers(count, size=(2, SPREAD_PAIRS))
            region = self._pixels(query, planes)
            found = pair_distances(planes.take(one).within(region), planes.take(other).within(region))
            self._spreads[key] = float(np.std(found)) or 1.0
        return self._spreads[key]

    def _factors(self, query: Query) -> dict[str, float]:
        if query.by != "both":
            return {query.by: 1.0}
        shares = {"normal": query.weight, "abnormal": 1 - query.weight}
        if query.combine == "paper":
            return dict.fromkeys(shares, 1.0)
        return {panel: share / self.spread(query, panel) for panel, share in shares.items()}

    def _asked(self, query: Query, given: Mapping[str, Planes]) -> dict[str, Planes]:
        """The query's planes within its region, by panel: those it searches by, and the other where it is known."""
        for panel in self.engine.panels(query):
            if panel not in self.planes:
                raise UsageError(f"metric {METRIC} by {panel}: this model has no anatomy head; search by abnormal")
            if panel not in given:
                self.engine.ids(query, panel)
        asked = {}
        for panel, planes in self.planes.items():
            if panel in given:
                asked[panel] = given[panel].within(self._pixels(query, planes))
            elif getattr(query, panel) is not None:
                ids = np.asarray(getattr(query, panel))[None]
                asked[panel] = self.decode(panel, ids).within(self._pixels(query, planes))
        return asked

    def _distances(
        self, query: Query, panel: str, asked: Mapping[str, Planes], selection: Selection
    ) -> NDArray[np.float64]:
        """Distances of all slices of the volumes that take part, one volume after the other."""
        one, planes, areas = asked[panel], self.planes[panel], self._areas_within(query, panel)
        starts, stops = selection.starts[selection.volumes], selection.stops[selection.volumes]
        ends = np.cumsum(stops - starts)
        out = np.empty(int(ends[-1]) if len(ends) else 0)

        def work(share: slice) -> None:
            first = int(ends[share.start - 1]) if share.start else 0
            row_distances(one.words[0], one.areas[0], planes.words, areas, starts[share], stops[share], out[first:])

        self.engine.pool.run(work, stops - starts)
        return out

    def _steadied(self, distances: NDArray[np.float64], selection: Selection) -> NDArray[np.float64]:
        """The distances of the slices that take part, each averaged over its neighbourhood."""
        if self.heights is None or not len(distances):
            return distances
        starts, stops = selection.starts[selection.volumes], selection.stops[selection.volumes]
        heights = self.heights[expand(starts, stops)]
        return steadied(distances, heights, np.repeat(np.arange(len(starts)), stops - starts))

    def _areas_within(self, query: Query, panel: str) -> NDArray[np.int32]:
        if query.region is None:
            return self.planes[panel].areas
        key = panel, self._region_key(query)
        if key not in self._areas:
            self._areas.clear()  # one region at a time: these are as many numbers as the archive has slices
            region = self._pixels(query, self.planes[panel])
            self._areas[key] = count_bits(self.planes[panel].words, pack_bits(region))
        return self._areas[key]

    def _match(
        self, query: Query, asked: Mapping[str, Planes], factors: dict[str, float], found: int, volume: int
    ) -> Match:
        panels = {panel: self._compare_around(query, panel, one, found, volume) for panel, one in asked.items()}
        parts = np.sum([factor * panels[panel].contributions for panel, factor in factors.items()], axis=0)
        return Match(
            slice=found,
            volume=volume,
            patient=int(self.engine.index.patient_of_volume[volume]),
            distance=sum(factor * panels[panel].distance for panel, factor in factors.items()),
            contributions=parts,
            normal=panels.get("normal"),
            abnormal=panels.get("abnormal"),
        )

    def _compare_around(self, query: Query, panel: str, one: Planes, found: int, volume: int) -> PanelMatch:
        """What a slice and its neighbours have in common with the query, cell by cell."""
        if self.heights is None:
            return self._compare(query, panel, one, found)
        first, end = self.engine.index.volume_starts[volume : volume + 2].tolist()
        places, shares = neighbours(found - first, self.heights[first:end])
        parts = [self._compare(query, panel, one, first + place) for place in places.tolist()]
        return PanelMatch(
            float(sum(share * part.distance for share, part in zip(shares, parts, strict=True))),
            np.sum([share * part.contributions for share, part in zip(shares, parts, strict=True)], axis=0),
        )

    def _compare(self, query: Query, panel: str, one: Planes, found: int) -> PanelMatch:
        other = self.planes[panel].take([found]).within(self._pixels(query, self.planes[panel]))
        both = one.areas[0] + other.areas[0]  # [C]
        differing = unpack_bits(one.words[0] ^ other.words[0], one.grid)  # [C, H, W]
        weights = np.where(both > 0, 1 / np.maximum(both, 1), 0) / max(np.count_nonzero(both), 1)
        pixels = np.tensordot(weights, differing, axes=1)  # [H, W]
        return PanelMatch(float(pair_distances(one, other)[0]), one.gather(pixels, self.engine.index.grid))

    def _pixels(self, query: Query, planes: Planes) -> NDArray[np.bool_]:
        """The query's region in pixels of the planes."""
        return planes.scatter(self.engine.region(query).reshape(self.engine.index.grid))

    def _region_key(self, query: Query) -> bytes:
        return self.engine.region(query).tobytes()


def pair_distances(one: Planes, other: Planes) -> NDArray[np.float64]:
    """1 - mean Dice between two lists of label maps, pair by pair; the plain form of `row_distances`."""
    both = one.areas + other.areas  # [n, C]
    present = np.count_nonzero(both, axis=1)
    dice = 2 * count_bits(one.words & other.words) / np.maximum(both, 1)
    return np.where(present > 0, 1 - dice.sum(axis=1) / np.maximum(present, 1), 0.0)


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


REACH_MM = 6.0
"""From this far on a slice has no say; chosen on training and validation patients."""


def steadied(
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
