"""The pruned scan: the same answer as the plain one, from a look at few slices.

Knows scores and runs of slices. A run whose bound cannot beat the worst match so far is left out, whole; equal
distances are settled by volume, so a later volume with an equal bound is left out too. How much this saves depends on
the archive and the query, so a sample is measured first, and where pruning would not pay the plain scan runs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diptych.search.chunks import LENGTHS
from diptych.search.lookup import Pool
from diptych.search.scan import Selection, rank
from diptych.search.score import Keys, Score, expand

__all__ = ["choose_levels", "pruned_scan"]

Ints = NDArray[np.integer]

SMALLEST = 20_000
"""Slices below which a plain scan is over before a sample is drawn."""

SAMPLED = 32
"""One volume of so many is in the sample: it costs 1 % of a plain scan."""

SCATTERED = 1.2
"""What a surviving slice costs, in slices of a plain scan."""


@dataclass(frozen=True, eq=False)
class Runs:
    """Some runs of one level, ascending."""

    level: str
    starts: NDArray[np.int32]
    """First slice of every run of the level, and N at the end."""
    chosen: Ints
    volumes: Ints
    """Volume of each chosen run."""

    @classmethod
    def of(cls, score: Score, level: str, slice_starts: Ints, slice_stops: Ints) -> Runs:
        """The runs of a level within ranges of slices that begin and end with runs."""
        chunks = score.terms[0].look_up.chunks
        starts = getattr(chunks, f"{level}_starts")
        chosen = expand(np.searchsorted(starts, slice_starts), np.searchsorted(starts, slice_stops))
        return cls(level, starts, chosen, getattr(chunks, f"{level}_volumes")[chosen])

    @property
    def ranges(self) -> tuple[Ints, Ints]:
        """First slice, and slice after the last, of each chosen run."""
        return self.starts[self.chosen], self.starts[self.chosen + 1]

    def keep(self, kept: NDArray[np.bool_] | Ints) -> Runs:
        return Runs(self.level, self.starts, self.chosen[kept], self.volumes[kept])


@dataclass(frozen=True)
class Limit:
    """The worst match so far; what is not better than it, by key and then by volume, is of no use."""

    key: float
    volume: int

    def admits(self, bounds: Keys, volumes: Ints) -> NDArray[np.bool_]:
        return np.asarray((bounds < self.key) | ((bounds == self.key) & (volumes <= self.volume)))


def pruned_scan(score: Score, selection: Selection, levels: tuple[str, ...], pool: Pool) -> Keys:
    """The best key of each volume that can be among the matches, `[V]`; of others, nothing."""
    best = np.full(len(selection.starts), score.nothing)
    slices: tuple[Ints, Ints] = selection.starts[selection.volumes], selection.stops[selection.volumes]
    limit = Limit(score.nothing, len(best))
    for level in levels:
        runs = Runs.of(score, level, *slices)
        bounds = score.bounds(level, runs.chosen, pool)
        limit = min(limit, find_limit(score, runs, bounds, selection, pool), key=lambda one: (one.key, one.volume))
        runs = runs.keep(limit.admits(bounds, runs.volumes))
        slices = runs.ranges
    np.minimum.at(best, runs.volumes, score.minima(*slices, pool, selection.slices))
    return best


def find_limit(score: Score, runs: Runs, bounds: Keys, selection: Selection, pool: Pool) -> Limit:
    """Look at the most promising run of the most promising volumes; the true matches are no worse than these."""
    first = np.flatnonzero(np.diff(runs.volumes, prepend=-1))
    promise = np.minimum.reduceat(bounds, first) if len(first) else bounds
    ends = np.append(first[1:], len(bounds))
    wanted = 4 * selection.top
    while True:
        tried = np.sort(np.argsort(promise, kind="stable")[:wanted])
        places = np.array([first[v] + np.argmin(bounds[first[v] : ends[v]]) for v in tried], dtype=np.int64)
        seeds = runs.keep(places)
        keys = score.minima(*seeds.ranges, pool, selection.slices)
        order = rank(keys, seeds.volumes, selection.groups, selection.top, score.nothing)
        if len(order) == selection.top:
            return Limit(keys[order[-1]].item(), int(seeds.volumes[order[-1]]))
        if wanted >= len(first):
            return Limit(score.nothing, len(selection.starts))
        wanted *= 8


def choose_levels(score: Score, selection: Selection, pool: Pool) -> tuple[str, ...]:
    """The levels of runs that save most, by the share of runs that survive in a sample; none if none saves."""
    slices = int((selection.stops - selection.starts)[selection.volumes].sum())
    if slices < SMALLEST or not score.prunable:
        return ()
    sampled = selection.volumes[:: min(SAMPLED, max(1, len(selection.volumes) // 8))]
    ranges = selection.starts[sampled], selection.stops[sampled]
    sample = Selection(selection.starts, selection.stops, sampled, selection.slices, selection.groups, top=1)
    shares = {}
    for level in LENGTHS:
        runs = Runs.of(score, level, *ranges)
        bounds = score.bounds(level, runs.chosen, pool)
        limit = find_limit(score, runs, bounds, sample, pool)
        shares[level] = float(np.mean(limit.admits(bounds, runs.volumes)))
    coarse, fine = (1 / LENGTHS[level] for level in ("coarse", "fine"))
    costs = {
        (): 0.95,
        ("coarse",): coarse + SCATTERED * shares["coarse"],
        ("fine",): fine + SCATTERED * shares["fine"],
        ("coarse", "fine"): coarse + SCATTERED * (shares["coarse"] * fine + shares["fine"]),
    }
    return min(costs, key=lambda levels: costs[levels])
