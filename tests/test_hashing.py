"""Hashing: bits as the paper defines them, A.1 against a naive twin, and a better choice of bits."""

from __future__ import annotations

from itertools import combinations
from math import comb
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from diptych.hashing import (
    BinaryCodebook,
    Reading,
    binarise,
    compactness,
    concordance,
    optimise,
    report,
    round_dead,
    select_bits,
    time_distances,
)
from diptych.search.tables import hamming_table

Codebook = NDArray[np.float64]


def gaussian(codes: int, width: int = 5, seed: int = 0) -> Codebook:
    return np.random.default_rng(seed).normal(size=(codes, width))


def lattice(codes: int, seed: int = 0) -> Codebook:
    """Codes on a small grid: equal vectors and equal distances abound."""
    return np.random.default_rng(seed).integers(-2, 3, (codes, 2)).astype(np.float64)


def test_small_codes_become_the_zero_vector() -> None:
    codebook = np.array([[1e-6, 0.0], [0.0, 2e-5]])
    assert round_dead(codebook).tolist() == [[0.0, 0.0], [0.0, 2e-5]]


def test_identical_codes_are_one_code_with_several_ids() -> None:
    binary = binarise(np.array([[0.0], [3.0], [1e-9], [3.0], [5.0]]))
    assert binary.distinct == 3
    assert binary.place.tolist() == [0, 1, 0, 1, 2]
    assert binary.bits == comb(3, 2)
    assert binary.all_bits == comb(5, 2)


def test_bits_are_signs_of_the_papers_hyperplanes() -> None:
    e = gaussian(9)
    rows = binarise(e).rows()
    for bit, (i, j) in enumerate(combinations(range(9), 2)):
        plane = e @ (e[i] - e[j]) - (e[i] @ e[i] - e[j] @ e[j]) / 2
        assert (rows[:, bit] == (plane >= 0)).all()


def test_a_code_on_the_hyperplane_counts_as_positive() -> None:
    binary = binarise(np.array([[-1.0], [1.0], [0.0]]))
    assert binary.pairs[0].tolist() == [0, 1]
    assert binary.rows()[2, 0]


def test_full_hamming_distance_is_kendall_tau() -> None:
    e = gaussian(14)
    nearness = np.square(e[:, None] - e).sum(axis=2)
    discordant = [
        [sum((a[i] - a[j]) * (b[i] - b[j]) < 0 for i, j in combinations(range(14), 2)) for b in nearness]
        for a in nearness
    ]
    assert (binarise(e).distances() == discordant).all()


@pytest.mark.parametrize("codes", [1, 2, 63, 64, 65, 130])
def test_packed_distances_equal_unpacked_ones(codes: int) -> None:
    binary = binarise(gaussian(codes))
    rows = binary.rows()
    assert (binary.distances() == (rows[:, None] != rows).sum(axis=2)).all()


def test_the_hamming_table_has_one_row_per_id() -> None:
    binary = binarise(lattice(12))
    rows = binary.rows()
    assert (hamming_table(rows).entries == (rows[:, None] != rows).sum(axis=2)).all()


def naive(binary: BinaryCodebook, reading: Reading, seed: int) -> NDArray[np.intp]:
    """Algorithm A.1 as written: try each bit, recompute everything, start again after each removal."""
    order = np.random.default_rng(seed).permutation(binary.bits)
    bits = binary.rows()[binary.representative][:, order]

    def nearest(kept: list[int]) -> list[Any]:
        distances = (bits[:, None, kept] != bits[None, :, kept]).sum(axis=2).astype(float)
        np.fill_diagonal(distances, np.inf)
        if reading == "global":
            return np.argwhere(distances == distances.min()).tolist()
        return [np.flatnonzero(row == row.min()).tolist() for row in distances]

    def shorter(kept: list[int]) -> list[int] | None:
        wanted = nearest(kept)
        for bit in kept:
            rest = [other for other in kept if other != bit]
            if nearest(rest) == wanted:
                return rest
        return None

    kept = list(range(binary.bits))
    while (rest := shorter(kept)) is not None:
        kept = rest
    return np.sort(order[kept])


