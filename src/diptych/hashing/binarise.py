"""Binary codes from separating hyperplanes (section 3.2.1).

Knows a codebook. Bit (i, j), i < j, of code k is 1 when H_ij(e_k) ≥ 0, that is, when e_k is at least as near to e_i as
to e_j. Two codes' full Hamming distance is therefore the Kendall-tau distance of their rankings of the codebook.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Form = Literal["merged", "literal"]
"""What hyperplanes are drawn between: distinct codes, or all K as the paper writes it. Many ids of one vector, such as
unused codes, then repeat their hyperplanes, which so weigh as many times, and are each other's nearest codes."""


@dataclass(frozen=True, eq=False)
class BinaryCodebook:
    """Bits of hyperplanes between codes, packed; in the merged form identical codes share one row of bits."""

    columns: NDArray[np.uint64]
    """`[E, W]`, one hyperplane per row: bit c of its 64-bit words is the bit of distinct code c."""
    pairs: NDArray[np.uint16]
    """`[E, 2]`, the ids i < j that each hyperplane separates."""
    representative: NDArray[np.intp]
    """`[L]`, one id per distinct code; in the literal form every id stands for itself."""
    place: NDArray[np.intp]
    """`[K]`, which distinct code each id has."""

    @property
    def codes(self) -> int:
        """K, identical ones counted each."""
        return len(self.place)

    @property
    def distinct(self) -> int:
        """L, identical codes counted once; the zero vector, if there, among them."""
        return len(self.representative)

    @property
    def bits(self) -> int:
        return len(self.columns)

    @property
    def all_bits(self) -> int:
        """C(K, 2), the paper's full length, in which dead codes repeat each other's hyperplanes."""
        return comb(self.codes, 2)

    def keep(self, bits: NDArray[np.integer]) -> BinaryCodebook:
        """The same codes with some of the bits only."""
        return BinaryCodebook(self.columns[bits], self.pairs[bits], self.representative, self.place)

    def rows(self) -> NDArray[np.bool_]:
        """Unpacked, one row per id, `[K, E]`."""
        return unpack(self.columns, self.distinct).T[self.place]

    def distances(self) -> NDArray[np.int32]:
        """Hamming distances between distinct codes, `[L, L]`."""
        total = np.zeros((self.distinct, self.distinct), dtype=np.int64)
        for first in range(0, self.bits, 8192):
            bits = unpack(self.columns[first : first + 8192], self.distinct).astype(np.float32)
            ones = bits.T @ (1 - bits)
            total += np.rint(ones + ones.T).astype(np.int64)
        return total.astype(np.int32)


def binarise(codebook: NDArray[np.floating], *, form: Form = "merged") -> BinaryCodebook:
    """Round dead codes, merge identical ones where the form asks for it, and take a bit for every pair of codes."""
    rounded = round_dead(codebook)
    every = np.arange(len(rounded))
    representative, place = distinct_codes(rounded) if form == "merged" else (every, every)
    nearness = squared_distances(rounded[representative])  # [k, i]
    count = len(representative)
    first, second = np.triu_indices(count, k=1)
    columns = np.empty((len(first), -(-max(count, 1) // 64)), dtype=np.uint64)
    for at in range(0, len(first), 8192):
        some = slice(at, at + 8192)
        columns[some] = pack_columns(nearness[:, first[some]] <= nearness[:, second[some]])
    pairs = np.stack([representative[first], representative[second]], axis=1).astype(np.uint16)
    return BinaryCodebook(columns, pairs, representative, place)


def pack_columns(bits: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """`[L, E]` bits to `[E, W]` words."""
    count, width = bits.shape
    padded = np.zeros((width, -(-max(count, 1) // 64) * 64), dtype=np.bool_)
    padded[:, :count] = bits.T
    return np.packbits(padded, axis=1, bitorder="little").view(np.uint64)


def unpack(columns: NDArray[np.uint64], count: int) -> NDArray[np.bool_]:
    """`[E, W]` words to `[E, L]` bits."""
    raw = np.ascontiguousarray(columns).view(np.uint8)
    return np.unpackbits(raw, axis=1, bitorder="little", count=count).astype(np.bool_)


DEAD_NORM = 1e-5
"""Codes with a smaller norm count as the zero vector (section 4.4.4)."""


def squared_distances(vectors: NDArray[np.floating]) -> NDArray[np.float64]:
    """|e_i - e_j|² from the differences themselves: symmetric to the last bit, zero for equal vectors."""
    vectors = np.asarray(vectors, dtype=np.float64)
    return np.stack([np.square(vectors - vector).sum(axis=1) for vector in vectors])


def round_dead(codebook: NDArray[np.floating], *, threshold: float = DEAD_NORM) -> NDArray[np.float64]:
    """Set codes with a norm below `threshold` to the zero vector."""
    codebook = np.asarray(codebook, dtype=np.float64)
    return np.where(np.linalg.norm(codebook, axis=1, keepdims=True) < threshold, 0.0, codebook)


def compactness(codebook: NDArray[np.floating], *, threshold: float = DEAD_NORM) -> float:
    """Share of dead codes (section 4.4.4): 0 when every code is used as a vector of its own.

    >>> compactness(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1e-6], [3.0, 4.0]]))
    0.5
    """
    return float(np.mean(np.linalg.norm(codebook, axis=1) < threshold))


def distinct_codes(codebook: NDArray[np.floating]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Merge identical vectors: one representative id per distinct vector, and each code's place among them.

    >>> representative, place = distinct_codes(np.array([[2.0], [0.0], [2.0]]))
    >>> representative.tolist(), place.tolist()
    ([0, 1], [0, 1, 0])
    """
    _, first, inverse = np.unique(codebook, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[inverse.reshape(-1)]
