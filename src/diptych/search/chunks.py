"""`Chunks`: the slices of one panel in runs, and the runs in parts: what occurs in each, and what changes.

Knows ids and volumes' borders; nothing about queries. `symbols.py` tells how it is written what occurs, `changes.py`
what changes. Bounds of runs are looked at first; bounds of parts are tighter, and looked at where runs do not suffice.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from diptych.compiling import compiled
from diptych.search.changes import DEARER, Changes, list_changes
from diptych.search.panel_codes import Ids, whole_words
from diptych.search.tables import DistanceTable

Ints = NDArray[np.integer]
LevelName = Literal["runs", "parts"]

LENGTH = 32
"""Slices per run."""

PART = 8
"""Slices per part of a run."""


@dataclass(frozen=True, eq=False)
class Chunks:
    """The G runs of one panel. They never cross volumes."""

    groups: NDArray[np.uint8]
    """`[P, K]`, group of each code at each position, or `UNUSED`."""
    volumes: NDArray[np.int32]
    """Volume of each run."""
    symbols: NDArray[np.uint8]
    sets: NDArray[np.uint16]
    starts: NDArray[np.int32]
    """The `Level` of runs."""
    part_symbols: NDArray[np.uint8]
    part_sets: NDArray[np.uint16]
    part_starts: NDArray[np.int32]
    """The `Level` of parts."""
    change_rows: Ids
    change_places: NDArray[np.uint16]
    change_slots: NDArray[np.uint8]
    change_firsts: NDArray[np.int64]
    change_offsets: NDArray[np.int64]
    """The runs' `Changes`."""

    @cached_property
    def runs(self) -> Level:
        """What occurs in runs."""
        return Level(self.symbols, self.sets, self.starts)

    @cached_property
    def parts(self) -> Level:
        """What occurs in parts of runs."""
        return Level(self.part_symbols, self.part_sets, self.part_starts)

    def level(self, name: LevelName) -> Level:
        """Runs, or parts of runs."""
        return self.runs if name == "runs" else self.parts

    @cached_property
    def changes(self) -> Changes:
        """What changes from slice to slice within the runs."""
        return Changes(self.change_rows, self.change_places, self.change_slots, self.change_firsts, self.change_offsets)

    @cached_property
    def first_of_volume(self) -> NDArray[np.int64]:
        """First run of each volume up to the last that has slices, and the number of runs at the end."""
        last = int(self.volumes[-1]) if len(self.volumes) else -1
        return np.searchsorted(self.volumes, np.arange(last + 2)).astype(np.int64)

    @cached_property
    def first_of_run(self) -> NDArray[np.int64]:
        """First part of each run, and the number of parts at the end."""
        return np.searchsorted(self.part_starts, self.starts).astype(np.int64)

    @cached_property
    def volumes_of_parts(self) -> NDArray[np.int32]:
        """Volume of each part."""
        return np.repeat(self.volumes, np.diff(self.first_of_run))

    @property
    def cost(self) -> float:
        """What a slice costs a scan, in cells looked up."""
        cells = len(self.groups)
        return DEARER * len(self.change_places) / int(self.starts[-1]) if self.changes else cells

    def runs_between(self, starts: Ints, stops: Ints) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """First run, and run after the last, of each range of slices; nothing where a range cuts a run."""
        begins, ends = np.empty(len(starts), np.int64), np.empty(len(starts), np.int64)
        whole = _find_runs(self.starts, self._first_near, starts, begins) and _find_runs(
            self.starts, self._first_near, stops, ends
        )
        return (begins, ends) if whole else None

    @cached_property
    def _first_near(self) -> NDArray[np.int32]:
        """The first run that begins at or after each `LENGTH`th slice."""
        return np.searchsorted(self.starts, np.arange(0, int(self.starts[-1]) + 1, LENGTH)).astype(np.int32)

    @property
    def nbytes(self) -> int:
        """Bytes that grow with the archive."""
        return self.runs.nbytes + self.parts.nbytes + self.volumes.nbytes + self.changes.nbytes


def mark_chunks(
    ids: NDArray[np.integer], volume_starts: NDArray[np.int64], groups: NDArray[np.uint8], packed: Ids
) -> Chunks:
    """Cut each volume into runs and write down what occurs in them, and what changes."""
    starts, part_starts = run_starts(volume_starts, LENGTH), run_starts(volume_starts, PART)
    volumes = np.searchsorted(volume_starts, starts[:-1], side="right") - 1
    changes = list_changes(packed, ids.shape[1], starts)
    return Chunks(
        groups,
        volumes.astype(np.int32),
        *describe_runs(ids, starts, groups),
        starts,
        *describe_runs(ids, part_starts, groups),
        part_starts,
        changes.rows,
        changes.places,
        changes.slots,
        changes.firsts,
        changes.offsets,
    )


def run_starts(volume_starts: NDArray[np.int64], length: int) -> NDArray[np.int32]:
    """First slices of runs of `length` that begin anew with each volume, and N at the end.

    >>> run_starts(np.array([0, 5, 5, 7]), 3).tolist()
    [0, 3, 5, 7]
    """
    runs = -(-np.diff(volume_starts) // length)
    within = np.arange(runs.sum()) - np.repeat(np.cumsum(runs) - runs, runs)
    starts = np.repeat(volume_starts[:-1], runs) + within * length
    return np.append(starts, volume_starts[-1]).astype(np.int32)


@compiled
def _find_runs(starts: Ints, first_near: Ints, slices: Ints, found: Ints) -> bool:
    """The runs that begin with some slices, into `found`; false when one of them begins no run."""
    for place in range(len(slices)):
        run = first_near[slices[place] // LENGTH]
        while starts[run] < slices[place]:
            run += 1
        if starts[run] != slices[place]:
            return False
        found[place] = run
    return True


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
