"""Which codes occur in runs of neighbouring slices, one byte per run and grid position.

Knows ids and where runs begin; nothing about queries.

No slice of a run can be nearer to a query than the sum, over positions, of the nearest code that occurs there anywhere
in the run: an exact bound at the price of one row scan per run. What occurs at a position is written as one of 256
symbols. The commonest sets of codes have symbols of their own; any other set is described by the groups of similar
codes that it touches, which makes the bound a little lower and never wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from diptych.compiling import compiled
from diptych.search.codes import whole_words
from diptych.tables import DistanceTable

__all__ = ["GROUPS", "Level", "describe_runs", "group_codes"]

GROUPS = 6
"""Groups of codes per position; symbols below 2⁶ are the groups that occur, one bit each."""

SETS = 256 - 2**GROUPS
"""Sets of codes per position that have a symbol of their own, 2⁶ and up."""

LARGEST_SET = 4
"""Codes in such a set at most."""

UNUSED = 255
"""Group of codes that no slice has at a position."""

CELLS_AT_ONCE = 8
NO_SET = np.uint64(2**64 - 1)

COUNTED = 4096
"""Runs, at most, from which it is told how often each symbol occurs."""


@dataclass(frozen=True, eq=False)
class Level:
    """All runs of one length."""

    symbols: NDArray[np.uint8]
    """`[G, P]`, filled up with zeros to whole 64-bit words."""
    sets: NDArray[np.uint16]
    """`[P, SETS, 4]`, codes of the sets with a symbol of their own; smaller sets repeat a code."""
    starts: NDArray[np.int32]
    """First slice of each run, and N at the end."""

    @property
    def nbytes(self) -> int:
        """Bytes that grow with the archive."""
        return self.symbols.nbytes + self.starts.nbytes

    @cached_property
    def counts(self) -> NDArray[np.int32]:
        """How often each symbol stands at each position in some of the runs, `[P, 256]`."""
        some = self.symbols[:: max(1, len(self.symbols) // COUNTED), : len(self.sets)]
        return np.stack([np.bincount(column, minlength=256) for column in some.T]).astype(np.int32)


def group_codes(ids: NDArray[np.integer], table: DistanceTable, *, rounds: int = 6) -> NDArray[np.uint8]:
    """Put the codes that occur at each position into groups of near ones (k-medoids on the table), `[P, K]`."""
    entries = table.entries.astype(np.float64)
    if table.kind == "angle":
        entries = np.add.outer(np.diag(entries), np.diag(entries)) - 2 * entries
    groups = np.full((ids.shape[1], table.codes), UNUSED, dtype=np.uint8)
    for cell, column in enumerate(ids.T):
        counts = np.bincount(column, minlength=table.codes)
        used = np.flatnonzero(counts)
        if len(used):
            groups[cell, used] = _medoid_groups(entries[np.ix_(used, used)], np.sqrt(counts[used]), rounds)
    return groups


def _medoid_groups(distances: NDArray[np.float64], weights: NDArray[np.float64], rounds: int) -> NDArray[np.intp]:
    """Nearest of a few medoids for each of n codes; the commonest codes are the first medoids."""
    medoids = np.argsort(-weights, kind="stable")[:GROUPS]
    for _ in range(rounds if len(distances) > GROUPS else 0):
        nearest = np.argmin(distances[:, medoids], axis=1)
        member = nearest[:, None] == np.arange(len(medoids))
        cost = np.where(member, distances @ (member * weights[:, None]), np.inf)
        medoids = np.where(member.any(axis=0), np.argmin(cost, axis=0), medoids)
    return np.asarray(np.argmin(distances[:, medoids], axis=1))


def describe_runs(
    ids: NDArray[np.integer], starts: NDArray[np.int32], groups: NDArray[np.uint8]
) -> tuple[NDArray[np.uint8], NDArray[np.uint16]]:
    """Symbols `[G, P]` of all runs, and the sets that have symbols of their own."""
    cells = ids.shape[1]
    symbols = np.zeros((len(starts) - 1, whole_words(cells)), dtype=np.uint8)
    sets = np.zeros((cells, SETS, LARGEST_SET), dtype=np.uint16)
    for first in range(0, cells, CELLS_AT_ONCE):
        some = slice(first, min(first + CELLS_AT_ONCE, cells))
        occurring = np.empty((some.stop - some.start, len(symbols)), dtype=np.uint64)
        _collect(ids[:, some], groups[some], starts, symbols[:, some], occurring)
        for cell, words in zip(range(some.start, some.stop), occurring, strict=True):
            common = _commonest(words)
            place = np.searchsorted(common, words)
            known = common[np.minimum(place, len(common) - 1)] == words if len(common) else np.zeros(0, np.bool_)
            symbols[: len(known), cell][known] = (2**GROUPS + place[known]).astype(np.uint8)
            sets[cell, : len(common)] = common[:, None] >> np.arange(0, 64, 16, dtype=np.uint64) & np.uint64(0xFFFF)
    return symbols, sets


def _commonest(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The commonest sets among some of the runs, ascending."""
    values, counts = np.unique(words[:: max(1, len(words) // 40_000)], return_counts=True)
    counts[values == NO_SET] = 0
    chosen = np.argsort(-counts, kind="stable")[:SETS]
    return np.sort(values[chosen[counts[chosen] > 0]])


@compiled
def _collect(
    ids: NDArray[np.integer],
    groups: NDArray[np.uint8],
    starts: NDArray[np.int32],
    marks: NDArray[np.uint8],
    sets: NDArray[np.uint64],
) -> None:
    """Per run and position: the groups that occur, and the codes, four times 16 bits ascending, if they are few."""
    codes = np.empty(LARGEST_SET, np.uint64)
    for run in range(len(starts) - 1):
        for cell in range(ids.shape[1]):
            count, mark = 0, 0
            for row in range(starts[run], starts[run + 1]):
                code = np.uint64(ids[row, cell])
                mark |= 1 << groups[cell, ids[row, cell]]
                place = 0
                while place < min(count, LARGEST_SET) and codes[place] < code:
                    place += 1
                if place < min(count, LARGEST_SET) and codes[place] == code:
                    continue
                for later in range(min(count, LARGEST_SET - 1), place, -1):
                    codes[later] = codes[later - 1]
                if place < LARGEST_SET:
                    codes[place] = code
                count += 1
            marks[run, cell] = mark
            word = np.uint64(0)
            for place in range(LARGEST_SET):
                word |= codes[min(place, count - 1)] << np.uint64(16 * place)
            sets[cell, run] = word if count <= LARGEST_SET else NO_SET