@pytest.mark.parametrize("reading", ["per-row", "global"])
@pytest.mark.parametrize("make", [gaussian, lattice])
@pytest.mark.parametrize(("codes", "seed"), [(2, 0), (4, 1), (7, 2), (9, 3), (10, 4)])
def test_algorithm_a1_equals_its_naive_twin(reading: Reading, make: Any, codes: int, seed: int) -> None:
    binary = binarise(make(codes, seed=seed))
    expected = binary.keep(naive(binary, reading, seed)).pairs
    assert optimise(binary, reading=reading, seed=seed).pairs.tolist() == expected.tolist()


def test_a1_keeps_every_nearest_set() -> None:
    binary = binarise(gaussian(60))

    def nearest(one: BinaryCodebook) -> list[list[int]]:
        distances = one.distances() + np.diag(np.full(60, 10**6))
        return [np.flatnonzero(row == row.min()).tolist() for row in distances]

    shortened = optimise(binary)
    assert shortened.bits < binary.bits / 2
    assert nearest(shortened) == nearest(binary)


def test_a_codebook_of_one_code_needs_no_bit() -> None:
    assert optimise(binarise(np.zeros((5, 3)))).bits == 0


def test_concordance_of_equal_distances_is_one() -> None:
    distances = binarise(gaussian(20)).distances().astype(np.float64)
    assert concordance(distances, distances) == {1: 1.0, 5: 1.0, 10: 1.0}


def test_concordance_by_hand() -> None:
    one = np.array([[0.0, 1, 2, 3], [1, 0, 2, 3], [1, 2, 0, 3], [1, 2, 3, 0]])
    other = np.array([[0.0, 1, 2, 3], [3, 0, 1, 2], [1, 2, 0, 3], [1, 2, 3, 0]])
    assert concordance(one, other, neighbours=(1, 2)) == {1: 0.75, 2: pytest.approx((3 + 1 / 3) / 4)}


def test_dead_codes_inflate_concordance_and_compression() -> None:
    codebook = gaussian(120, 8)
    codebook[20:] = 0
    figures = report(optimise(binarise(codebook)), codebook)
    assert figures.concordance[5] > figures.live_concordance[5]
    assert figures.compression < figures.live_compression
    assert compactness(codebook) == pytest.approx(100 / 120)


def test_the_literal_form_draws_hyperplanes_between_all_codes() -> None:
    """Twelve unused codes among twenty: their hyperplanes are there twelve times, those between them say nothing."""
    codebook = gaussian(20, 4)
    codebook[8:] = 0
    literal = binarise(codebook, form="literal")
    rows, nearness = literal.rows(), np.square(codebook[:, None] - codebook).sum(axis=2)
    assert literal.bits == comb(20, 2)
    for bit, (i, j) in enumerate(combinations(range(20), 2)):
        assert (rows[:, bit] == (nearness[:, i] <= nearness[:, j])).all()
    assert report(literal, codebook).live_concordance != report(binarise(codebook), codebook).live_concordance
    assert np.array_equal(optimise(literal).rows()[8:], np.repeat(optimise(literal).rows()[8:9], 12, axis=0))


def test_forward_selection_beats_a1_with_no_more_bits() -> None:
    codebook = gaussian(80, 4)
    full = binarise(codebook)
    shortened = optimise(full)
    selected = report(select_bits(full, codebook, bits=shortened.bits), codebook)
    assert selected.bits <= shortened.bits
    for neighbours, value in report(shortened, codebook).live_concordance.items():
        assert selected.live_concordance[neighbours] > value


def test_forward_selection_gives_as_many_bits_as_there_are() -> None:
    codebook = gaussian(4)
    assert select_bits(binarise(codebook), codebook, bits=99).bits == 6


def test_timing_covers_both_distances() -> None:
    codebook = gaussian(6)
    timing = time_distances(codebook, binarise(codebook), repeats=1)
    assert timing.reduction == 1 - timing.hamming / timing.euclidean


@pytest.mark.slow
@pytest.mark.parametrize("dead", [0.0, 0.68])
def test_512_codes_take_seconds(dead: float) -> None:
    """K = 512, 130,816 bits, under 10 s of one core after compiling; processor time, since machines are shared."""
    import time

    rng = np.random.default_rng(0)
    codebook = rng.normal(size=(512, 64))
    codebook[: round(512 * dead)] *= 1e-9
    optimise(binarise(codebook[:8]))
    start = time.thread_time()
    optimise(binarise(codebook))
    assert time.thread_time() - start < 10
