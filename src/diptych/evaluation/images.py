"""Images of many patients, small: averaged down to a coarse grid, patient by patient, never all at full size at once.

Knows slice stores; nothing about what is done with the pixels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from diptych.slices import SliceStore

__all__ = ["evenly", "shrink", "small_images"]


def small_images(homes: Mapping[str, SliceStore], keys: Sequence[str], side: int) -> NDArray[np.float32]:
    """All slices of all patients, averaged down to `side` × `side` pixels, `[N, C, side, side]`."""
    return np.concatenate([shrink(homes[key].images(key), side) for key in keys])


def shrink(images: NDArray[np.float16], side: int) -> NDArray[np.float32]:
    """Average `[n, C, H, W]` down to `[n, C, side, side]`."""
    full = torch.from_numpy(np.asarray(images, dtype=np.float32))
    return np.asarray(F.adaptive_avg_pool2d(full, side).numpy())


def evenly(homes: Mapping[str, SliceStore], keys: Sequence[str], count: int, *, seed: int) -> NDArray[np.float16]:
    """About `count` slices, equally many of each patient, drawn at random, `[n, C, H, W]`."""
    rng = np.random.default_rng(seed)
    each = max(count // max(len(keys), 1), 1)
    chosen = []
    for key in keys:
        images = homes[key].images(key)
        rows = np.sort(rng.permutation(len(images))[:each])
        chosen.append(np.asarray(images[rows]))
    return np.concatenate(chosen)
