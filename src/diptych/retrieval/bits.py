"""Masks as packed bits, and the compiled loops that count what two masks share.

Knows bits; not what the masks mean. A mask of H × W pixels takes ⌈HW / 64⌉ whole words, the last one filled with zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numba.types
import numpy as np
from numba.extending import intrinsic
from numpy.typing import NDArray

from diptych.compiling import compiled, compiled_inline

__all__ = ["Words", "count_bits", "pack_bits", "row_distances", "shared_bits", "unpack_bits"]

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
