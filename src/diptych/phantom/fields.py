"""Smooth random fields, invertible deformations, sampling and travel times: the mathematics of phantoms.

Knows arrays only, nothing about brains. A front's travel time solves the eikonal equation |∇T| · speed = 1.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage

Field = NDArray[np.float32]

SQUARINGS = 6


def as_field(values: ArrayLike) -> Field:
    """The same numbers as 32-bit floats."""
    return np.asarray(values, dtype=np.float32)


def gradient(values: Field, spacing: float) -> Field:
    """Slope along each axis, `[D, …]`."""
    return as_field(np.stack([np.gradient(values, spacing, axis=axis) for axis in range(values.ndim)]))


def sigmoid(x: Field, width: float = 1.0) -> Field:
    """A soft step from 0 to 1 around zero; `width` is the distance over which it rises from .5 to .73."""
    return as_field(1.0 / (1.0 + np.exp(np.clip(-x / width, -30.0, 30.0))))


def smooth_noise(rng: np.random.Generator, shape: tuple[int, ...], scale: float) -> Field:
    """Random field of zero mean and unit spread whose bumps are about `scale` voxels apart."""
    lattice = tuple(math.ceil(edge / scale) + 3 for edge in shape)
    values = rng.standard_normal(lattice, dtype=np.float32)
    noise = upsample(values, shape, scale, offset=1.0)
    return as_field((noise - noise.mean()) / max(float(noise.std()), 1e-6))


def upsample(values: Field, shape: tuple[int, ...], scale: float, *, offset: float | Field = 0.0) -> Field:
    """Cubic B-spline of a lattice: voxel i of the result lies at lattice index `offset + i / scale`.

    The spline smooths the lattice a little and reproduces linear fields exactly. Axis by axis, four taps each.
    """
    starts = np.broadcast_to(np.asarray(offset, dtype=np.float64), (len(shape),))
    for axis, (edge, start) in enumerate(zip(shape, starts, strict=True)):
        at = start + np.arange(edge) / scale
        whole = np.floor(at).astype(np.intp)
        column = (-1, *(1,) * (values.ndim - axis - 1))
        taps = [
            np.take(values, np.clip(whole + tap - 1, 0, values.shape[axis] - 1), axis=axis) * weight.reshape(column)
            for tap, weight in enumerate(_cubic_weights(at - whole))
        ]
        values = taps[0] + taps[1] + taps[2] + taps[3]
    return values


def _cubic_weights(t: NDArray[np.float64]) -> Field:
    """Weights of the four nodes around a point at fraction `t` between the middle two, `[4, N]`."""
    return as_field([(1 - t) ** 3, 3 * t**3 - 6 * t**2 + 4, -3 * t**3 + 3 * t**2 + 3 * t + 1, t**3]) / np.float32(6)


def identity_points(shape: tuple[int, ...]) -> Field:
    """Index of every voxel, `[len(shape), *shape]`."""
    return np.indices(shape, dtype=np.float32)


def sample(values: NDArray[Any], points: Field, *, order: Literal[0, 1] = 1, outside: float = 0.0) -> Field:
    """Values at fractional indices `[D, …]`; `outside` beyond the edges."""
    return ndimage.map_coordinates(
        values, points, order=order, mode="constant", cval=outside, prefilter=False, output=np.float32
    )


def exponentiate(velocity: Field) -> Field:
    """Displacement of the flow along a stationary velocity field, both `[D, …]` in voxels.

    Scaling and squaring: u ← u + u∘(id + u), starting from v / 2ⁿ. The flow of a smooth field is invertible,
    and the flow of −v is its inverse.
    """
    displacement = velocity / np.float32(2**SQUARINGS)
    points = identity_points(velocity.shape[1:])
    for _ in range(SQUARINGS):
        moved = points + displacement
        step = [ndimage.map_coordinates(axis, moved, order=1, mode="nearest") for axis in displacement]
        displacement = displacement + np.stack(step)
    return displacement


def block_mean(values: Field, block: int) -> Field:
    """Mean over cubes of `block` voxels along the last three axes; each must be a multiple of `block`."""
    if block == 1:
        return values
    for axis in (-1, -2, -3):
        parts = [np.take(values, range(start, values.shape[axis], block), axis=axis) for start in range(block)]
        values = sum(parts[1:], start=parts[0]) / np.float32(block)
    return values


FAR = np.float32(1e6)


def travel_time(speed: Field, start: Field, spacing: float, *, limit: float) -> Field:
    """Arrival time of a front that leaves each voxel at `start` (∞: not a source); ∞ where it exceeds `limit`.

    Godunov's upwind scheme, all voxels at once, repeated until nothing changes. With speed in millimetres per unit
    of time and `spacing` in millimetres, times are in those units.
    """
    slowness = (spacing / np.maximum(speed, 1e-3)).astype(np.float32)
    time = np.minimum(start, FAR).astype(np.float32)
    while True:
        x, y, z = (_earlier_neighbour(time, axis) for axis in range(3))
        arrival = np.minimum(time, _upwind(x, y, z, slowness))
        arrival = np.where(arrival > limit, time, arrival)
        if not np.any(arrival < time - 1e-3):
            break
        time = arrival
    return np.where(time < FAR, time, np.inf).astype(np.float32)


def _earlier_neighbour(time: Field, axis: int) -> Field:
    return ndimage.minimum_filter1d(time, 3, axis=axis, mode="nearest")


def _upwind(x: Field, y: Field, z: Field, slowness: Field) -> Field:
    """Solve Σ (T − tᵢ)² = slowness² over as many of the three axes as the front has reached."""
    low, high = np.minimum(x, y), np.maximum(x, y)
    a, b, c = np.minimum(low, z), np.maximum(low, np.minimum(high, z)), np.maximum(high, z)
    one = a + slowness
    two = 0.5 * (a + b + np.sqrt(np.maximum(2.0 * slowness**2 - (a - b) ** 2, 0.0)))
    total = a + b + c
    three = (total + np.sqrt(np.maximum(total**2 - 3.0 * (a * a + b * b + c * c - slowness**2), 0.0))) / 3.0
    return as_field(np.where(one <= b, one, np.where(two <= c, two, three)))
