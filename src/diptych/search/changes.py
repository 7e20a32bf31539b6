"""`Changes`: the ids of one panel once more, as what changes from slice to slice.

Knows packed ids and runs of slices; nothing about queries.

Neighbouring slices share most of their ids. For each run and each position that changes in it, the list has the first
slice's id, and an id again wherever it differs from the slice before. A scan then looks up the first slice's row, and
each of these once, instead of every cell of every slice. Ids of one position stand together: a scan needs to remember
one entry only, and meets the same few entries of its table again and again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diptych.compiling import compiled
from diptych.search.codes import Ids

__all__ = ["DEARER", "Changes", "list_changes"]

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
