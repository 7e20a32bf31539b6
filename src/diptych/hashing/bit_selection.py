"""A better choice of bits than algorithm A.1: forward selection for the order of neighbours.

Knows packed bits and Euclidean distances. A.1 keeps who is nearest *by the full binary code*; this keeps who is near by
Euclid. For each code i and each q in 1, 5, 10, let near be its q nearest codes and far all others. The loss

    Σ_i Σ_q  log Σ_near exp(η D_ij) + log Σ_far exp(-η D_ik)

falls as near codes come nearer in Hamming distance than far ones. Bits are added one by one, each the one of a random
sample that lowers the loss most, to first order; that is one matrix product per bit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from diptych.hashing.binarise import BinaryCodebook, round_dead, squared_distances, unpack
from diptych.progress import Progress, silent

NEIGHBOURS = (1, 5, 10)
SHARPNESS = 0.5
"""η: how much one step of Hamming distance counts."""


def select_bits(
    binary: BinaryCodebook,
    codebook: NDArray[np.floating],
    *,
    bits: int,
    sample: int = 2048,
    seed: int = 0,
    progress: Progress = silent,
) -> BinaryCodebook:
    """Choose `bits` bits, each from `sample` candidates."""
    euclidean = squared_distances(round_dead(codebook)[binary.representative])
    np.fill_diagonal(euclidean, np.inf)
    order = np.argsort(euclidean, axis=1, kind="stable")
    rank = np.argsort(order, axis=1, kind="stable")
    rng = np.random.default_rng(seed)
    hamming = np.zeros(euclidean.shape, dtype=np.float32)
    left = np.ones(binary.bits, dtype=np.bool_)
    wanted = min(bits, binary.bits)
    for done in range(wanted):
        free = np.flatnonzero(left)
        tried = free if len(free) <= sample else rng.choice(free, sample, replace=False)
        columns = unpack(binary.columns[tried], binary.distinct).astype(np.float32)
        gain = gains(columns, slope(hamming, rank))
        best = int(np.argmax(gain))
        left[tried[best]] = False
        hamming += columns[best][:, None] != columns[best]
        progress(done + 1, wanted, "bits")
    return binary.keep(np.flatnonzero(~left))


def slope(hamming: NDArray[np.float32], rank: NDArray[np.intp]) -> NDArray[np.float32]:
    """How much the loss falls per step of each Hamming distance, made symmetric, `[L, L]`."""
    count = len(hamming)
    total = np.zeros_like(hamming)
    for neighbours in NEIGHBOURS:
        if neighbours >= count - 1:
            continue
        near = rank < neighbours
        far = ~near & ~np.eye(count, dtype=np.bool_)
        total += _softmax(-SHARPNESS * hamming, far) - _softmax(SHARPNESS * hamming, near)
    return total + total.T


def gains(columns: NDArray[np.float32], slopes: NDArray[np.float32]) -> NDArray[np.float32]:
    """Σ_ij slope_ij [bit differs between i and j], for each candidate bit `[n, L]`."""
    ones = columns @ slopes
    return np.asarray((ones * (1 - columns)).sum(axis=1) * 2)


def _softmax(logits: NDArray[np.float32], members: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Softmax of each row over its members; zero elsewhere."""
    shifted = np.where(members, logits, -np.inf)
    shifted -= shifted.max(axis=1, keepdims=True)
    weights = np.exp(shifted)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))
