"""Label maps in few bytes: nothing is lost, distances are those of plain arrays, and bounds never exceed them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from diptych.errors import InputError
from diptych.search.label_groups import GROUP, LabelGroups, add_slice_bounds
from diptych.search.label_maps import LabelMaps
from diptych.search.label_scan import LabelQuery, average_ranges, block_bounds, exact_distances

SHAPE = (3, 8, 12)  # classes, rows, columns


def made_up(count: int, seed: int = 0) -> NDArray[np.uint8]:
    """Maps with blobs of a few levels, some of them empty."""
    rng = np.random.default_rng(seed)
    levels = np.zeros((count, *SHAPE), dtype=np.uint8)
    for one in levels[: count - count // 5]:
        for plane in one[: rng.integers(1, 4)]:
            row, column = rng.integers(6), rng.integers(9)
            plane[row : row + rng.integers(1, 6), column : column + rng.integers(1, 6)] = rng.integers(1, 4)
    return levels


def plain_distance(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> float:
    """The twin of the compiled loops."""
    a, b = one.sum(axis=(1, 2), dtype=int), other.sum(axis=(1, 2), dtype=int)
    shared = np.minimum(one, other).sum(axis=(1, 2), dtype=int)
    dice = [2.0 * s / (x + y) for s, x, y in zip(shared, a, b, strict=True) if x + y > 0]
    total = 0.0
    for part in dice:
        total += part
    return 1.0 - total / len(dice) if dice else 0.0


def test_maps_come_back_as_they_were() -> None:
    levels = made_up(20)
    maps = LabelMaps.pack(levels)
    assert np.array_equal(maps.levels(np.arange(20)), levels)
    assert np.array_equal(maps.slice(3, 9).levels(np.arange(6)), levels[3:9])


def test_joined_maps_share_their_states() -> None:
    parts = [made_up(4, seed) for seed in range(3)]
    joined = LabelMaps.join([LabelMaps.pack(part) for part in parts])
    assert np.array_equal(joined.levels(np.arange(12)), np.concatenate(parts))
    assert LabelMaps.restore(joined.arrays()).classes == 3


def test_arrays_that_do_not_fit_are_refused() -> None:
    arrays = LabelMaps.pack(made_up(4)).arrays()
    with pytest.raises(ValueError, match="fit together"):
        LabelMaps.restore({**arrays, "run_length": arrays["run_length"] + np.uint8(1)})


def test_a_level_too_high_is_refused() -> None:
    with pytest.raises(InputError, match="level 4"):
        LabelMaps.pack(np.full((1, *SHAPE), 4, dtype=np.uint8))


@pytest.mark.parametrize("with_region", [False, True])
def test_distances_equal_the_plain_ones_and_bounds_stay_below(with_region: bool) -> None:
    levels = made_up(60, seed=5)
    maps, rows = LabelMaps.pack(levels), np.arange(60)
    region = np.zeros(SHAPE[1:], dtype=np.bool_)
    region[2:7, 3:10] = True
    inside = region if with_region else np.ones_like(region)
    for number in range(10):
        query = LabelQuery(levels[number] * inside, region if with_region else None)
        expected = [plain_distance(levels[number] * inside, other * inside) for other in levels]
        found = exact_distances(maps, query, rows)
        assert found.tolist() == expected
        assert (block_bounds(maps, query, rows) <= found + 1e-12).all()


def test_bounds_of_groups_and_of_their_slices_stay_below_distances() -> None:
    levels = made_up(60, seed=6)
    maps, starts = LabelMaps.pack(levels), np.array([0, 5, 5, 31, 60])
    volumes = np.array([0, 1, 2, 3])
    groups = LabelGroups.empty(starts, SHAPE[0])
    groups.add(maps.blocks, maps.areas, volumes, starts[:-1], np.diff(starts))
    owner = np.concatenate(
        [first + np.arange(n) // GROUP for first, n in zip(groups.firsts, np.diff(starts), strict=False)]
    )
    for number in range(10):
        query = LabelQuery(levels[number])
        found = exact_distances(maps, query, np.arange(60))
        bounds, values = np.zeros(len(groups.blocks), np.float32), np.zeros(60, np.float32)
        groups.add_bounds(query.blocks, query.areas, 0.5, volumes, bounds)
        assert (2 * bounds[owner] <= found + 1e-6).all()
        every = np.ones(len(bounds), dtype=np.bool_)
        asked = query.blocks.reshape(-1), query.areas
        where = starts[:-1], starts[:-1], np.diff(starts), groups.firsts
        add_slice_bounds(maps.blocks, maps.areas, *asked, 1.0, *where, every, values)
        assert np.allclose(values, block_bounds(maps, query, np.arange(60)), atol=1e-6)
        assert (values >= 2 * bounds[owner] - 1e-6).all()


def test_averages_over_neighbours_equal_their_plain_form() -> None:
    rng = np.random.default_rng(0)
    values, heights = rng.random(30), np.cumsum(rng.uniform(0.5, 4, 30)).astype(np.float32)
    ends = np.array([7, 8, 30])
    found = np.empty(30)
    average_ranges(values, heights, ends, found)
    owner = np.repeat([0, 1, 2], [7, 1, 22])
    for i in range(30):
        share = np.maximum(1 - np.abs(heights - heights[i]) / 6, 0) * (owner == owner[i])
        assert np.isclose(found[i], (share * values).sum() / share.sum(), rtol=1e-6)
