"""Slices as tiles of pictures: grey values in a window of their own, in the proportions of the body.

Knows arrays and Pillow; nothing about archives or models.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from diptych.description import GLIOMA, Colour
from diptych.drawing.sheet import Pixels, tint
from diptych.slices import FILL

Window = tuple[float, float]
"""Z-scores that become black and white."""

EDGE = 0.5
"""Z-scores above `FILL` from which on a pixel counts as brain; decoded background is never exactly `FILL`."""


def window_of(image: NDArray[np.floating]) -> Window:
    """The 2nd to 98th percentile of one channel's brain `[H, W]`; dark brain stays brighter than background."""
    brain = image[image > FILL + EDGE]
    if not brain.size:
        return FILL, FILL + 1.0
    low, high = (float(value) for value in np.percentile(brain, (2, 98)))
    return low - 0.25 * (high - low), max(high, low + 1e-3)


def tile(
    image: NDArray[np.floating],
    window: Window,
    lesion: NDArray[np.uint8] | None = None,
    colours: Mapping[int, Colour] = GLIOMA.lesion_colours,
) -> Pixels:
    """One channel `[H, W]` as RGB `[H, W, 3]`, with lesion labels `[H, W]` tinted."""
    low, high = window
    grey = np.clip((image.astype(np.float32) - low) / (high - low), 0.0, 1.0)
    return tint(grey, np.zeros(grey.shape, dtype=np.uint8) if lesion is None else lesion, colours)


def tile_size(shape: tuple[int, ...], pixel_spacing: tuple[float, float], *, height: int) -> tuple[int, int]:
    """Width and height at which an image `[H, W]` has the body's proportions.

    >>> tile_size((128, 128), (200 / 128, 160 / 128), height=100)
    (80, 100)
    """
    (H, W), (row_mm, column_mm) = shape, pixel_spacing
    return max(1, round(height * (W * column_mm) / (H * row_mm))), height


def scaled(pixels: Pixels, size: tuple[int, int]) -> Image.Image:
    """The pixels at another size, smooth."""
    return Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC)
