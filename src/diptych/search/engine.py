"""`SearchEngine`: exact answers to queries over a `SearchIndex`.

The table of contents of search: check the query, make its score, select what takes part, scan, rank, explain.
Knows nothing about files, models or pixels.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from diptych.errors import UsageError
from diptych.search.batch import batch_scan, batches
from diptych.search.contributions import explain
from diptych.search.lookup import LookUp, look_up
from diptych.search.pool import Pool
from diptych.search.prune import pruned_scan
from diptych.search.query import PANELS, Match, Query, panel_weights
from diptych.search.scan import Selection, plain_scan, rank
from diptych.search.score import Keys, Norms, Score, SliceNorms, Term, distance_spread, expand
from diptych.search.search_index import SearchIndex
from diptych.search.tables import DistanceTable, Tables


class SearchEngine:
    """Searches an index with the tables of the model that made it."""

    def __init__(self, index: SearchIndex, tables: Tables, *, threads: int = 1, prune: bool = True) -> None:
        self.index = index
        self.tables = tables
        self.pool = Pool(threads)
        self.prune = prune
        self.habit = Habit()
        self._norms: dict[tuple[str, str], SliceNorms] = {}
        self._spreads: dict[tuple[str, str, bytes], float] = {}

    def search(self, query: Query) -> list[Match]:
        """The best slice of each of the best volumes (or patients), nearest first."""
        score, selection = self.score(query), self.select(query)
        return self._matches(query, score, selection, self._scan(query, score, selection))

    def _scan(self, query: Query, score: Score, selection: Selection) -> Keys:
        """The best key of each volume, pruned where that paid for queries of this kind."""
        kind = query.by, query.metric, query.region is None
        if not (self.prune and score.prunable and self.habit.tries(kind)):
            return plain_scan(score, selection, self.pool)
        pruned = pruned_scan(score, selection, self.pool)
        self.habit.note(kind, paid=pruned.paid)
        return pruned.keys

    def search_batch(self, queries: Sequence[Query]) -> list[list[Match]]:
        """The same answers as `search` gives to each query, for less when many ask alike."""
        if self.index.joined:
            return [self.search(query) for query in queries]
        prepared = [(self.score(query), self.select(query)) for query in queries]
        answers: list[list[Match] | None] = [None] * len(queries)
        for members in batches(queries, prepared):
            keys = batch_scan([prepared[member] for member in members], self.pool)
            for column, member in enumerate(members):
                answers[member] = self._matches(queries[member], *prepared[member], keys[:, column])
        return [
            self.search(query) if answer is None else answer for query, answer in zip(queries, answers, strict=True)
        ]

    def score(self, query: Query) -> Score:
        """What the query's distance is made of."""
        weights = panel_weights(query, lambda panel: self.spread(query, panel))
        return Score(tuple(self.term(query, panel, weight) for panel, weight in weights.items()))

    def distances(self, query: Query) -> NDArray[np.float64]:
        """From the query to every slice, whatever its filter says, `[N]`."""
        everything = np.array([0]), np.array([len(self.index)])
        terms = [term.factor * term.distances(*everything, self.pool) for term in self.score(query).terms]
        return np.asarray(np.sum(terms, axis=0))

    def term(self, query: Query, panel: str, factor: float = 1.0) -> Term:
        """One panel of the query, ready to be scanned."""
        table, region = self.table(query, panel), self.region(query)
        ids = self.ids(query, panel)
        weights = np.where(region, table.weights_of(len(ids)), 0)
        entries = (weights[:, None] * table.entries[ids]).astype(np.int32)
        if table.kind != "angle":
            return Term(panel, table, look_up(entries, self.index, panel), factor)
        lengths = np.diag(table.entries)
        own = look_up((weights[:, None] * lengths).astype(np.int32), self.index, panel)
        everywhere = self._slice_norms(panel, table, own) if region.all() else None
        norms = Norms((weights * lengths[ids]).astype(np.int64), own, everywhere)
        return Term(panel, table, look_up(-entries, self.index, panel), factor, norms)

    def select(self, query: Query) -> Selection:
        """Which volumes and slices take part."""
        index, where = self.index, query.where
        if query.top < 1:
            raise UsageError(f"top {query.top}: ask for at least one match")
        starts, stops = index.volume_starts[:-1], index.volume_starts[1:]
        volumes = stops > starts
        if where.volumes is not None:
            volumes &= _sized(where.volumes, index.volumes, "allowed volumes")
        for patient in where.exclude_patients:
            volumes &= index.patient_of_volume != patient
        slices = None if where.slices is None else _sized(where.slices, len(index), "allowed slices")
        if where.lesion_free:
            slices = index.lesion_free if slices is None else slices & index.lesion_free
        groups = index.patient_of_volume if query.group == "patient" else None
        return Selection(starts, stops, np.flatnonzero(volumes).astype(np.int64), slices, groups, query.top)

    def table(self, query: Query, panel: str) -> DistanceTable:
        """The table of the query's metric."""
        tables = self.tables.panel(panel)
        if query.metric not in tables:
            raise UsageError(f"metric {query.metric!r}: this engine has {', '.join(sorted(tables))}")
        return tables[query.metric]

    def region(self, query: Query) -> NDArray[np.bool_]:
        """Positions that the query compares, flat."""
        if query.region is None:
            return np.ones(self.index.cells, dtype=np.bool_)
        region = np.asarray(query.region, dtype=np.bool_)
        if region.shape != self.index.grid or not region.any():
            raise UsageError(
                f"region of shape {region.shape} with {int(region.sum())} cells: mark at least one cell of "
                f"{self.index.grid[0]}x{self.index.grid[1]}"
            )
        return region.reshape(-1)

    def ids(self, query: Query, panel: str) -> NDArray[np.integer]:
        """The query's ids in one panel, checked and flat."""
        codes = self.index.codes[panel].codes
        grid = getattr(query, panel)
        if grid is None:
            raise UsageError(f"a search by {query.by} needs the query's {panel} ids")
        grid = np.asarray(grid)
        if grid.shape != self.index.grid:
            rows, columns = self.index.grid
            raise UsageError(
                f"{panel} ids of shape {grid.shape}: this archive's grids are {rows}x{columns}; "
                "encode the query with the archive's model"
            )
        if grid.min() < 0 or grid.max() >= codes:
            raise UsageError(
                f"{panel} id {int(grid.max())}: this archive has codes 0…{codes - 1}; "
                "encode the query with the archive's model"
            )
        return grid.reshape(-1)

    def spread(self, query: Query, panel: str) -> float:
        """How far apart the archive's slices are in the query's metric and region: what `both` divides by."""
        if query.spreads is not None:
            return query.spreads[query.metric, panel]
        region = self.region(query)
        key = panel, query.metric, region.tobytes()
        if key not in self._spreads:
            self._spreads[key] = distance_spread(self.index.codes[panel], self.table(query, panel), region)
        return self._spreads[key]

    def _slice_norms(self, panel: str, table: DistanceTable, own: LookUp) -> SliceNorms:
        key = panel, table.metric
        if key not in self._norms:
            whole = np.array([0]), np.array([len(self.index)])
            self._norms[key] = SliceNorms(own.sums(*whole, self.pool))
        return self._norms[key]

    def _matches(self, query: Query, score: Score, selection: Selection, keys: Keys) -> list[Match]:
        """Rank the volumes, find the best slice of each, and explain it."""
        order = rank(keys, np.arange(len(keys)), selection.groups, selection.top, score.nothing)
        if not order:
            return []
        volumes = np.array(order, dtype=np.int64)
        slices = _best_slices(score, selection, volumes, self.pool)
        terms = {
            panel: next((term for term in score.terms if term.panel == panel), None)
            or (self.term(query, panel) if getattr(query, panel) is not None else None)
            for panel in PANELS
        }
        return explain(score, terms, self.index, volumes, slices, keys[volumes])


