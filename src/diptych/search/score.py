"""`Score`: what a query's distance is made of, and keys that order slices by it.

Knows look-ups and tables; nothing about volumes or filters. A key is cheaper than a distance and orders alike: the
bare sum for one panel by Euclid or Hamming, minus the cosine for one panel by angle, the distance itself for both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.compiling import compiled
from diptych.search.chunks import LevelName
from diptych.search.lookup import JoinedLookUp, LookUp
from diptych.search.panel_codes import PanelCodes
from diptych.search.pool import Pool
from diptych.search.tables import DistanceTable, cosine

Ints = NDArray[np.integer]
Keys = NDArray[Any]
"""int32 or float64; one kind within one query."""


class SliceNorms:
    """Squared norms of all slices over the whole grid, with their extremes in runs of slices."""

    def __init__(self, values: NDArray[np.int32]) -> None:
        self.values = values
        self._extremes: dict[int, tuple[NDArray[np.int32], NDArray[np.int32]]] = {}

    def extremes(self, starts: Ints) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The shortest and longest slice of each run."""
        if len(starts) not in self._extremes:
            shortest = np.minimum.reduceat(self.values, starts[:-1])
            self._extremes[len(starts)] = shortest, np.maximum.reduceat(self.values, starts[:-1])
        return self._extremes[len(starts)]


@dataclass(frozen=True, eq=False)
class Norms:
    """Squared norms in the table's unit, which angles need."""

    query_cells: NDArray[np.int64]
    """The query's squared norm, cell by cell, `[P]`."""
    look_up: LookUp
    """Sums over it are the norms of slices, over the query's region."""
    everywhere: SliceNorms | None
    """Norms of all slices, where the query has no region: they are the same for all such queries."""

    @property
    def query(self) -> int:
        return int(self.query_cells.sum())

    def of(self, starts: Ints, stops: Ints, pool: Pool) -> NDArray[np.int32]:
        """Norms of the slices in the ranges."""
        if self.everywhere is None:
            return self.look_up.sums(starts, stops, pool)
        return self.everywhere.values[expand(starts, stops)]


