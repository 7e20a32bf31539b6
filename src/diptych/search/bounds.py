"""`Bounds`: sums that no slice of a run undercuts, for one query and all runs of one length.

Knows look-up entries and symbols of runs. Where the query stands apart from the archive in few positions only, as a
lesion does among sparse codes, the bound is a sum over these few: the others hardly raise it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diptych.search import bound_kernels
from diptych.search.kernels import BYTE_STRIDE
from diptych.search.pool import Pool
from diptych.search.symbols import GROUPS, Level

__all__ = ["Bounds"]

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
        bound_kernels.symbol_table(entries, groups, GROUPS, level.sets, table)
        floors = table[: len(entries), 2**GROUPS - 1]  # the symbol of all groups
        excesses = bound_kernels.excesses(table, floors, level.counts)
        order = np.argsort(-excesses)
        risen = np.cumsum(excesses[order])
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
            bound_kernels.row_sums(words.reshape(-1), words.shape[1], self.table, runs[share], out[share])

        def few_cells(share: slice) -> None:
            rows = symbols.reshape(-1), symbols.shape[1]
            bound_kernels.some_cell_sums(*rows, self.cells, self.table, runs[share], out[share])

        pool.run(few_cells if len(self.cells) else whole_rows, np.ones(len(runs), np.int64))
        return out
