"""Position-free search: two slices are compared by which abnormal codes they hold and how often, not by where.

Knows the search engine's tables and packed codes. The distance between two bags of codes is their energy distance
(Székely and Rizzo, 2013): twice the mean distance between a code of one and a code of the other, less the mean
distances within each. It is zero for equal histograms, however the codes are arranged, and counts similar codes as
similar, which a comparison of bare counts would not. Sums are whole numbers, as everywhere in search.

    E(q, r) = 2 Σ d(q_i, r_j) - Σ d(q_i, q_j) - Σ d(r_i, r_j),  all divided by P²
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from diptych.compiling import compiled
from diptych.search import Match, PanelMatch, Query, SearchEngine
from diptych.search.lookup import look_up
from diptych.search.scan import rank
from diptych.search.tables import DistanceTable, table_from

ROWS_AT_A_TIME = 1 << 16


class HistogramSearch:
    """Answers queries by the histogram of abnormal ids; what it learns of an archive it keeps."""

    def __init__(self, engine: SearchEngine) -> None:
        self.engine = engine
        self._pairs: dict[str, DistanceTable] = {}
        self._within: dict[tuple[str, bytes], NDArray[np.int64]] = {}

    def search(self, query: Query) -> list[Match]:
        """The best slice of each of the best volumes (or patients), nearest first."""
        engine, index = self.engine, self.engine.index
        keys = self._keys(query)
        selection = engine.select(query)
        if selection.slices is not None:
            keys = np.where(selection.slices, keys, np.iinfo(np.int64).max)
        best = np.full(index.volumes, np.iinfo(np.int64).max)
        starts = selection.starts[selection.volumes]
        for volume, start, stop in zip(selection.volumes, starts, selection.stops[selection.volumes], strict=True):
            best[volume] = keys[start:stop].min()
        order = rank(best, np.arange(index.volumes), selection.groups, selection.top, np.iinfo(np.int64).max)
        return [
            replace(self._match(query, volume, self._first(keys, volume)), key=float(best[volume])) for volume in order
        ]

    def _keys(self, query: Query) -> NDArray[np.int64]:
        """What orders all slices: the whole-number energy distance less the query's own part, `[N]`."""
        pairs, region, ids = self._prepare(query)
        index = self.engine.index
        towards = pairs.entries[ids].sum(axis=0, dtype=np.int32)  # [K]
        entries = np.where(region[:, None], towards, 0).astype(np.int32)
        towards_all = look_up(entries, index, "abnormal")
        across = towards_all.sums(np.array([0]), np.array([len(index)]), self.engine.pool)
        return 2 * across.astype(np.int64) - self._slices_within(pairs, region)

    def _prepare(self, query: Query) -> tuple[DistanceTable, NDArray[np.bool_], NDArray[np.int64]]:
        """Distances between codes, the cells compared, and the query's ids in them."""
        query = replace(query, by="abnormal")
        self.engine.score(query)  # all of a query's checks
        table, region = self.engine.table(query, "abnormal"), self.engine.region(query)
        if table.metric not in self._pairs:
            self._pairs[table.metric] = table_from(
                code_distances(table), cells=self.engine.index.cells**2, metric=table.metric
            )
        return self._pairs[table.metric], region, np.asarray(query.abnormal, dtype=np.int64).reshape(-1)[region]

    def _slices_within(self, pairs: DistanceTable, region: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Sum of distances between the codes of each slice, `[N]`."""
        key = pairs.metric, region.tobytes()
        if key not in self._within:
            codes = self.engine.index.codes["abnormal"]
            cells = np.flatnonzero(region)
            within = np.empty(len(codes), dtype=np.int64)
            for start in range(0, len(codes), ROWS_AT_A_TIME):
                rows = np.arange(start, min(start + ROWS_AT_A_TIME, len(codes)))
                sum_pairs(codes.ids(rows), cells, pairs.entries, within[rows[0] : rows[-1] + 1])
            self._within = {key: within}  # one at a time: a column as long as the archive
        return self._within[key]

    def _first(self, keys: NDArray[np.int64], volume: int) -> int:
        start, stop = self.engine.index.volume_starts[volume : volume + 2]
        return int(start) + int(np.argmin(keys[start:stop]))

    def _match(self, query: Query, volume: int, place: int) -> Match:
        """The energy distance and each cell's part of it, from the query's side and from the slice's."""
        pairs, region, ids = self._prepare(query)
        index = self.engine.index
        found = index.codes["abnormal"].ids(np.array([place]))[0][region].astype(np.int64)
        across = pairs.entries[np.ix_(ids, found)].astype(np.int64)
        own, other = pairs.entries[np.ix_(ids, ids)], pairs.entries[np.ix_(found, found)]
        parts = np.zeros(index.cells)
        whole = across.sum(axis=1) + across.sum(axis=0) - own.sum(axis=1) - other.sum(axis=1)
        parts[region] = whole * (pairs.unit / len(ids) ** 2)
        panel = PanelMatch(float(parts.sum()), parts.reshape(index.grid), 1.0)
        patient = int(index.patient_of_volume[volume])
        return Match(place, volume, patient, panel.distance, panel.contributions, None, panel)


def code_distances(table: DistanceTable) -> NDArray[np.float64]:
    """The distance between each two single codes, `[K, K]`."""
    lengths = np.diag(table.entries).astype(np.int64)
    return table.distance(table.entries, lengths[:, None], lengths[None, :])


@compiled
def sum_pairs(
    ids: NDArray[np.uint16], cells: NDArray[np.int64], entries: NDArray[np.int32], out: NDArray[np.int64]
) -> None:
    """For each row of ids the sum of entries over all pairs of its cells; entries are symmetric."""
    for row in range(len(ids)):
        total = 0
        for i in range(len(cells)):
            one = ids[row, cells[i]]
            for j in range(i):
                total += 2 * entries[one, ids[row, cells[j]]]
            total += entries[one, one]
        out[row] = total
