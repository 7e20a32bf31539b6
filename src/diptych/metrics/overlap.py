"""The metric `overlap`: how well the label maps overlap that two slices' codes decode to.

`Overlap` compares; `label_search.py` searches with it. Knows the engine's slices and their planes, panel by panel;
nothing about neighbours, ranking or how planes were decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diptych.compiling import compiled
from diptych.metrics.label_planes import Planes, count_bits, pack_bits, row_distances
from diptych.metrics.label_rows import LabelRows
from diptych.search import Query, SearchEngine
from diptych.search.label_maps import Levels
from diptych.search.label_scan import LabelQuery
from diptych.search.scan import Selection
from diptych.search.score import expand

METRIC = "overlap"
SPREAD_PAIRS = 4096
TOGETHER = 32
"""Queries that are decoded at once."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
DecodePlanes = Callable[[str, NDArray[np.integer]], Planes]
"""A panel and ids `[n, h, w]` to their planes."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """One panel of a query against stored label maps."""

    rows: LabelRows
    asked: LabelQuery

    def exact(self, rows: Ints) -> Floats:
        """The panel's distance of some slices."""
        return self.rows.exact(self.asked, rows)


class Overlap:
    """Compares a query with the slices of an engine's index by their planes.

    Args:
        engine: knows the slices.
        planes: what they decode to, by panel.
        decode: makes the planes of a query.
    """

    def __init__(self, engine: SearchEngine, planes: Mapping[str, Planes | LabelRows], decode: DecodePlanes) -> None:
        self.engine = engine
        self.planes = planes
        self.decode = decode
        self._areas: dict[str, tuple[bytes, NDArray[np.int32]]] = {}
        self._spreads: dict[tuple[str, bytes], float] = {}

    @property
    def panels(self) -> tuple[str, ...]:
        """Panels that can be compared."""
        return tuple(self.planes)

    def asked(self, queries: Sequence[Query], panel: str) -> list[Planes]:
        """The queries' own planes, each within its region; what is not known is decoded together."""
        return [
            one if query.region is None else one.within(self._pixels(query, panel))
            for query, one in zip(queries, self._decoded(queries, panel), strict=True)
        ]

    def decoded(self, query: Query, panel: str) -> Planes:
        """The query's own planes: stored, where it is an archived slice, or decoded now."""
        return self._decoded([query], panel)[0]

    def _decoded(self, queries: Sequence[Query], panel: str) -> list[Planes]:
        found: dict[int, Planes] = {}
        for place, query in enumerate(queries):
            known = self._archived(query, panel) if query.decoded is None else query.decoded[panel]
            if known is not None:
                found[place] = known
        unknown = [place for place in range(len(queries)) if place not in found]
        grids = [self.engine.ids(queries[place], panel).reshape(self.engine.index.grid) for place in unknown]
        for first in range(0, len(grids), TOGETHER):
            decoded = self.decode(panel, np.stack(grids[first : first + TOGETHER]))
            for row, place in enumerate(unknown[first : first + TOGETHER]):
                found[place] = decoded.take([row])
        return [found[place] for place in range(len(queries))]

    def _archived(self, query: Query, panel: str) -> Planes | None:
        """What a query from the archive decoded to when it was indexed."""
        rows, ids = self.stored(panel), self.engine.ids(query, panel)
        if query.archived is None or rows is None:
            return None
        own = np.array([query.archived])
        return rows.take(own) if np.array_equal(self.engine.index.codes[panel].ids(own)[0], ids) else None

    def stored(self, panel: str) -> LabelRows | None:
        """The panel's label maps where they are stored, and searches need not look at all of them."""
        planes = self.planes[panel]
        return planes if isinstance(planes, LabelRows) else None

    def prepared(self, query: Query, panel: str, one: Planes) -> Prepared:
        """What a search by stored maps needs."""
        rows = self.stored(panel)
        assert rows is not None, "only stored maps have bounds"
        asked = rows.asked(one, None if query.region is None else self._pixels(query, panel))
        return Prepared(rows, asked)

    def label_rate(self, query: Query, panel: str) -> float:
        """Distances by label are taken as they are."""
        return 1.0

    def more(self, query: Query, weights: Mapping[str, float], selection: Selection) -> Floats:
        """Nothing is added to them; see `Fusion`."""
        return np.empty(0)

    def distances(self, query: Query, panel: str, one: Planes, selection: Selection) -> NDArray[np.float64]:
        """Distances of all slices of the volumes that take part, one volume after the other."""
        starts, stops = selection.starts[selection.volumes], selection.stops[selection.volumes]
        if self.stored(panel) is not None:
            return self.prepared(query, panel, one).exact(expand(starts, stops))
        planes, areas = self.planes[panel], self._areas_within(query, panel)
        assert isinstance(planes, Planes)
        ends = np.cumsum(stops - starts)
        out = np.empty(int(ends[-1]) if len(ends) else 0)

        def work(share: slice) -> None:
            first = int(ends[share.start - 1]) if share.start else 0
            row_distances(one.words[0], one.areas[0], planes.words, areas, starts[share], stops[share], out[first:])

        self.engine.pool.run(work, stops - starts)
        return out

    def compare(self, query: Query, panel: str, one: Planes, slices: Ints) -> tuple[Floats, Floats]:
        """Distances of some slices, and each cell's part of them, `[n, h, w]`."""
        own, others = one.level_maps([0])[0], self.planes[panel].level_maps(slices)
        inside = np.ones(own.shape[1:], dtype=np.bool_)
        if query.region is not None:
            inside = self._pixels(query, panel)[: len(inside)]
        grid = self.engine.index.grid
        distances, cells = np.empty(len(slices)), np.zeros((len(slices), *grid))
        rows, columns = (np.arange(side) * cells // side for side, cells in zip(own.shape[1:], grid, strict=True))
        compare_levels(own, others, inside, rows, columns, distances, cells)
        return distances, cells

    def spread(self, query: Query, panel: str) -> float:
        """Standard deviation of the distance between random slices: what a search by both divides by."""
        if query.spreads is not None:
            return query.spreads[METRIC, panel]
        key = panel, self._region_key(query)
        if key not in self._spreads:
            planes, count = self.planes[panel], len(self.engine.index)
            one, other = np.random.default_rng(0).integers(count, size=(2, SPREAD_PAIRS))
            region = self._pixels(query, panel)
            if isinstance(planes, LabelRows):
                self._spreads[key] = float(np.std(planes.pairs(one, other, region))) or 1.0
                return self._spreads[key]
            found = pair_distances(planes.take(one).within(region), planes.take(other).within(region))
            self._spreads[key] = float(np.std(found)) or 1.0
        return self._spreads[key]

    def _areas_within(self, query: Query, panel: str) -> NDArray[np.int32]:
        planes = self.planes[panel]
        assert isinstance(planes, Planes)
        if query.region is None:
            return planes.areas
        key = self._region_key(query)
        known, areas = self._areas.get(panel, (b"", planes.areas))
        if known != key:
            areas = count_bits(planes.words, pack_bits(self._pixels(query, panel)))
            self._areas[panel] = key, areas  # one region at a time: as many numbers as the archive has slices
        return areas

    def _pixels(self, query: Query, panel: str) -> NDArray[np.bool_]:
        """The query's region in pixels of the planes."""
        return self.planes[panel].scatter(self.engine.region(query).reshape(self.engine.index.grid))

    def _region_key(self, query: Query) -> bytes:
        return self.engine.region(query).tobytes()


@compiled
def compare_levels(
    own: Levels,
    others: Levels,
    inside: NDArray[np.bool_],
    rows: Ints,
    columns: Ints,
    distances: Floats,
    cells: Floats,
) -> None:
    """1 - mean Dice of a map `[C, H, W]` and others `[n, C, H, W]`, and what pixels in each cell add to it.

    Levels that only one of two maps has in a pixel add 1 over the levels that both have in that class.
    """
    classes, height, width = own.shape
    shares = np.empty(classes)
    for i in range(len(others)):
        present, total = 0, 0.0
        for c in range(classes):
            shared, both = 0, 0
            for y in range(height):
                for x in range(width):
                    shared += inside[y, x] * min(own[c, y, x], others[i, c, y, x])
                    both += inside[y, x] * (np.int64(own[c, y, x]) + np.int64(others[i, c, y, x]))
            shares[c] = 0.0
            if both > 0:
                present += 1
                total += 2.0 * shared / both
                shares[c] = 1.0 / both
        distances[i] = 1.0 - total / present if present > 0 else 0.0
        for c in range(classes):
            if shares[c] > 0:
                for y in range(height):
                    for x in range(width):
                        if inside[y, x] and own[c, y, x] != others[i, c, y, x]:
                            apart = abs(np.int64(own[c, y, x]) - np.int64(others[i, c, y, x]))
                            cells[i, rows[y], columns[x]] += apart * shares[c] / present


def pair_distances(one: Planes, other: Planes) -> NDArray[np.float64]:
    """1 - mean Dice between two lists of label maps, pair by pair; the plain form of `row_distances`."""
    both = one.areas + other.areas  # [n, C]
    present = np.count_nonzero(both, axis=1)
    dice = 2 * count_bits(one.words & other.words) / np.maximum(both, 1)
    return np.where(present > 0, 1 - dice.sum(axis=1) / np.maximum(present, 1), 0.0)
