"""`Changes`: the ids of one panel once more, as what changes from slice to slice.

Knows packed ids and runs of slices; nothing about queries.

Neighbouring slices share most of their ids. For each run and each position that changes in it, the list has the first
slice's id, and an id again wherever it differs from the slice before. A scan then looks up the first slice's row, and
each of these once, instead of every cell of every slice. Ids of one position stand together: a scan needs to remember
one entry only, and meets the same few entries of its table again and again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.compiling import compiled, compiled_inline, prefetch
from diptych.search.kernels import HUGE, Words, byte_row_sum
from diptych.search.panel_codes import Ids

DEARER = 3
"""A change costs a scan as much as so many cells of a row."""

SAMPLE = 20_000
"""Runs that are counted to tell whether the list pays."""


@dataclass(frozen=True, eq=False)
class Changes:
    """All changes in G runs; without any where rows are quicker to scan."""

    rows: Ids
    """`[G, ≥ P]`, the first slice of each run as it is packed."""
    places: NDArray[np.uint16]
    """`[E]`, place of the new id in a flat look-up table."""
    slots: NDArray[np.uint8]
    """`[E]`, the slice within the run; 0 begins the list of a position."""
    firsts: NDArray[np.int64]
    """`[G + 1]`, first change of each run, and E at the end; empty without a list."""
    offsets: NDArray[np.int64]
    """`[P + 1]`, first place of each position, and their number at the end."""

    def __bool__(self) -> bool:
        return len(self.firsts) > 0

    @property
    def nbytes(self) -> int:
        """Bytes that grow with the archive."""
        return self.rows.nbytes + self.places.nbytes + self.slots.nbytes + self.firsts.nbytes

    def flat_table(self, places: NDArray[np.int32]) -> NDArray[np.int32]:
        """Entries `[P, A]` by place in the alphabet, as the scan wants them."""
        return _flatten(places, self.offsets)


def list_changes(packed: Ids, cells: int, starts: NDArray[np.int32]) -> Changes:
    """List the changes of packed ids `[N, ≥ cells]` in the runs that begin at `starts`, if scanning them pays."""
    widths = packed[:, :cells].max(axis=0, initial=0).astype(np.int64) + 1
    offsets = np.append(0, np.cumsum(widths))
    nothing = np.empty(0, np.int64)
    some = starts[: SAMPLE + 1]
    if packed.dtype != np.uint8 or offsets[-1] > 2**16 or len(starts) < 2:
        return Changes(packed[:0], np.empty(0, np.uint16), np.empty(0, np.uint8), nothing, offsets)
    if DEARER * int(_count(packed, cells, some)[-1]) > cells * int(some[-1]):
        return Changes(packed[:0], np.empty(0, np.uint16), np.empty(0, np.uint8), nothing, offsets)
    firsts = _count(packed, cells, starts)
    places, slots = np.empty(firsts[-1], np.uint16), np.empty(firsts[-1], np.uint8)
    _list(packed, starts, offsets, firsts, places, slots)
    return Changes(packed[starts[:-1]], places, slots, firsts, offsets)


@compiled
def _flatten(places: NDArray[np.int32], offsets: NDArray[np.int64]) -> NDArray[np.int32]:
    """The places of each position that are used, one position after the other."""
    table = np.empty(offsets[-1], np.int32)
    for cell in range(len(offsets) - 1):
        table[offsets[cell] : offsets[cell + 1]] = places[cell, : offsets[cell + 1] - offsets[cell]]
    return table


@compiled
def _count(packed: Ids, cells: int, starts: NDArray[np.int32]) -> NDArray[np.int64]:
    """First change of each run, and their number at the end."""
    firsts = np.zeros(len(starts), np.int64)
    for run in range(len(starts) - 1):
        count = 0
        for cell in range(cells):
            changes = 0
            for row in range(starts[run] + 1, starts[run + 1]):
                changes += packed[row, cell] != packed[row - 1, cell]
            count += changes + (changes > 0)
        firsts[run + 1] = firsts[run] + count
    return firsts


@compiled
def _list(
    packed: Ids,
    starts: NDArray[np.int32],
    offsets: NDArray[np.int64],
    firsts: NDArray[np.int64],
    places: NDArray[np.uint16],
    slots: NDArray[np.uint8],
) -> None:
    """Write the changes down."""
    for run in range(len(starts) - 1):
        at = firsts[run]
        for cell in range(len(offsets) - 1):
            begin = at
            for row in range(starts[run] + 1, starts[run + 1]):
                if packed[row, cell] != packed[row - 1, cell]:
                    at += 1
                    places[at] = offsets[cell] + packed[row, cell]
                    slots[at] = row - starts[run]
            if at > begin:
                places[begin] = offsets[cell] + packed[starts[run], cell]
                slots[begin] = 0
                at += 1


Ints = NDArray[np.integer]
Sums = NDArray[np.int32]

AHEAD = 2
"""How many ranges ahead changes are fetched from memory."""

FETCHED = 512
"""Changes of a range that are fetched; the machine sees by itself that more follow."""


@compiled_inline
def note_steps(places: Ints, slots: Ints, first: Any, end: Any, table: Sums, steps: Sums) -> None:
    """Add to each slot of a run by how much its row sum differs from the previous one; slot 0 gets nonsense."""
    at, stop = np.uint64(first), np.uint64(end)
    before = np.int32(0)
    while at < stop:
        entry = table[np.uint64(places[at])]
        slot = np.uint64(slots[at])
        steps[slot] = np.int32(steps[slot] + (entry - before))
        before = entry
        at += np.uint64(1)


@compiled_inline
def fetch_changes(places: Ints, slots: Ints, first: Any, end: Any) -> None:
    """Have a range's changes on their way from memory while earlier ranges are worked on."""
    at = np.uint64(first)
    stop = min(np.uint64(end), at + np.uint64(FETCHED))
    while at < stop:
        prefetch(places, at)
        prefetch(places, at + np.uint64(32))
        prefetch(slots, at)
        at += np.uint64(64)


