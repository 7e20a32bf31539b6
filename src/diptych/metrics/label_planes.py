"""`Planes`: label maps as packed bits, one or several planes per class, and the compiled loops that count overlaps.

Background is left out. Knows arrays only; nothing about models or archives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import numba.types
import numpy as np
from numba.extending import intrinsic
from numpy.typing import NDArray

from diptych.compiling import compiled, compiled_inline
from diptych.errors import InputError


@dataclass(frozen=True, eq=False)
class Planes:
    """N label maps of C classes each."""

    grid: tuple[int, int]
    """Rows and columns of a mask; with several levels, those of all levels together."""
    words: Words
    """`[N, C, W]`."""
    areas: NDArray[np.int32]
    """Set bits of each class, `[N, C]`."""
    levels: int = 1
    """Planes per class."""

    def __len__(self) -> int:
        return len(self.words)

    @property
    def classes(self) -> int:
        return int(self.words.shape[1])

    @classmethod
    def of_masks(cls, masks: NDArray[np.bool_], *, levels: int = 1) -> Planes:
        """Pack one mask per class, `[N, C, H, W]`; each counts at every level."""
        tall = np.tile(masks, (1, 1, levels, 1))
        words = pack_bits(tall)
        return cls((tall.shape[2], tall.shape[3]), words, count_bits(words), levels)

    @classmethod
    def of_labels(cls, labels: NDArray[np.integer], *, classes: int, levels: int = 1) -> Planes:
        """Pack label maps `[N, H, W]` with labels 0 (background) to `classes`."""
        if labels.size and int(labels.max()) > classes:
            raise InputError(f"label {int(labels.max())}: label maps hold 0…{classes}; map the labels first")
        return cls.of_masks(labels[:, None] == np.arange(1, classes + 1)[:, None, None], levels=levels)

    @classmethod
    def of_probabilities(cls, probabilities: NDArray[np.floating], levels: tuple[float, ...]) -> Planes:
        """Pack probabilities of the classes, `[N, C, H, W]`: one plane for each level that they reach."""
        tall = np.concatenate([probabilities >= level for level in levels], axis=2)
        return replace(cls.of_masks(tall), levels=len(levels))

    @classmethod
    def join(cls, parts: list[Planes]) -> Planes:
        """Put planes of equal shape one after the other."""
        words, areas = (np.concatenate([getattr(part, name) for part in parts]) for name in ("words", "areas"))
        return replace(parts[0], words=words, areas=areas)

    def take(self, rows: Any) -> Planes:
        """Some of the label maps, by index, slice or mask."""
        return replace(self, words=self.words[rows], areas=self.areas[rows])

    def within(self, pixels: NDArray[np.bool_]) -> Planes:
        """The part of every mask that lies in `pixels`, as `scatter` gives them."""
        mask = pack_bits(pixels)
        return replace(self, words=self.words & mask, areas=count_bits(self.words, mask))

    def masks(self) -> NDArray[np.bool_]:
        """Unpacked, `[N, C, H, W]`."""
        return unpack_bits(self.words, self.grid)

    def level_maps(self, rows: Any) -> NDArray[np.uint8]:
        """How many planes of a class some label maps have set in each pixel, `[n, C, H, W]`."""
        masks = self.take(rows).masks()
        tall = masks.reshape(*masks.shape[:2], self.levels, -1, self.grid[1])
        return np.asarray(tall.sum(axis=2, dtype=np.uint8))

    def scatter(self, cells: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Pixels of the masks that lie in marked cells of a coarser grid `[h, w]`."""
        rows, columns = self._cells(cells.shape)
        return cells[rows[:, None], columns]

    def cell_sums(self, masks: NDArray[np.bool_], grid: tuple[int, int]) -> NDArray[np.int64]:
        """Marked pixels of masks `[..., H, W]`, all levels, in each cell of a coarser grid, `[..., h, w]`."""
        rows, columns = self._cells(grid)
        down, across = rows[:, None] == np.arange(grid[0]), columns[:, None] == np.arange(grid[1])
        sums = down.T.astype(np.float32) @ masks.astype(np.float32) @ across.astype(np.float32)
        return np.asarray(np.rint(sums), dtype=np.int64)

    def _cells(self, grid: tuple[int, ...]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Row of cells of each row of pixels, and column of each column."""
        height, width = self.grid[0] // self.levels, self.grid[1]
        return np.arange(self.grid[0]) % height * grid[0] // height, np.arange(width) * grid[1] // width


Words = NDArray[np.uint64]
Counts = NDArray[np.int32]


def _popcount(context: Any, word: Any) -> Any:
    """The processor's own count of set bits, which Python has no way to ask for."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return numba.types.int64(numba.types.uint64), generate


popcount = cast(Callable[[Any], int], intrinsic(_popcount))


def pack_bits(masks: NDArray[np.bool_]) -> Words:
    """Pack masks `[..., H, W]` into words `[..., ⌈HW / 64⌉]`.

    >>> pack_bits(np.eye(2, dtype=bool)).tolist()
    [9]
    """
    *outer, rows, columns = masks.shape
    room = np.zeros((*outer, -(-rows * columns // 64) * 8), dtype=np.uint8)
    packed = np.packbits(masks.reshape(*outer, rows * columns), axis=-1, bitorder="little")
    room[..., : packed.shape[-1]] = packed
    return room.view("<u8").astype(np.uint64, copy=False)


def unpack_bits(words: Words, grid: tuple[int, int]) -> NDArray[np.bool_]:
    """The masks `[..., H, W]` that `pack_bits` packed."""
    raw = np.ascontiguousarray(words).astype("<u8", copy=False).view(np.uint8)
    bits = np.unpackbits(raw, axis=-1, count=grid[0] * grid[1], bitorder="little")
    return bits.astype(np.bool_).reshape(*words.shape[:-1], *grid)


def count_bits(planes: Words, mask: Words | None = None) -> Counts:
    """Set bits of each plane `[N, C, W]`, `[N, C]`; with `mask` `[W]`, only those under it."""
    counts = np.empty(planes.shape[:2], dtype=np.int32)
    everything = np.full(planes.shape[2], np.uint64(2**64 - 1))
    _count(planes, everything if mask is None else mask, counts)
    return counts


def shared_bits(query: Words, planes: Words) -> Counts:
    """Bits that each of N × C planes `[N, C, W]` shares with the query's plane `[C, W]` of the same class, `[N, C]`."""
    counts = np.empty(planes.shape[:2], dtype=np.int32)
    _share(query, planes, counts)
    return counts


@compiled_inline
def shared(one: Words, other: Words) -> int:
    """Bits that two planes `[W]` have in common."""
    total = 0
    for w in range(len(one)):
        total += popcount(one[w] & other[w])
    return total


@compiled
def _count(planes: Words, mask: Words, counts: Counts) -> None:
    for n in range(planes.shape[0]):
        for c in range(planes.shape[1]):
            counts[n, c] = shared(planes[n, c], mask)


@compiled
def _share(query: Words, planes: Words, counts: Counts) -> None:
    for n in range(planes.shape[0]):
        for c in range(planes.shape[1]):
            counts[n, c] = shared(planes[n, c], query[c])


@compiled
def row_distances(
    query: Words,
    query_areas: Counts,
    planes: Words,
    areas: Counts,
    starts: NDArray[np.int64],
    stops: NDArray[np.int64],
    distances: NDArray[np.float64],
) -> None:
    """1 - mean Dice of the rows in the ranges, one range after the other, into `distances`.

    Classes that neither side has are left out of the mean; where both sides have none at all the distance is 0.
    Planes of which one side is empty are not even read.
    """
    at = 0
    for r in range(len(starts)):
        for row in range(starts[r], stops[r]):
            present = 0
            total = 0.0
            for c in range(planes.shape[1]):
                both = query_areas[c] + areas[row, c]
                if both > 0:
                    present += 1
                if query_areas[c] > 0 and areas[row, c] > 0:
                    total += 2.0 * shared(planes[row, c], query[c]) / both
            distances[at] = 1.0 - total / present if present > 0 else 0.0
            at += 1
