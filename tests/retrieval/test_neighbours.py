"""Averaging over neighbouring slices, beside a loop that does the same; and in searches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from diptych.metrics.label_search import average_neighbours, neighbours
from diptych.search import PANELS
from diptych.search.label_scan import REACH_MM
from tests.retrieval.test_overlap import brute_distances, make_searcher
from tests.search.oracle import make_archive


def plain(
    distances: NDArray[np.float64], heights: NDArray[np.float64], volumes: NDArray[np.int64]
) -> NDArray[np.float64]:
    """For each slice the weighted mean over all slices of its volume."""
    means = []
    for height, volume in zip(heights, volumes, strict=True):
        weights = np.maximum(1 - np.abs(heights - height) / REACH_MM, 0) * (volumes == volume)
        means.append((weights * distances).sum() / weights.sum())
    return np.array(means)


@given(st.integers(0, 10_000), st.lists(st.integers(1, 9), max_size=5), st.sampled_from([0.5, 1.0, 2.0, 5.0, 9.0]))
@settings(deadline=None, max_examples=60)
def test_it_is_the_mean_over_the_neighbourhood(seed: int, lengths: list[int], spacing: float) -> None:
    rng = np.random.default_rng(seed)
    volumes = np.repeat(np.arange(len(lengths)), lengths)
    heights = np.concatenate([rng.normal() + spacing * np.arange(length) for length in lengths] or [np.empty(0)])
    distances = rng.random(len(volumes))
    np.testing.assert_allclose(average_neighbours(distances, heights, volumes), plain(distances, heights, volumes))


def test_slices_two_millimetres_apart_count_one_two_three_two_one() -> None:
    places, shares = neighbours(4, 2.0 * np.arange(9))
    assert places.tolist() == [2, 3, 4, 5, 6]
    assert (shares * 9).tolist() == pytest.approx([1, 2, 3, 2, 1])


def test_thick_slices_stand_for_themselves() -> None:
    distances, heights = np.array([0.3, 0.1, 0.2]), np.array([0.0, 6.0, 12.0])
    assert average_neighbours(distances, heights, np.zeros(3, dtype=int)).tolist() == distances.tolist()


@pytest.mark.parametrize("by", PANELS)
def test_a_search_finds_the_best_neighbourhood_and_tells_it_cell_by_cell(by: str) -> None:
    archive = make_archive(2, grid=(2, 3))
    volumes = np.asarray(archive.volume_of_slice)
    heights = np.concatenate([2.0 * np.arange(np.count_nonzero(volumes == volume)) for volume in np.unique(volumes)])
    searcher = make_searcher(archive, heights=heights)
    query = archive.query(3, by=by, top=5, group="volume", metric="overlap")
    expected = plain(brute_distances(archive, query, by), heights, volumes)
    found = searcher.search(query)
    best = sorted(expected[volumes == volume].min() for volume in np.unique(volumes))
    assert [match.distance for match in found] == pytest.approx(best[:5])
    for match in found:
        assert match.distance == pytest.approx(expected[match.slice])
        assert match.contributions.sum() == pytest.approx(match.distance)
