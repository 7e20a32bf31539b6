"""`PanelCodes`: the ids of one panel over the whole archive, packed for scanning.

Knows ids and grid positions; nothing about volumes, queries or distances.

Each grid position has its own alphabet, its most frequent code first: a corner of the frame sees a handful of codes,
and the hot entries of a look-up table then share few cache lines. One byte per cell holds up to 256 codes. Where a
position knows more, the rest are *rare*: the cell says "rare", and a short list tells which. Only when rare cells are
many do the ids take two bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diptych.errors import InputError

Ids = NDArray[np.uint8] | NDArray[np.uint16]

RARE_SHARE = 1 / 16
"""A larger share of rare cells than this, and two bytes per cell are the better bargain."""
UNPACKED_AT_ONCE = 64
"""So few slices are compared whole."""


@dataclass(frozen=True, eq=False)
class PanelCodes:
    """Packed ids of N slices with P cells each."""

    packed: Ids
    """`[N, P]`, each id a place in its position's alphabet; rows are filled up with zeros to whole 64-bit words."""
    alphabet: NDArray[np.uint16]
    """`[P, A]` code of each place; unused places repeat the first code."""
    rare: NDArray[np.bool_]
    """`[P, K]`, codes that the alphabet of a position leaves out though slices hold them."""
    rare_slice: NDArray[np.int32]
    """Slice of each rare cell, ascending."""
    rare_cell: NDArray[np.uint16]
    rare_code: NDArray[np.uint16]

    def __len__(self) -> int:
        return len(self.packed)

    @property
    def cells(self) -> int:
        return len(self.alphabet)

    @property
    def codes(self) -> int:
        return int(self.rare.shape[1])

    @property
    def nbytes(self) -> int:
        """Bytes that grow with the archive."""
        return self.packed.nbytes + self.rare_slice.nbytes + self.rare_cell.nbytes + self.rare_code.nbytes

    def ids(self, slices: NDArray[np.integer]) -> NDArray[np.uint16]:
        """Unpack the ids of some slices, `[n, P]`."""
        ids: NDArray[np.uint16] = self.alphabet[np.arange(self.cells), self.packed[slices, : self.cells]]
        first = np.searchsorted(self.rare_slice, slices, side="left")
        last = np.searchsorted(self.rare_slice, slices, side="right")
        for row in np.flatnonzero(last > first):
            cells = slice(first[row], last[row])
            ids[row, self.rare_cell[cells]] = self.rare_code[cells]
        return ids

    def equal(self, slices: NDArray[np.integer], ids: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Which of some slices have exactly these ids `[P]`; most are told apart by few cells."""
        left = np.arange(len(slices))
        telling = np.argsort(-np.count_nonzero(self.alphabet != self.alphabet[:, :1], axis=1), kind="stable")
        for cell in telling[~self.rare[telling].any(axis=1)].tolist():
            if len(left) <= UNPACKED_AT_ONCE:
                break
            left = left[self.alphabet[cell][self.packed[slices[left], cell]] == ids[cell]]
        out = np.zeros(len(slices), dtype=np.bool_)
        out[left] = (self.ids(slices[left]) == ids).all(axis=1)
        return out


def whole_words(cells: int, itemsize: int = 1) -> int:
    """Cells that fill up whole 64-bit words.

    >>> whole_words(64), whole_words(15), whole_words(6, itemsize=2)
    (64, 16, 8)
    """
    per_word = 8 // itemsize
    return -(-cells // per_word) * per_word


def pack(ids: NDArray[np.integer], *, codes: int, byte_codes: int = 256) -> PanelCodes:
    """Pack ids `[N, P]` below `codes`; a one-byte alphabet holds at most `byte_codes` (fewer only in tests)."""
    if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < codes:
        raise InputError(f"id {int(ids.max())}: ids lie in 0…{codes - 1}; index again with the archive's own model")
    counts = np.stack([np.bincount(column, minlength=codes) for column in ids.T])  # [P, K]
    by_frequency = np.argsort(-counts, axis=1, kind="stable")
    used = np.count_nonzero(counts, axis=1)
    kept = np.where(used > byte_codes, byte_codes - 1, used)
    common = np.take_along_axis(counts, by_frequency, axis=1).cumsum(axis=1)
    n_common = np.where(kept > 0, np.take_along_axis(common, np.maximum(kept - 1, 0)[:, None], axis=1)[:, 0], 0)
    if ids.size - int(n_common.sum()) > RARE_SHARE * ids.size:
        kept = used
    return _pack(ids, by_frequency, used, kept)


def _pack(
    ids: NDArray[np.integer], by_frequency: NDArray[np.intp], used: NDArray[np.intp], kept: NDArray[np.intp]
) -> PanelCodes:
    positions, codes = by_frequency.shape
    width = int(np.max(kept + (used > kept), initial=1))
    dtype = np.uint8 if width <= 256 else np.uint16
    packed = np.zeros((len(ids), whole_words(positions, np.dtype(dtype).itemsize)), dtype=dtype)
    alphabet = np.empty((positions, width), dtype=np.uint16)
    rare = np.zeros((positions, codes), dtype=np.bool_)
    places = np.empty(codes, dtype=np.int64)
    rare_parts: list[NDArray[np.int64]] = []
    for cell in range(positions):
        order, n = by_frequency[cell], int(kept[cell])
        alphabet[cell] = order[0]
        alphabet[cell, :n] = order[:n]
        places[order] = np.minimum(np.arange(codes), n)
        packed[:, cell] = places[ids[:, cell]].astype(dtype)
        rare[cell, order[n : used[cell]]] = True
        if n < used[cell]:
            slices = np.flatnonzero(packed[:, cell] == n)
            rare_parts.append(np.stack([slices, np.full_like(slices, cell), ids[slices, cell].astype(np.int64)]))
    table = np.concatenate(rare_parts, axis=1) if rare_parts else np.empty((3, 0), dtype=np.int64)
    table = table[:, np.lexsort((table[1], table[0]))]
    return PanelCodes(
        packed,
        alphabet,
        rare,
        table[0].astype(np.int32),
        table[1].astype(np.uint16),
        table[2].astype(np.uint16),
    )
