"""The compiled loops of search: sums of look-ups, one row of packed ids after the other.

Knows arrays alone. What makes these loops quick: ids packed with their commonest values first; look-up rows an odd
number of cache lines apart (a power of two would alias in the first-level cache), and for one-byte ids a distance
known to the compiler; indices without a sign (a signed one is checked for being negative); eight look-ups per turn;
whole numbers throughout. Gather instructions, early abandoning and position-major layouts were measured and lose.

`rare_*` and `excess` carry cells that a one-byte alphabet could not hold: the row sum has the cheapest rare code in
their place, and the loop adds what is missing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.compiling import compiled, compiled_inline, prefetch

__all__ = ["BYTE_STRIDE", "HUGE", "QUERIES_PER_BATCH", "batch_minima", "range_minima", "range_sums", "symbol_entries"]

BYTE_STRIDE = 272
"""Entries from one look-up row to the next for one-byte ids: 256, and a cache line more."""

QUERIES_PER_BATCH = 64
"""Queries that one pass over the archive serves."""

AHEAD = 4
"""How many ranges ahead rows are fetched from memory: scattered rows then cost what neighbouring ones do."""

HUGE = 2**31 - 1
"""Stands for "nothing found" among sums."""

Ints = NDArray[np.integer]
Sums = NDArray[np.int32]


@compiled_inline
def row_sum(ids: Ints, first: np.uint64, cells: np.uint64, table: Sums, stride: np.uint64) -> Any:
    """Σ_p table[p, ids[p]] for the row of `ids` that begins at `first`; everything flat, numbers unsigned."""
    a = np.int64(0)
    b = np.int64(0)
    for turn in range(cells // np.uint64(8)):
        at = np.uint64(turn) * (stride * np.uint64(8))
        p = first + np.uint64(turn) * np.uint64(8)
        a += table[at + np.uint64(ids[p])]
        b += table[at + stride + np.uint64(ids[p + np.uint64(1)])]
        a += table[at + stride * np.uint64(2) + np.uint64(ids[p + np.uint64(2)])]
        b += table[at + stride * np.uint64(3) + np.uint64(ids[p + np.uint64(3)])]
        a += table[at + stride * np.uint64(4) + np.uint64(ids[p + np.uint64(4)])]
        b += table[at + stride * np.uint64(5) + np.uint64(ids[p + np.uint64(5)])]
        a += table[at + stride * np.uint64(6) + np.uint64(ids[p + np.uint64(6)])]
        b += table[at + stride * np.uint64(7) + np.uint64(ids[p + np.uint64(7)])]
    for rest in range(cells & ~np.uint64(7), cells):
        a += table[np.uint64(rest) * stride + np.uint64(ids[first + np.uint64(rest)])]
    return a + b


@compiled
def symbol_entries(entries: Sums, groups: NDArray[np.uint8], count: int, sets: NDArray[np.uint16]) -> Sums:
    """For each position and symbol of runs the smallest entry of any code it stands for, `[P, BYTE_STRIDE]`."""
    table = np.zeros((len(entries), BYTE_STRIDE), np.int32)
    nearest = np.empty(count, np.int32)
    for cell in range(len(entries)):
        nearest[:] = HUGE
        for code in range(entries.shape[1]):
            group = groups[cell, code]
            if group < count:
                nearest[group] = min(nearest[group], entries[cell, code])
        table[cell, 0] = HUGE
        for marks in range(1, 1 << count):
            group = 0
            while not (marks >> group) & 1:
                group += 1
            table[cell, marks] = min(table[cell, marks & (marks - 1)], nearest[group])
        for place in range(sets.shape[1]):
            smallest = entries[cell, sets[cell, place, 0]]
            for member in range(1, sets.shape[2]):
                smallest = min(smallest, entries[cell, sets[cell, place, member]])
            table[cell, (1 << count) + place] = smallest
    return table


@compiled_inline
def fetch(ids: Ints, cells: np.uint64, starts: Ints, stops: Ints, ahead: int) -> None:
    """Have the first rows of a range on their way from memory while earlier ranges are worked on."""
    if ahead < len(starts):
        at = np.uint64(starts[ahead]) * cells
        end = min(np.uint64(stops[ahead]) * cells, at + np.uint64(256))
        while at < end:
            prefetch(ids, at)
            at += np.uint64(64)


@compiled
def range_minima(
    ids: Ints,
    cells: int,
    table: Sums,
    stride: int,
    starts: Ints,
    stops: Ints,
    rare_slice: Ints,
    rare_cell: Ints,
    rare_code: Ints,
    excess: Sums,
    minima: Sums,
) -> None:
    """The smallest row sum of each range of rows, into `minima`."""
    width, step = np.uint64(cells), np.uint64(stride)
    for r in range(len(starts)):
        fetch(ids, width, starts, stops, r + AHEAD)
        best = np.int64(HUGE)
        rare = np.searchsorted(rare_slice, starts[r]) if len(rare_slice) else 0
        for row in range(starts[r], stops[r]):
            first = np.uint64(row) * width
            if step == np.uint64(BYTE_STRIDE):
                total = row_sum(ids, first, width, table, np.uint64(BYTE_STRIDE))
            else:
                total = row_sum(ids, first, width, table, step)
            if total < best:  # before what rare cells add, so that most rows need not look for them
                while rare < len(rare_slice) and rare_slice[rare] <= row:
                    if rare_slice[rare] == row:
                        total += excess[rare_cell[rare], rare_code[rare]]
                    rare += 1
                best = min(best, total)
        minima[r] = best


@compiled
def range_sums(
    ids: Ints,
    cells: int,
    table: Sums,
    stride: int,
    starts: Ints,
    stops: Ints,
    rare_slice: Ints,
    rare_cell: Ints,
    rare_code: Ints,
    excess: Sums,
    sums: Sums,
) -> None:
    """All row sums of each range of rows, one range after the other, into `sums`."""
    width, step = np.uint64(cells), np.uint64(stride)
    at = 0
    for r in range(len(starts)):
        fetch(ids, width, starts, stops, r + AHEAD)
        rare = np.searchsorted(rare_slice, starts[r]) if len(rare_slice) else 0
        for row in range(starts[r], stops[r]):
            first = np.uint64(row) * width
            if step == np.uint64(BYTE_STRIDE):
                total = row_sum(ids, first, width, table, np.uint64(BYTE_STRIDE))
            else:
                total = row_sum(ids, first, width, table, step)
            while rare < len(rare_slice) and rare_slice[rare] == row:
                total += excess[rare_cell[rare], rare_code[rare]]
                rare += 1
            sums[at] = total
            at += 1


@compiled_inline
def update_sums(sums: Sums, tables: Sums, fresh: Any, stale: Any, changed: Any) -> None:
    """Replace the entries of changed cells, two cells per turn."""
    k = np.uint64(0)
    while k + np.uint64(1) < changed:
        a, b = tables[fresh[k]], tables[stale[k]]
        c, d = tables[fresh[k + np.uint64(1)]], tables[stale[k + np.uint64(1)]]
        for q in range(QUERIES_PER_BATCH):
            sums[q] += np.int32(a[q] - b[q] + c[q] - d[q])
        k += np.uint64(2)
    if k < changed:
        a, b = tables[fresh[k]], tables[stale[k]]
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
    width = np.uint64(cells)
    sums = np.zeros(QUERIES_PER_BATCH, np.int32)
    total = np.zeros(QUERIES_PER_BATCH, np.int32)
    best = np.zeros(QUERIES_PER_BATCH, np.int32)
    fresh, stale = np.zeros(cells + 1, np.uint64), np.zeros(cells + 1, np.uint64)
    for r in range(len(starts)):
        best[:] = HUGE
        rare = np.searchsorted(rare_slice, starts[r]) if len(rare_slice) else 0
        for row in range(starts[r], stops[r]):
            first = np.uint64(row) * width
            if row == starts[r]:
                sums[:] = 0
                for p in range(width):
                    entries = tables[p * np.uint64(places) + np.uint64(ids[first + p])]
                    for q in range(QUERIES_PER_BATCH):
                        sums[q] += entries[q]
            else:
                changed = np.uint64(0)
                for p in range(width):
                    fresh[changed] = p * np.uint64(places) + np.uint64(ids[first + p])
                    stale[changed] = p * np.uint64(places) + np.uint64(ids[first + p - width])
                    changed += np.uint64(ids[first + p] != ids[first + p - width])
                update_sums(sums, tables, fresh, stale, changed)
            if rare < len(rare_slice) and rare_slice[rare] == row:
                total[:] = sums
                while rare < len(rare_slice) and rare_slice[rare] == row:
                    entries = excess[rare_cell[rare], rare_code[rare]]
                    for q in range(QUERIES_PER_BATCH):
                        total[q] += entries[q]
                    rare += 1
                for q in range(QUERIES_PER_BATCH):
                    best[q] = min(best[q], total[q])
            else:
                for q in range(QUERIES_PER_BATCH):
                    best[q] = min(best[q], sums[q])
        minima[r] = best
