"""Fields and deformations against what they must be."""

from __future__ import annotations

from typing import Any

import numpy as np

from diptych.phantom.fields import (
    Field,
    block_mean,
    exponentiate,
    identity_points,
    sample,
    smooth_noise,
    travel_time,
    upsample,
)


def test_noise_has_unit_spread() -> None:
    noise = smooth_noise(np.random.default_rng(0), (20, 30, 25), 4.0)
    np.testing.assert_allclose([noise.mean(), noise.std()], [0.0, 1.0], atol=1e-4)


def test_noise_is_smooth_at_its_scale() -> None:
    noise = smooth_noise(np.random.default_rng(0), (20, 30, 25), 8.0)
    assert float(np.abs(np.diff(noise, axis=1)).mean()) < 0.25


def test_a_spline_reproduces_a_linear_field() -> None:
    i, j, k = identity_points((8, 9, 10))
    found = upsample(i + 2 * j - k, (10, 12, 14), 2.0, offset=1.5)
    x, y, z = identity_points((10, 12, 14)) / 2 + 1.5
    np.testing.assert_allclose(found, x + 2 * y - z, atol=1e-4)


def test_a_flow_and_its_reverse_cancel() -> None:
    rng = np.random.default_rng(1)
    velocity = np.stack([smooth_noise(rng, (24, 20, 22), 10.0) for _ in range(3)]) * np.float32(1.0)
    there, back = exponentiate(velocity), exponentiate(-velocity)
    points = identity_points(velocity.shape[1:])
    returned = there + np.stack([sample(axis, points + there) for axis in back])
    inner = (slice(None), slice(5, -5), slice(5, -5), slice(5, -5))
    assert float(np.abs(returned[inner]).max()) < 0.15


def test_a_strong_flow_stays_invertible() -> None:
    rng = np.random.default_rng(2)
    velocity = np.stack([smooth_noise(rng, (24, 20, 22), 6.0) for _ in range(3)]) * np.float32(3.0)
    mapped = identity_points(velocity.shape[1:]) + exponentiate(velocity)
    assert jacobian(mapped)[3:-3, 3:-3, 3:-3].min() > 0


def test_block_mean_equals_the_plain_mean() -> None:
    values = np.random.default_rng(3).random((4, 6, 8), dtype=np.float32)
    plain = [
        [[values[x : x + 2, y : y + 2, z : z + 2].mean() for z in (0, 2, 4, 6)] for y in (0, 2, 4)] for x in (0, 2)
    ]
    np.testing.assert_allclose(block_mean(values, 2), plain, rtol=1e-6)


def test_a_front_at_even_speed_spreads_as_a_ball() -> None:
    start = np.full((21, 25, 23), np.inf, dtype=np.float32)
    start[10, 12, 11] = 0.0
    time = travel_time(np.full(start.shape, 2.0, dtype=np.float32), start, 3.0, limit=99.0)
    distance = np.linalg.norm(identity_points(start.shape) - np.array([10, 12, 11]).reshape(3, 1, 1, 1), axis=0)
    assert float(np.abs(time - distance * 3.0 / 2.0).max()) < 2.5


def test_a_front_goes_round_a_wall() -> None:
    speed = np.ones((15, 15, 3), dtype=np.float32)
    speed[7, :12] = 1e-3
    start = np.full(speed.shape, np.inf, dtype=np.float32)
    start[2, 2, 1] = 0.0
    time = travel_time(speed, start, 1.0, limit=100.0)
    assert time[12, 2, 1] > 1.8 * 10.0


def jacobian(mapped: Field) -> Any:
    """Volume factor of a map `[3, X, Y, Z]`."""
    derivatives = np.stack([np.stack(np.gradient(axis)) for axis in mapped])
    return np.linalg.det(np.moveaxis(derivatives, (0, 1), (-2, -1)))
