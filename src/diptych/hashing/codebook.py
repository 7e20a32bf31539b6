"""What a codebook is made of: which codes are dead, which are the same, how far apart they are.

Knows vectors `[K, D]` alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["DEAD_NORM", "compactness", "distinct_codes", "round_dead", "squared_distances"]

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
