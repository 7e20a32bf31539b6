"""Resampling against loops that say what is meant."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from diptych.slices.preprocess import Axis, Resampler


def slow_resample(plane: NDArray[np.float32], axes: tuple[Axis, Axis, Axis, Axis], fill: float) -> NDArray[np.float64]:
    """One output pixel at a time: a triangle-weighted mean over an endless lattice that is `fill` beyond the plane."""
    source_x, source_y, target_x, target_y = axes

    def weights(source: Axis, centre: float, reach: float) -> dict[int, float]:
        near = {
            j: max(0.0, 1 - abs(source.start + (j + 0.5) * source.spacing - centre) / reach) for j in range(-60, 90)
        }
        return {j: weight / sum(near.values()) for j, weight in near.items() if weight}

    image = np.zeros((target_y.count, target_x.count))
    for row, y in enumerate(target_y.centres):
        for column, x in enumerate(target_x.centres):
            for i, a in weights(source_x, x, max(source_x.spacing, target_x.spacing)).items():
                for j, b in weights(source_y, y, max(source_y.spacing, target_y.spacing)).items():
                    inside = 0 <= i < source_x.count and 0 <= j < source_y.count
                    image[row, column] += a * b * (plane[i, j] if inside else fill)
    return image


@pytest.mark.parametrize(
    "axes",
    [
        pytest.param((Axis(9, 2.0), Axis(12, 2.0), Axis(5, 3.6), Axis(7, 24 / 7)), id="coarser, whole frame"),
        pytest.param((Axis(9, 2.0), Axis(12, 2.0), Axis(16, 1.2, -1.0), Axis(11, 1.5, 4.0)), id="finer, shifted"),
        pytest.param((Axis(9, 2.0), Axis(12, 1.0), Axis(6, 3.0, 10.0), Axis(8, 0.5, -2.0)), id="beyond the edge"),
    ],
)
def test_images_equal_the_slow_way(axes: tuple[Axis, Axis, Axis, Axis]) -> None:
    volume = np.random.default_rng(0).normal(size=(9, 12, 2)).astype(np.float32)
    fast = Resampler(*axes).images(volume, fill=-3.0)
    slow = np.stack([slow_resample(volume[:, :, z], axes, -3.0) for z in range(2)])
    np.testing.assert_allclose(fast, slow, atol=1e-5)


def test_the_same_grid_changes_nothing_but_the_order_of_axes() -> None:
    volume = np.random.default_rng(0).normal(size=(5, 7, 3)).astype(np.float32)
    same = Resampler(Axis(5, 2.0), Axis(7, 1.5), Axis(5, 2.0), Axis(7, 1.5)).images(volume, fill=0.0)
    np.testing.assert_allclose(same, volume.transpose(2, 1, 0), atol=1e-6)


def test_memory_order_does_not_matter() -> None:
    volume = np.random.default_rng(0).normal(size=(5, 7, 3)).astype(np.float32)
    resampler = Resampler(Axis(5, 2.0), Axis(7, 1.5), Axis(4, 2.0), Axis(9, 1.0))
    np.testing.assert_array_equal(
        resampler.images(volume, fill=0.0), resampler.images(np.asfortranarray(volume), fill=0.0)
    )


def test_background_stays_exactly_fill() -> None:
    resampler = Resampler(Axis(20, 1.0), Axis(20, 1.0), Axis(7, 3.3), Axis(6, 3.1))
    assert np.unique(resampler.images(np.full((20, 20, 1), -3.0, dtype=np.float32), fill=-3.0)) == -3.0


def test_labels_outvoted_one_by_one_but_not_together_stay() -> None:
    mixed = np.random.default_rng(0).choice(4, size=(60, 60, 1), p=[0.4, 0.2, 0.2, 0.2]).astype(np.uint8)
    one_pixel = Axis(1, 30.0, 15.0)
    assert Resampler(Axis(60, 1.0), Axis(60, 1.0), one_pixel, one_pixel).labels(mixed)[0, 0, 0] != 0


def test_labels_equal_a_vote_over_slow_shares() -> None:
    axes = (Axis(9, 2.0), Axis(12, 2.0), Axis(5, 3.6), Axis(7, 24 / 7))
    labels = np.random.default_rng(1).choice([0, 0, 0, 1, 2, 3], size=(9, 12, 1)).astype(np.uint8)
    share = np.stack([slow_resample((labels[:, :, 0] == n).astype(np.float32), axes, 0.0) for n in range(1, 4)])
    voted = np.where(share.sum(axis=0) >= 0.5, share.argmax(axis=0) + 1, 0)
    np.testing.assert_array_equal(Resampler(*axes).labels(labels)[0], voted)


def test_a_speck_below_half_a_pixel_is_lost() -> None:
    speck = np.zeros((8, 8, 1), dtype=np.uint8)
    speck[3, 3] = 1
    assert not Resampler(Axis(8, 1.0), Axis(8, 1.0), Axis(2, 4.0), Axis(2, 4.0)).labels(speck).any()