@compiled
def change_minima(
    words: Words,
    count: int,
    table: Sums,
    places: Ints,
    slots: Ints,
    firsts: Ints,
    starts: Ints,
    entries: Sums,
    begins: Ints,
    ends: Ints,
    rare_slice: Ints,
    rare_cell: Ints,
    rare_code: Ints,
    excess: Sums,
    minima: Sums,
) -> None:
    """The smallest row sum in each range of runs, into `minima`."""
    width = np.uint64(count)
    steps = np.zeros(256, np.int32)
    for r in range(len(begins)):
        if r + AHEAD < len(begins):
            prefetch(words, np.uint64(begins[r + AHEAD]) * width)
            fetch_changes(places, slots, firsts[begins[r + AHEAD]], firsts[ends[r + AHEAD]])
        best = np.int32(HUGE)
        rare = np.searchsorted(rare_slice, starts[begins[r]]) if len(rare_slice) else 0
        for run in range(begins[r], ends[r]):
            note_steps(places, slots, firsts[run], firsts[run + 1], entries, steps)
            if width == np.uint64(8):  # 64 cells, the commonest grid: a length that the compiler can unroll
                steps[0] = byte_row_sum(words, np.uint64(run) * np.uint64(8), np.uint64(8), table)
            else:
                steps[0] = byte_row_sum(words, np.uint64(run) * width, width, table)
            row_sum = np.int32(0)
            for slot in range(np.uint64(starts[run + 1] - starts[run])):
                row_sum = np.int32(row_sum + steps[slot])
                steps[slot] = 0
                if len(rare_slice) == 0:
                    best = min(best, row_sum)  # without a branch, which nobody could foresee
                elif row_sum < best:  # before what rare cells add, so that most rows need not look for them
                    total, row = row_sum, starts[run] + np.int64(slot)
                    while rare < len(rare_slice) and rare_slice[rare] <= row:
                        if rare_slice[rare] == row:
                            total = np.int32(total + excess[rare_cell[rare], rare_code[rare]])
                        rare += 1
                    best = min(best, total)
        minima[r] = best


@compiled
def change_sums(
    words: Words,
    count: int,
    table: Sums,
    places: Ints,
    slots: Ints,
    firsts: Ints,
    starts: Ints,
    entries: Sums,
    begins: Ints,
    ends: Ints,
    rare_slice: Ints,
    rare_cell: Ints,
    rare_code: Ints,
    excess: Sums,
    sums: Sums,
) -> None:
    """All row sums in each range of runs, one range after the other, into `sums`."""
    width = np.uint64(count)
    steps = np.zeros(256, np.int32)
    at = np.uint64(0)
    for r in range(len(begins)):
        if r + AHEAD < len(begins):
            prefetch(words, np.uint64(begins[r + AHEAD]) * width)
            fetch_changes(places, slots, firsts[begins[r + AHEAD]], firsts[ends[r + AHEAD]])
        rare = np.searchsorted(rare_slice, starts[begins[r]]) if len(rare_slice) else 0
        for run in range(begins[r], ends[r]):
            note_steps(places, slots, firsts[run], firsts[run + 1], entries, steps)
            if width == np.uint64(8):  # 64 cells, the commonest grid: a length that the compiler can unroll
                steps[0] = byte_row_sum(words, np.uint64(run) * np.uint64(8), np.uint64(8), table)
            else:
                steps[0] = byte_row_sum(words, np.uint64(run) * width, width, table)
            row_sum = np.int32(0)
            for slot in range(np.uint64(starts[run + 1] - starts[run])):
                row_sum = np.int32(row_sum + steps[slot])
                steps[slot] = 0
                total = row_sum
                while rare < len(rare_slice) and rare_slice[rare] == starts[run] + np.int64(slot):
                    total = np.int32(total + excess[rare_cell[rare], rare_code[rare]])
                    rare += 1
                sums[at] = total
                at += np.uint64(1)
