"""Slices a few millimetres above and below, and how much of a say they have in a slice's distance.

A slice that fits well has neighbours that fit well, whereas what is decoded wrongly changes from slice to slice. The
smallest of many distances is often one that is too small by such an error; averaged over its neighbourhood it is not.
Weights fall in a straight line from the slice itself to `REACH_MM`. Knows heights and volumes; nothing about distances.
"""

from __future__ import annotations

from itertools import count

import numpy as np
from numpy.typing import NDArray

__all__ = ["REACH_MM", "neighbours", "steadied"]

REACH_MM = 6.0
"""From this far on a slice has no say; chosen on training and validation patients."""


def steadied(
    distances: NDArray[np.float64], heights: NDArray[np.floating], volumes: NDArray[np.integer]
) -> NDArray[np.float64]:
    """Each distance averaged over the neighbourhood of its slice, `[n]`; slices of a volume stand in order of height.

    Args:
        distances: `[n]`.
        heights: millimetres, `[n]`.
        volumes: whose slice it is, `[n]`.
    """
    total, weight = np.array(distances, dtype=np.float64), np.ones(len(distances))
    for step in count(1):
        apart = np.abs(heights[step:] - heights[:-step])
        share = np.where(volumes[step:] == volumes[:-step], np.maximum(1 - apart / REACH_MM, 0), 0)
        if not share.any():
            return total / weight
        total[step:] += share * distances[:-step]
        total[:-step] += share * distances[step:]
        weight[step:] += share
        weight[:-step] += share
    raise AssertionError("a volume ends somewhere")


def neighbours(place: int, heights: NDArray[np.floating]) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Slices with a say in the distance of the one in that place of its volume, and their shares, which add up to 1."""
    weights = np.maximum(1 - np.abs(heights - heights[place]) / REACH_MM, 0).astype(np.float64)
    places = np.flatnonzero(weights)
    return places, weights[places] / weights.sum()
