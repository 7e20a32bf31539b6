"""`Bounds`: sums that no slice of a run undercuts, for one query and all runs of one length.

Knows look-up entries and symbols of runs. Where the query stands apart from the archive in few positions only, as a
lesion does among sparse codes, the bound is a sum over these few: the others hardly raise it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.compiling import compiled, prefetch
from diptych.search.chunks import GROUPS, Level
from diptych.search.kernels import BYTE_STRIDE, HUGE, Words, byte_row_sum
from diptych.search.pool import Pool

Ints = NDArray[np.integer]
Sums = NDArray[np.int32]

TELLING = 0.95
"""Share of what the bound rises on average that the positions looked at bring about."""

FEW = 1 / 4
"""Share of positions up to which looking at some of them is quicker than at whole rows."""


@dataclass(frozen=True, eq=False)
class Bounds:
    """Make one with `Bounds.of`."""

    level: Level
    table: Sums
    """Smallest entry of each position and symbol, flat."""
    cells: NDArray[np.uint64]
    """The positions to look at, an even number; none where all are."""

    @classmethod
    def of(cls, entries: Sums, groups: NDArray[np.uint8], level: Level) -> Bounds:
        """Bounds from entries `[P, K]`."""
        table = np.zeros((level.symbols.shape[1], BYTE_STRIDE), dtype=np.int32)
        symbol_table(entries, groups, GROUPS, level.sets, table)
        floors = table[: len(entries), 2**GROUPS - 1]  # the symbol of all groups
        over = excesses(table, floors, level.counts)
        order = np.argsort(-over)
        risen = np.cumsum(over[order])
        count = int(np.searchsorted(risen, TELLING * risen[-1])) + 1
        count += count % 2
        if count > FEW * len(entries):
            return cls(level, table.reshape(-1), np.empty(0, np.uint64))
        table[order[0]] += floors[order[count:]].sum()  # what the positions left out cost at least
        return cls(level, table.reshape(-1), order[:count].astype(np.uint64))

    def sums(self, runs: Ints, pool: Pool) -> Sums:
        """For each of some runs a sum that none of its slices undercuts."""
        symbols = self.level.symbols
        out = np.empty(len(runs), dtype=np.int32)

        def whole_rows(share: slice) -> None:
            words = symbols.view(np.uint64)
            row_sums(words.reshape(-1), words.shape[1], self.table, runs[share], out[share])

        def few_cells(share: slice) -> None:
            rows = symbols.reshape(-1), symbols.shape[1]
            some_cell_sums(*rows, self.cells, self.table, runs[share], out[share])

        pool.run(few_cells if len(self.cells) else whole_rows, np.ones(len(runs), np.int64))
        return out


AHEAD = 16
"""How many rows ahead symbols are fetched from memory."""


@compiled
def symbol_table(entries: Sums, groups: NDArray[np.uint8], count: int, sets: NDArray[np.uint16], table: Sums) -> None:
    """For each position and symbol of runs the smallest entry of any code it stands for, into `table` `[≥ P, 256]`."""
    nearest = np.empty(256, np.int32)
    for cell in range(len(entries)):
        codes, symbols = entries[cell], table[cell]
        nearest[:] = HUGE
        for code in range(np.uint64(len(codes))):
            group = np.uint64(groups[cell, code])
            nearest[group] = min(nearest[group], codes[code])
        symbols[0] = HUGE
        for bit in range(count):
            for others in range(1 << bit):
                symbols[(1 << bit) + others] = min(symbols[others], nearest[bit])
        for place in range(np.uint64(sets.shape[1])):
            one, two, three, four = sets[cell, place]
            nearer = min(codes[np.uint64(one)], codes[np.uint64(two)])
            symbols[np.uint64(1 << count) + place] = min(nearer, codes[np.uint64(three)], codes[np.uint64(four)])


@compiled
def excesses(table: Sums, floors: Sums, counts: NDArray[np.int32]) -> NDArray[np.int64]:
    """By how much the symbols that occur at a position exceed its floor, in total."""
    totals = np.zeros(len(floors), np.int64)
    for cell in range(len(floors)):
        entries, occurring, floor, total = table[cell], counts[cell], np.int64(floors[cell]), np.int64(0)
        for symbol in range(1, counts.shape[1]):
            total += np.int64(occurring[symbol]) * (np.int64(entries[symbol]) - floor)
        totals[cell] = total
    return totals


@compiled
def row_sums(words: Words, count: int, table: Sums, rows: Ints, sums: Sums) -> None:
    """Sums over whole rows of one-byte symbols, into `sums`."""
    width = np.uint64(count)
    for r in range(len(rows)):
        if r + AHEAD < len(rows):
            prefetch(words, np.uint64(rows[r + AHEAD]) * width)
        if width == np.uint64(8):  # 64 cells, the commonest grid: a length that the compiler can unroll
            sums[r] = byte_row_sum(words, np.uint64(rows[r]) * np.uint64(8), np.uint64(8), table)
        else:
            sums[r] = byte_row_sum(words, np.uint64(rows[r]) * width, width, table)


@compiled
def some_cell_sums(
    symbols: NDArray[np.uint8], width: int, cells: NDArray[np.uint64], table: Sums, rows: Ints, sums: Sums
) -> None:
    """Sums over an even number of positions alone, into `sums`."""
    for r in range(len(rows)):
        if r + AHEAD < len(rows):
            prefetch(symbols, np.uint64(rows[r + AHEAD]) * np.uint64(width))
        row = np.uint64(rows[r]) * np.uint64(width)
        a, b = np.int32(0), np.int32(0)
        place = np.uint64(0)
        while place < np.uint64(len(cells)):
            one, other = cells[place], cells[place + np.uint64(1)]
            a = np.int32(a + table[one * np.uint64(BYTE_STRIDE) + np.uint64(symbols[row + one])])
            b = np.int32(b + table[other * np.uint64(BYTE_STRIDE) + np.uint64(symbols[row + other])])
            place += np.uint64(2)
        sums[r] = np.int32(a + b)


@compiled
def admitted(runs: Ints, bounds: NDArray[Any], volumes: Ints, key: float, volume: int) -> NDArray[np.int64]:
    """The runs whose bounds are below a key, or equal to it and in no later a volume."""
    kept, count = np.empty(len(runs), np.int64), 0
    for place in range(len(runs)):
        bound = bounds[place]
        if bound < key or (bound == key and volumes[runs[place]] <= volume):
            kept[count] = runs[place]
            count += 1
    return kept[:count]


@compiled
def lower(best: NDArray[Any], runs: Ints, volumes: Ints, keys: NDArray[Any]) -> None:
    """Keep the smaller of what was known of a volume and what its runs have."""
    for place in range(len(runs)):
        volume = volumes[runs[place]]
        best[volume] = min(best[volume], keys[place])
