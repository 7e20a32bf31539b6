"""Painted label maps as requests carry them: a base64 PNG, or runs of labels. Knows bytes and arrays only."""

from __future__ import annotations

import base64
import binascii
from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from diptych.errors import LabelError
from diptych.server.requests import Sketch

PNG_MODES = ("1", "L", "P")


def read_labels(sketch: Sketch, shape: tuple[int, int]) -> NDArray[np.uint8]:
    """The label map `[H, W]`, which must have the size of a slice."""
    labels = _from_runs(sketch.runs, shape) if sketch.runs is not None else _from_png(sketch.labels or "", shape)
    if labels.shape != shape:
        raise LabelError(f"sketch of {_times(labels.shape)} pixels: slices have {_times(shape)}; paint it on a slice")
    return labels


def _from_runs(runs: list[tuple[int, int]], shape: tuple[int, int]) -> NDArray[np.uint8]:
    pixels = sum(count for _, count in runs)
    if pixels != shape[0] * shape[1]:
        raise LabelError(f"sketch of {pixels} pixels: slices have {_times(shape)}; let the runs cover all of them")
    values, counts = np.array([value for value, _ in runs], dtype=np.uint8), [count for _, count in runs]
    return np.repeat(values, counts).reshape(shape)


def _from_png(text: str, shape: tuple[int, int]) -> NDArray[np.uint8]:
    try:
        data = base64.b64decode(text.removeprefix("data:image/png;base64,"), validate=True)
        with Image.open(BytesIO(data), formats=("PNG",)) as image:
            if image.mode not in PNG_MODES or (image.height, image.width) != shape:
                raise LabelError(
                    f"sketch: a {image.mode} picture of {image.height}x{image.width} pixels; send greys or palette "
                    f"numbers 0 to 3, {_times(shape)} pixels"
                )
            return np.asarray(image, dtype=np.uint8)
    except (binascii.Error, UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        raise LabelError("sketch: cannot be read as a base64 PNG; send one, or runs") from None


def _times(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
