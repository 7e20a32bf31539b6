"""Travel time of a front through a medium of varying speed: the eikonal equation |∇T| · speed = 1.

Knows nothing about tumours.
"""

from __future__ import annotations

import numpy as np
from scipy import ndimage

from diptych.phantom.fields import Field, as_field

__all__ = ["travel_time"]

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
