"""The compiled loops over `Changes`: all row sums of a run from its first one and what changes.

Knows arrays alone. A change costs five accesses to memory and no branch: its place and slot, the new entry, and the
slot's step, read and written. Adding the steps up gives the sums, exactly, since they are whole numbers. The place of a
change as two bytes and its slot as one are quicker than both in one word, or than places counted within a position.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.compiling import compiled, compiled_inline, prefetch
from diptych.search.kernels import HUGE, Words, byte_row_sum

__all__ = ["change_minima", "change_sums"]

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
