"""The pruned scan: the same answer as the plain one, from a look at few slices.

Knows scores and runs of slices. A run whose bound cannot beat the worst match so far is left out, whole; equal
distances are settled by volume, so a later volume with an equal bound is left out too. How much this saves depends on
the archive and the query: survivors are counted in a sample first, and where pruning would not pay the plain scan runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from diptych.search.chunks import LENGTH, Chunks
from diptych.search.lookup import Pool
from diptych.search.scan import Selection, rank
from diptych.search.score import Keys, Score, expand

__all__ = ["pruned_scan", "pruning_pays"]

Ints = NDArray[np.integer]

SMALLEST = 20_000
"""Slices below which a plain scan is over before a sample is drawn."""

SAMPLED = 16
"""One volume of so many is in the sample: it costs less than 1 % of a plain scan."""

SEEDS = 40
"""Runs, per match wanted, that are looked at to find a limit."""

WORTH_WHILE = 0.9
"""Pruning is chosen where it is thought to cost less than this part of a plain scan."""


@dataclass(frozen=True, eq=False)
class Runs:
    """Some runs of slices, ascending."""

    chunks: Chunks
    chosen: NDArray[np.int64]
    volumes: Ints
    """Volume of each chosen run."""

    @classmethod
    def of_volumes(cls, chunks: Chunks, volumes: NDArray[np.int64]) -> Runs:
        """All runs of some volumes, none of which is empty."""
        chosen = expand(chunks.first_of_volume[volumes], chunks.first_of_volume[volumes + 1])
        return cls(chunks, chosen, chunks.volumes[chosen])

    def keep(self, kept: NDArray[np.bool_] | Ints) -> Runs:
        return Runs(self.chunks, self.chosen[kept], self.volumes[kept])

    def best(self, score: Score, selection: Selection, pool: Pool) -> tuple[NDArray[np.int64], Keys]:
        """The volumes that the runs lie in, ascending, and the smallest key in each one's runs."""
        starts, stops = self.chunks.starts[self.chosen], self.chunks.starts[self.chosen + 1]
        keys = score.minima(starts, stops, pool, selection.slices)
        place = np.flatnonzero(np.diff(self.volumes, prepend=-1))
        return self.volumes[place].astype(np.int64), np.minimum.reduceat(keys, place) if len(place) else keys


@dataclass(frozen=True)
class Limit:
    """The worst match so far; what is not better than it, by key and then by volume, is of no use."""

    key: float
    volume: int

    def admits(self, bounds: Keys, volumes: Ints) -> NDArray[np.bool_]:
        return np.asarray((bounds < self.key) | ((bounds == self.key) & (volumes <= self.volume)))


def pruned_scan(score: Score, selection: Selection, pool: Pool) -> Keys:
    """The best key of each volume that can be among the matches, `[V]`; of others, nothing."""
    runs = Runs.of_volumes(score.terms[0].look_up.chunks, selection.volumes)
    survivors = prune(score, runs, selection, pool)
    best = np.full(len(selection.starts), score.nothing)
    volumes, keys = survivors.best(score, selection, pool)
    best[volumes] = keys
    return best


def prune(score: Score, runs: Runs, selection: Selection, pool: Pool) -> Runs:
    """The runs that may hold a match."""
    bounds = score.bounds(runs.chosen, pool)
    limit = find_limit(score, runs, bounds, selection, pool)
    return runs.keep(limit.admits(bounds, runs.volumes))


def find_limit(score: Score, runs: Runs, bounds: Keys, selection: Selection, pool: Pool) -> Limit:
    """Look at the most promising runs; the true matches are no worse than the best in these."""
    wanted = SEEDS * selection.top
    while True:
        seeds = runs if wanted >= len(bounds) else runs.keep(_smallest(bounds, wanted))
        volumes, keys = seeds.best(score, selection, pool)
        order = rank(keys, volumes, selection.groups, selection.top, score.nothing)
        if len(order) == selection.top:
            return Limit(keys[order[-1]].item(), int(volumes[order[-1]]))
        if wanted >= len(bounds):
            return Limit(score.nothing, len(selection.starts))
        wanted *= 8


def _smallest(values: Keys, count: int) -> NDArray[np.intp]:
    """Places of the `count` smallest values, ascending; of equal values the first ones."""
    edge = np.partition(values, count - 1)[count - 1]
    below, equal = np.flatnonzero(values < edge), np.flatnonzero(values == edge)
    return np.sort(np.concatenate([below, equal[: count - len(below)]]))


def pruning_pays(score: Score, selection: Selection, pool: Pool) -> bool:
    """Whether so few runs survive in a sample that the pruned scan will be the quicker one."""
    slices = int((selection.stops - selection.starts)[selection.volumes].sum())
    if slices < SMALLEST or not score.prunable:
        return False
    sampled = selection.volumes[:: min(SAMPLED, max(1, len(selection.volumes) // 8))]
    sample = replace(selection, volumes=sampled, top=max(1, selection.top // SAMPLED))
    chunks = score.terms[0].look_up.chunks
    runs = Runs.of_volumes(chunks, sampled)
    share = len(prune(score, runs, sample, pool).chosen) / len(runs.chosen)
    return len(chunks.groups) / LENGTH + share * chunks.cost < WORTH_WHILE * chunks.cost
