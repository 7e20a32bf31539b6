"""Label maps in few bytes: nothing is lost, distances are those of plain arrays, and bounds never exceed them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from diptych.errors import InputError
from diptych.search.label_groups import GROUP, LabelGroups
from diptych.search.label_maps import BLOCKS, LabelMaps
from diptych.search.label_scan import LabelQuery, average, exact_distances
from diptych.search.label_volumes import Asked, add_row_bounds

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
        bounds = row_bounds(maps, query)
        assert bounds == pytest.approx(plain_bounds(maps, query), abs=1e-6)
        assert (bounds <= found + 1e-6).all()


def row_bounds(maps: LabelMaps, query: LabelQuery) -> NDArray[np.float64]:
    weight, blocks, areas, asked, own, outside = Asked.of(1.0, maps, query).for_bounds
    room, values = np.empty(len(asked), np.uint8), np.zeros(len(maps))
    add_row_bounds(blocks, areas, 0, asked, own, outside, weight, room, room.view(np.uint64), values)
    return values


def plain_bounds(maps: LabelMaps, query: LabelQuery) -> NDArray[np.float64]:
    """The twin: what two maps share at most by their blocks, over what both have at least."""
    most = np.minimum(maps.blocks, query.blocks).sum(axis=2, dtype=int)
    least = np.maximum(maps.areas.astype(int) - query.outside, 0)
    present = np.count_nonzero(query.areas + least, axis=1)
    dice = 2 * most / np.maximum(query.areas + np.maximum(most, least), 1)
    return np.where(present > 0, 1 - dice.sum(axis=1) / np.maximum(present, 1), 0.0)


@pytest.mark.parametrize("with_region", [False, True])
def test_bounds_of_groups_stay_below_those_of_their_slices(with_region: bool) -> None:
    levels = made_up(60, seed=6)
    maps, starts = LabelMaps.pack(levels), np.array([0, 5, 5, 31, 60])
    groups = LabelGroups.empty(starts, SHAPE[0])
    groups.add(maps.blocks, maps.areas, np.arange(4), starts[:-1], np.diff(starts))
    owner = np.concatenate(
        [first + np.arange(n) // GROUP for first, n in zip(groups.firsts, np.diff(starts), strict=False)]
    )
    region = np.zeros(SHAPE[1:], dtype=np.bool_)
    region[:, 2:] = True
    for number in range(10):
        query = LabelQuery(levels[number] * region, region) if with_region else LabelQuery(levels[number])
        bounds = np.zeros(groups.room, np.float32)
        groups.add_bounds(query.blocks, query.areas, query.outside, 0.5, slice(None), bounds)
        assert (2 * bounds[owner] <= row_bounds(maps, query) + 1e-6).all()
        for group in range(len(groups)):
            members = maps.take(np.flatnonzero(owner == group))
            largest = members.blocks.max(axis=0).reshape(1, SHAPE[0], BLOCKS**2)
            most = np.minimum(largest, query.blocks).sum(axis=2, dtype=int)[0]
            least = np.maximum(members.areas.astype(int).min(axis=0) - query.outside, 0)
            dice = 2 * most / np.maximum(query.areas + np.maximum(most, least), 1)
            present = np.count_nonzero(query.areas + least)
            assert 2 * bounds[group] == pytest.approx(1 - dice.sum() / present if present else 0.0, abs=1e-6)


def test_a_query_of_many_large_classes_takes_two_words() -> None:
    rng = np.random.default_rng(4)
    levels = np.repeat(rng.integers(0, 4, (12, 1, 32, 32)), 7, axis=1).astype(np.uint8)
    maps, query = LabelMaps.pack(levels), LabelQuery(levels[0])
    assert query.fields[0].max() == 1
    expected = [plain_distance(levels[0], other) for other in levels]
    assert exact_distances(maps, query, np.arange(12)).tolist() == expected


def test_averages_over_neighbours_equal_their_plain_form() -> None:
    rng = np.random.default_rng(0)
    values, heights = rng.random(22), np.cumsum(rng.uniform(0.5, 4, 22)).astype(np.float32)
    for i in range(22):
        share = np.maximum(1 - np.abs(heights - heights[i]) / 6, 0)
        assert average(values, heights, i, 22) == pytest.approx((share * values).sum() / share.sum(), rel=1e-6)
