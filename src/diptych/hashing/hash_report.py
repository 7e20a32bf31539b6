"""How good a binary codebook is: length, compression, concordance, and the paper's own timing (sections 4.4.5, F).

Knows codebooks and binary codebooks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.hashing.binarise import BinaryCodebook, distinct_codes, round_dead, squared_distances
from diptych.progress import Progress, silent

NEIGHBOURS = (1, 5, 10)


@dataclass(frozen=True)
class HashReport:
    """Figures of one binary codebook."""

    bits: int
    compression: float
    """Bits over C(K, 2), as in the paper."""
    live_compression: float
    """Bits over the hyperplanes between distinct codes: dead codes do not count as saved."""
    concordance: dict[int, float]
    """Jaccard overlap of the q nearest by Hamming and by Euclid, over all ids; ties go to the smaller id."""
    live_concordance: dict[int, float]
    """The same over distinct codes alone: dead codes, all equal, agree with each other for nothing."""


def report(binary: BinaryCodebook, codebook: NDArray[np.floating]) -> HashReport:
    """Measure a binary codebook against the codebook it was made from."""
    rounded = round_dead(codebook)
    representative, _ = distinct_codes(rounded)
    euclidean = squared_distances(rounded)
    hamming = binary.distances().astype(np.float64)[np.ix_(binary.place, binary.place)]
    live = np.ix_(representative, representative)
    return HashReport(
        bits=binary.bits,
        compression=binary.bits / max(1, binary.all_bits),
        live_compression=binary.bits / max(1, comb(len(representative), 2)),
        concordance=concordance(hamming, euclidean),
        live_concordance=concordance(hamming[live], euclidean[live]),
    )


def concordance(
    one: NDArray[np.float64], other: NDArray[np.float64], *, neighbours: Sequence[int] = NEIGHBOURS
) -> dict[int, float]:
    """Mean Jaccard overlap of each row's q nearest others under two distance matrices."""
    return {q: _overlap(_nearest(one, q), _nearest(other, q)) for q in neighbours if q < len(one)}


def _nearest(distances: NDArray[np.float64], neighbours: int) -> NDArray[np.bool_]:
    others = distances + np.diag(np.full(len(distances), np.inf))
    order = np.argsort(others, axis=1, kind="stable")[:, :neighbours]
    chosen = np.zeros(distances.shape, dtype=np.bool_)
    np.put_along_axis(chosen, order, True, axis=1)
    return chosen


def _overlap(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> float:
    return float(np.mean((one & other).sum(axis=1) / (one | other).sum(axis=1)))


@dataclass(frozen=True)
class Timing:
    """Mean seconds for all K×K distances, one call each."""

    euclidean: float
    hamming: float

    @property
    def reduction(self) -> float:
        """1 - t_H / t_E."""
        return 1 - self.hamming / self.euclidean


def calc_hamming_distance(a: NDArray[Any], b: NDArray[Any]) -> Any:
    """Listing F.1 of the paper."""
    return np.count_nonzero(a != b)


def calc_euclidean_distance(a: NDArray[Any], b: NDArray[Any]) -> Any:
    """Listing F.1 of the paper."""
    return np.linalg.norm(a - b)


def time_distances(
    codebook: NDArray[np.floating],
    binary: BinaryCodebook,
    *,
    repeats: int = 5,
    progress: Progress = silent,
) -> Timing:
    """The paper's timing: every code against every code, by the functions of its listing F.1."""
    vectors, bits = np.asarray(codebook, dtype=np.float32), binary.rows()
    euclidean, hamming = [], []
    for done in range(repeats):
        euclidean.append(_time_all(calc_euclidean_distance, vectors))
        hamming.append(_time_all(calc_hamming_distance, bits))
        progress(done + 1, repeats, "repeats")
    return Timing(float(np.mean(euclidean)), float(np.mean(hamming)))


def _time_all(distance: Callable[[NDArray[Any], NDArray[Any]], Any], rows: NDArray[Any]) -> float:
    start = time.perf_counter()
    for a in rows:
        for b in rows:
            distance(a, b)
    return time.perf_counter() - start
