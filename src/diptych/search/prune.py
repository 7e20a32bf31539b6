"""The pruned scan: the same answer as the plain one, from a look at few slices.

Knows scores, runs of slices and their parts. A run whose bound cannot beat the worst match so far is left out, whole;
so is a part of a run that stays in. Equal distances are settled by volume, so a later volume with an equal bound is
left out too. How much this saves depends on the archive and the query: survivors are counted, and where too many are
left the plain scan takes over.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diptych.search.bounds import admitted, lower
from diptych.search.chunks import LENGTH, PART, Chunks, LevelName
from diptych.search.pool import Pool
from diptych.search.scan import Selection, plain_scan, rank
from diptych.search.score import Keys, Score, expand

OVERHEAD = 2_000_000
"""What pruning costs however small the archive is, in cells looked up."""

SEEDS = {"runs": 20, "parts": 40}
"""Runs, and parts, per match wanted, that are looked at to find a limit."""

MANY = 25_000
"""Parts, above which it pays to look for a better limit than runs gave."""

WORTH_WHILE = 0.9
"""Pruning pays where it costs less than this part of a plain scan."""


@dataclass(frozen=True, eq=False)
class Pruned:
    """What a pruned scan found."""

    keys: Keys
    """The best key of each volume that can be among the matches, `[V]`; of others, nothing."""
    paid: bool
    """Whether it cost less than a plain scan."""


@dataclass(frozen=True, eq=False)
class Runs:
    """Some runs of slices, or some parts of runs, ascending."""

    chunks: Chunks
    level: LevelName
    chosen: NDArray[np.int64]

    @classmethod
    def of_volumes(cls, chunks: Chunks, volumes: NDArray[np.int64]) -> Runs:
        """All runs of some volumes, none of which is empty."""
        return cls(chunks, "runs", expand(chunks.first_of_volume[volumes], chunks.first_of_volume[volumes + 1]))

    def parts(self) -> Runs:
        """The parts of runs."""
        first = self.chunks.first_of_run
        return Runs(self.chunks, "parts", expand(first[self.chosen], first[self.chosen + 1]))

    def __len__(self) -> int:
        return len(self.chosen)

    @property
    def volumes(self) -> NDArray[np.int32]:
        """Volume of every run there is."""
        return self.chunks.volumes if self.level == "runs" else self.chunks.volumes_of_parts

    @property
    def cost(self) -> float:
        """What it costs to scan them, in cells looked up: changes are listed for whole runs alone."""
        return len(self) * (LENGTH * self.chunks.cost if self.level == "runs" else PART * len(self.chunks.groups))

    @property
    def bounds_cost(self) -> int:
        """What it costs to bound them, in cells looked up."""
        return len(self) * len(self.chunks.groups)

    def best(self, score: Score, selection: Selection, pool: Pool) -> Keys:
        """The smallest key in each volume's runs, `[V]`."""
        edges = self.chunks.level(self.level).starts
        keys = score.minima(edges[self.chosen], edges[self.chosen + 1], pool, selection.slices)
        best = np.full(len(selection.starts), score.nothing, dtype=keys.dtype)
        lower(best, self.chosen, self.volumes, keys)
        return best


@dataclass(frozen=True, order=True)
class Limit:
    """The worst match so far; what is not better than it, by key and then by volume, is of no use."""

    key: float
    volume: int


def pruned_scan(score: Score, selection: Selection, pool: Pool) -> Pruned:
    """Leave out runs, then parts of runs, and scan what is left; everything, where that is the quicker way."""
    everything = Runs.of_volumes(score.terms[0].look_up.chunks, selection.volumes)
    allowance = WORTH_WHILE * everything.cost - OVERHEAD - everything.bounds_cost
    if allowance > 0:
        runs, limit = leave_out(everything, None, score, selection, pool)
        allowance -= LENGTH // PART * runs.bounds_cost
        if runs.cost / 2 < allowance:  # a guess: parts are seldom more than half of what runs are
            parts, _ = leave_out(runs.parts(), limit, score, selection, pool)
            left = min(runs, parts, key=lambda those: those.cost)
            return Pruned(left.best(score, selection, pool), paid=left.cost < allowance)
    return Pruned(plain_scan(score, selection, pool), paid=False)


def leave_out(runs: Runs, limit: Limit | None, score: Score, selection: Selection, pool: Pool) -> tuple[Runs, Limit]:
    """The runs that may hold a match, and the limit that tells."""
    bounds = score.bounds(runs.level, runs.chosen, pool)
    if limit is None or len(runs) > MANY:
        found = find_limit(runs, bounds, score, selection, pool)
        limit = found if limit is None else min(limit, found)
    return Runs(runs.chunks, runs.level, admitted(runs.chosen, bounds, runs.volumes, limit.key, limit.volume)), limit


def find_limit(runs: Runs, bounds: Keys, score: Score, selection: Selection, pool: Pool) -> Limit:
    """Look at the most promising runs; the true matches are no worse than the best in these."""
    wanted = SEEDS[runs.level] * selection.top
    while True:
        seeds = runs if wanted >= len(runs) else Runs(runs.chunks, runs.level, runs.chosen[_smallest(bounds, wanted)])
        keys = seeds.best(score, selection, pool)
        order = rank(keys, np.arange(len(keys)), selection.groups, selection.top, score.nothing)
        if len(order) == selection.top:
            return Limit(keys[order[-1]].item(), order[-1])
        if wanted >= len(runs):
            return Limit(score.nothing, len(selection.starts))
        wanted *= 8


def _smallest(values: Keys, count: int) -> NDArray[np.intp]:
    """Places of the `count` smallest values, ascending; of equal values the first ones."""
    edge = np.partition(values, count - 1)[count - 1]
    below, equal = np.flatnonzero(values < edge), np.flatnonzero(values == edge)
    return np.sort(np.concatenate([below, equal[: count - len(below)]]))