def _best_slices(score: Score, selection: Selection, volumes: NDArray[np.int64], pool: Pool) -> NDArray[np.int64]:
    """The first slice with the smallest key in each volume."""
    starts, stops = selection.starts[volumes], selection.stops[volumes]
    keys = score.keys(starts, stops, pool)
    if selection.slices is not None:
        keys[~selection.slices[expand(starts, stops)]] = score.nothing
    ends = np.cumsum(stops - starts).tolist()
    best = [
        start + int(keys[end - length : end].argmin())
        for start, length, end in zip(starts.tolist(), (stops - starts).tolist(), ends, strict=True)
    ]
    return np.array(best, dtype=np.int64)


def _sized(mask: NDArray[np.bool_], size: int, what: str) -> NDArray[np.bool_]:
    mask = np.asarray(mask, dtype=np.bool_)
    if mask.shape != (size,):
        raise UsageError(f"{what} of shape {mask.shape}: this archive needs ({size},)")
    return mask


PAUSE = 16
"""Queries of a kind that are scanned plainly after one for which pruning did not pay."""


class Habit:
    """Try; where it did not pay, try again only after a while: a failure then costs little on average."""

    def __init__(self) -> None:
        self._pauses: dict[Hashable, int] = {}

    def tries(self, kind: Hashable) -> bool:
        """Whether to prune the next query of a kind."""
        left = self._pauses.get(kind, 0)
        self._pauses[kind] = max(0, left - 1)
        return left == 0

    def note(self, kind: Hashable, *, paid: bool) -> None:
        """Learn from a query."""
        self._pauses[kind] = 0 if paid else PAUSE