@dataclass(frozen=True, eq=False)
class Term:
    """One panel of a query."""

    panel: str
    table: DistanceTable
    look_up: LookUp
    factor: float = 1.0
    """What the panel's distance is multiplied by."""
    norms: Norms | None = None
    """For angles alone; the look-up then holds negated dot products."""

    def distances(self, starts: Ints, stops: Ints, pool: Pool) -> NDArray[np.float64]:
        """Distances of the slices in the ranges, not yet multiplied."""
        if self.norms is None:
            return self.table.distance(self.look_up.sums(starts, stops, pool))
        return np.asarray(np.arccos(self.cosines(starts, stops, pool)))

    def row_distances(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """The same of single slices, in any order."""
        sums = self.look_up.row_sums(rows)
        if self.norms is None:
            return self.table.distance(sums)
        everywhere = self.norms.everywhere
        norms = self.norms.look_up.row_sums(rows) if everywhere is None else everywhere.values[rows]
        return np.asarray(np.arccos(cosine(-sums, self.norms.query, norms)))

    def cosines(self, starts: Ints, stops: Ints, pool: Pool) -> NDArray[np.float64]:
        """Cosines of the angles to the slices in the ranges."""
        assert self.norms is not None
        negated = self.look_up.sums(starts, stops, pool)
        return cosine(-negated, self.norms.query, self.norms.of(starts, stops, pool))

    def largest_cosines(self, level: LevelName, runs: Ints, pool: Pool) -> NDArray[np.float64]:
        """For each of some runs, or parts of runs, a cosine that none of its slices exceeds."""
        assert self.norms is not None
        assert self.norms.everywhere is not None
        negated = self.look_up.bounds(level, runs, pool)
        starts = self.look_up.chunks.level(level).starts
        shortest, longest = (norms[runs] for norms in self.norms.everywhere.extremes(starts))
        largest = cosine(-negated, self.norms.query, np.where(negated < 0, shortest, longest))
        return np.where(shortest == 0, 1.0, largest)


@dataclass(frozen=True, eq=False)
class Score:
    """One term, or the two of a search by both panels."""

    terms: tuple[Term, ...]

    @property
    def plain(self) -> bool:
        """Whether keys are bare sums."""
        return len(self.terms) == 1 and self.terms[0].norms is None

    @property
    def nothing(self) -> int | float:
        """The key that stands for "no slice"."""
        return 2**31 - 1 if self.plain else np.inf

    @property
    def prunable(self) -> bool:
        """Bounds exist within one segment, unless norms depend on the query's region."""
        return all(
            not isinstance(term.look_up, JoinedLookUp) and (term.norms is None or term.norms.everywhere is not None)
            for term in self.terms
        )

    def keys(self, starts: Ints, stops: Ints, pool: Pool) -> Keys:
        """Keys of the slices in the ranges, one range after the other."""
        first = self.terms[0]
        if self.plain:
            return first.look_up.sums(starts, stops, pool)
        if len(self.terms) == 1:
            return -first.cosines(starts, stops, pool)
        combined: Keys = np.sum([term.factor * term.distances(starts, stops, pool) for term in self.terms], axis=0)
        return combined

    def minima(self, starts: Ints, stops: Ints, pool: Pool, allowed: NDArray[np.bool_] | None = None) -> Keys:
        """The smallest key of each range, which none is empty, among the allowed slices."""
        if self.plain and allowed is None:
            return self.terms[0].look_up.minima(starts, stops, pool)
        keys = self.keys(starts, stops, pool)
        if allowed is not None:
            keys[~allowed[expand(starts, stops)]] = self.nothing
        lengths = stops - starts
        return np.minimum.reduceat(keys, np.cumsum(lengths) - lengths) if len(lengths) else keys

    def bounds(self, level: LevelName, runs: Ints, pool: Pool) -> Keys:
        """For each of some runs, or parts of runs, a key that none of its slices undercuts."""
        first = self.terms[0]
        if self.plain:
            return first.look_up.bounds(level, runs, pool)
        total = np.zeros(len(runs))
        for term in self.terms:
            if term.norms is None:
                total += term.factor * term.table.distance(term.look_up.bounds(level, runs, pool))
            elif len(self.terms) == 1:
                total -= term.largest_cosines(level, runs, pool)
            else:
                total += term.factor * np.arccos(term.largest_cosines(level, runs, pool))
        return total - 1e-9 * (1 + np.abs(total))  # room for rounding: a bound may be low, never high


def expand(starts: Ints, stops: Ints) -> NDArray[np.int64]:
    """All numbers of the ranges, one range after the other.

    >>> expand(np.array([2, 7]), np.array([4, 8])).tolist()
    [2, 3, 7]
    """
    numbers = np.empty(int((stops - starts).sum()), dtype=np.int64)
    _count_through(starts, stops, numbers)
    return numbers


@compiled
def _count_through(starts: Ints, stops: Ints, numbers: NDArray[np.int64]) -> None:
    at = 0
    for place in range(len(starts)):
        for number in range(starts[place], stops[place]):
            numbers[at] = number
            at += 1


def distance_spread(
    codes: PanelCodes,
    table: DistanceTable,
    region: NDArray[np.bool_],
    *,
    pairs: int = 4096,
    seed: int = 0,
) -> float:
    """Standard deviation of the distance between random slices; 1 where all distances are equal."""
    if len(codes) < 2:
        return 1.0
    one, other = np.random.default_rng(seed).integers(len(codes), size=(2, pairs))
    distances = pair_distances(codes.ids(one), codes.ids(other), table, region)
    return float(np.std(distances)) or 1.0


def pair_distances(
    one: NDArray[np.integer], other: NDArray[np.integer], table: DistanceTable, region: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Distances between two lists of grids `[n, P]`, pair by pair."""
    weights = table.weights_of(len(region))[region]
    one, other = one[:, region], other[:, region]
    lengths = np.diag(table.entries).astype(np.int64)
    return table.distance(table.entries[one, other] @ weights, lengths[one] @ weights, lengths[other] @ weights)
