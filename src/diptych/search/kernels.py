"""The compiled loops of search: sums of look-ups, one row of packed ids after the other.

Knows arrays alone. What makes these loops quick: ids packed with their commonest values first, and fetched eight at a
time; look-up rows an odd number of cache lines apart (a power of two would alias in the first-level cache), and for
one-byte ids a distance known to the compiler; indices without a sign (a signed one is checked for being negative);
32-bit sums; scattered rows fetched ahead. Gather instructions and early abandoning were measured and lose. Where
neighbouring rows are alike, `change_kernels.py` is quicker.

`rare_*` and `excess` carry cells that a one-byte alphabet could not hold: the row sum has the cheapest rare code in
their place, and the loop adds what is missing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.compiling import compiled, compiled_inline, prefetch

BYTE_STRIDE = 272
"""Entries from one look-up row to the next for one-byte ids: 256, and a cache line more."""

AHEAD = 4
"""How many ranges ahead rows are fetched from memory: scattered rows then cost what neighbouring ones do."""

FETCHED = 64
"""Words of a range that are fetched; the machine sees by itself that more follow."""

HUGE = 2**31 - 1
"""Stands for "nothing found" among sums."""

Ints = NDArray[np.integer]
Words = NDArray[np.uint64]
"""Rows of ids as 64-bit words: eight one-byte or four two-byte ids each, the last one filled up with zeros."""

Sums = NDArray[np.int32]


@compiled_inline
def byte_row_sum(words: Words, first: np.uint64, count: np.uint64, table: Sums) -> Any:
    """Σ_p table[p, id_p] for a row of `count` words, eight one-byte ids each, that begins at `first`."""
    a, b = np.int32(0), np.int32(0)
    for turn in range(count):
        ids = words[first + np.uint64(turn)]
        at = np.uint64(turn) * np.uint64(8 * BYTE_STRIDE)
        a = np.int32(a + table[at + (ids & np.uint64(255))])
        b = np.int32(b + table[at + np.uint64(1 * BYTE_STRIDE) + ((ids >> np.uint64(8)) & np.uint64(255))])
        a = np.int32(a + table[at + np.uint64(2 * BYTE_STRIDE) + ((ids >> np.uint64(16)) & np.uint64(255))])
        b = np.int32(b + table[at + np.uint64(3 * BYTE_STRIDE) + ((ids >> np.uint64(24)) & np.uint64(255))])
        a = np.int32(a + table[at + np.uint64(4 * BYTE_STRIDE) + ((ids >> np.uint64(32)) & np.uint64(255))])
        b = np.int32(b + table[at + np.uint64(5 * BYTE_STRIDE) + ((ids >> np.uint64(40)) & np.uint64(255))])
        a = np.int32(a + table[at + np.uint64(6 * BYTE_STRIDE) + ((ids >> np.uint64(48)) & np.uint64(255))])
        b = np.int32(b + table[at + np.uint64(7 * BYTE_STRIDE) + (ids >> np.uint64(56))])
    return np.int32(a + b)


@compiled_inline
def two_byte_row_sum(words: Words, first: np.uint64, count: np.uint64, table: Sums, stride: np.uint64) -> Any:
    """The same for words of four two-byte ids each."""
    total = np.int32(0)
    for turn in range(count):
        ids = words[first + np.uint64(turn)]
        at = np.uint64(turn) * (stride * np.uint64(4))
        for _ in range(4):
            total = np.int32(total + table[at + (ids & np.uint64(0xFFFF))])
            ids = ids >> np.uint64(16)
            at += stride
    return total


@compiled
def placed(entries: Sums, alphabet: NDArray[np.uint16]) -> Sums:
    """Entries `[P, K]` in the order of each position's alphabet, `[P, A]`."""
    places = np.empty(alphabet.shape, np.int32)
    for cell in range(len(alphabet)):
        codes, order = entries[cell], alphabet[cell]
        for place in range(np.uint64(len(order))):
            places[cell, place] = codes[np.uint64(order[place])]
    return places


@compiled_inline
def fetch(words: Words, count: np.uint64, starts: Ints, stops: Ints, ahead: int) -> None:
    """Have the first rows of a range on their way from memory while earlier ranges are worked on."""
    if ahead < len(starts):
        at = np.uint64(starts[ahead]) * count
        end = min(np.uint64(stops[ahead]) * count, at + np.uint64(FETCHED))
        while at < end:
            prefetch(words, at)
            at += np.uint64(8)


@compiled
def range_minima(
    words: Words,
    count: int,
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
    width, step = np.uint64(count), np.uint64(stride)
    for r in range(len(starts)):
        fetch(words, width, starts, stops, r + AHEAD)
        best = np.int32(HUGE)
        rare = np.searchsorted(rare_slice, starts[r]) if len(rare_slice) else 0
        for row in range(starts[r], stops[r]):
            if step != np.uint64(BYTE_STRIDE):
                total = two_byte_row_sum(words, np.uint64(row) * width, width, table, step)
            elif width == np.uint64(8):  # 64 cells, the commonest grid: a length that the compiler can unroll
                total = byte_row_sum(words, np.uint64(row) * np.uint64(8), np.uint64(8), table)
            else:
                total = byte_row_sum(words, np.uint64(row) * width, width, table)
            if len(rare_slice) == 0:
                best = min(best, total)  # without a branch, which nobody could foresee
            elif total < best:  # before what rare cells add, so that most rows need not look for them
                while rare < len(rare_slice) and rare_slice[rare] <= row:
                    if rare_slice[rare] == row:
                        total = np.int32(total + excess[rare_cell[rare], rare_code[rare]])
                    rare += 1
                best = min(best, total)
        minima[r] = best


@compiled
def range_sums(
    words: Words,
    count: int,
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
    width, step = np.uint64(count), np.uint64(stride)
    at = 0
    for r in range(len(starts)):
        fetch(words, width, starts, stops, r + AHEAD)
        rare = np.searchsorted(rare_slice, starts[r]) if len(rare_slice) else 0
        for row in range(starts[r], stops[r]):
            if step != np.uint64(BYTE_STRIDE):
                total = two_byte_row_sum(words, np.uint64(row) * width, width, table, step)
            elif width == np.uint64(8):  # 64 cells, the commonest grid: a length that the compiler can unroll
                total = byte_row_sum(words, np.uint64(row) * np.uint64(8), np.uint64(8), table)
            else:
                total = byte_row_sum(words, np.uint64(row) * width, width, table)
            while rare < len(rare_slice) and rare_slice[rare] == row:
                total += excess[rare_cell[rare], rare_code[rare]]
                rare += 1
            sums[at] = total
            at += 1
