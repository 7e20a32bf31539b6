"""The compiled loops over many queries at once, whose entries for one cell and id stand side by side.

Knows arrays alone. `change_batch_minima` is `change_minima` for many queries; `batch_minima` finds the changes itself,
for archives that have no list of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.compiling import compiled, compiled_inline
from diptych.search.kernels import HUGE

__all__ = ["QUERIES_PER_BATCH", "batch_minima", "change_batch_minima"]

QUERIES_PER_BATCH = 64
"""Queries that one pass over the archive serves."""

Ints = NDArray[np.integer]
Sums = NDArray[np.int32]


@compiled_inline
def lower(best: Sums, sums: Sums) -> None:
    """Keep the smaller of two sums for every query."""
    for q in range(QUERIES_PER_BATCH):
        best[q] = min(best[q], sums[q])


@compiled_inline
def lower_with_rare(
    best: Sums, sums: Sums, total: Sums, rare: Any, until: Any, cells: Ints, codes: Ints, excess: Sums
) -> None:
    """The same for a row with rare cells, once what they add is known."""
    total[:] = sums
    for place in range(rare, until):
        entries = excess[cells[place], codes[place]]
        for q in range(QUERIES_PER_BATCH):
            total[q] += entries[q]
    lower(best, total)


@compiled
def change_batch_minima(
    rows: Ints,
    places: Ints,
    slots: Ints,
    firsts: Ints,
    starts: Ints,
    offsets: Ints,
    tables: Sums,
    begins: Ints,
    ends: Ints,
    rare_slice: Ints,
    rare_cell: Ints,
    rare_code: Ints,
    excess: Sums,
    minima: Sums,
) -> None:
    """The smallest row sums in each range of runs for many queries at once, into `minima` `[ranges, queries]`."""
    steps = np.zeros((256, QUERIES_PER_BATCH), np.int32)
    sums = np.zeros(QUERIES_PER_BATCH, np.int32)
    total = np.zeros(QUERIES_PER_BATCH, np.int32)
    best = np.zeros(QUERIES_PER_BATCH, np.int32)
    for r in range(len(begins)):
        best[:] = HUGE
        rare = np.searchsorted(rare_slice, starts[begins[r]]) if len(rare_slice) else 0
        for run in range(begins[r], ends[r]):
            at, stop = np.uint64(firsts[run]), np.uint64(firsts[run + 1])
            before = tables[np.uint64(0)]
            while at < stop:
                entries, step = tables[np.uint64(places[at])], steps[np.uint64(slots[at])]
                for q in range(QUERIES_PER_BATCH):
                    step[q] = np.int32(step[q] + entries[q] - before[q])
                before = entries
                at += np.uint64(1)
            sums[:] = 0
            for p in range(len(offsets) - 1):
                entries = tables[np.uint64(offsets[p] + rows[run, p])]
                for q in range(QUERIES_PER_BATCH):
                    sums[q] += entries[q]
            steps[0] = 0
            for slot in range(np.uint64(starts[run + 1] - starts[run])):
                step = steps[slot]
                for q in range(QUERIES_PER_BATCH):
                    sums[q] += step[q]
                    step[q] = 0
                until = rare
                while until < len(rare_slice) and rare_slice[until] == starts[run] + np.int64(slot):
                    until += 1
                if until > rare:
                    lower_with_rare(best, sums, total, rare, until, rare_cell, rare_code, excess)
                    rare = until
                else:
                    lower(best, sums)
        minima[r] = best


@compiled_inline
def exchange(sums: Sums, tables: Sums, places: Any, ids: Ints, first: Any, cells: Any, changed: Any) -> None:
    """Put the entries of changed cells in the place of the previous row's, two cells per turn."""
    k = 0
    while k + 1 < len(changed):
        p, o = changed[k], changed[k + 1]
        a, b = tables[p * places + np.uint64(ids[first + p])], tables[p * places + np.uint64(ids[first + p - cells])]
        c, d = tables[o * places + np.uint64(ids[first + o])], tables[o * places + np.uint64(ids[first + o - cells])]
        for q in range(QUERIES_PER_BATCH):
            sums[q] += np.int32(a[q] - b[q] + c[q] - d[q])
        k += 2
    if k < len(changed):
        p = changed[k]
        a, b = tables[p * places + np.uint64(ids[first + p])], tables[p * places + np.uint64(ids[first + p - cells])]
        for q in range(QUERIES_PER_BATCH):
            sums[q] += np.int32(a[q] - b[q])


@compiled
def batch_minima(
    ids: Ints,
    cells: int,
    tables: Sums,
    places: int,
    starts: Ints,
    stops: Ints,
    rare_slice: Ints,
    rare_cell: Ints,
    rare_code: Ints,
    excess: Sums,
    minima: Sums,
) -> None:
    """The smallest row sums of each range for many queries at once, into `minima` `[ranges, queries]`.

    `tables` `[cells * places, queries]` holds all queries' entries for one cell and id side by side. Neighbouring
    slices share most of their ids, so only cells that changed are taken out of the sums and put in again; whole
    numbers make that exact.
    """
    width, step = np.uint64(cells), np.uint64(places)
    sums = np.zeros(QUERIES_PER_BATCH, np.int32)
    total = np.zeros(QUERIES_PER_BATCH, np.int32)
    best = np.zeros(QUERIES_PER_BATCH, np.int32)
    changed = np.zeros(cells + 1, np.uint64)
    for r in range(len(starts)):
        best[:] = HUGE
        rare = np.searchsorted(rare_slice, starts[r]) if len(rare_slice) else 0
        for row in range(starts[r], stops[r]):
            first = np.uint64(row) * width
            if row == starts[r]:
                sums[:] = 0
                for p in range(width):
                    entries = tables[p * step + np.uint64(ids[first + p])]
                    for q in range(QUERIES_PER_BATCH):
                        sums[q] += entries[q]
            else:
                count = np.uint64(0)
                for p in range(width):
                    changed[count] = p
                    count += np.uint64(ids[first + p] != ids[first + p - width])
                exchange(sums, tables, step, ids, first, width, changed[:count])
            until = rare
            while until < len(rare_slice) and rare_slice[until] == row:
                until += 1
            if until > rare:
                lower_with_rare(best, sums, total, rare, until, rare_cell, rare_code, excess)
                rare = until
            else:
                lower(best, sums)
        minima[r] = best
