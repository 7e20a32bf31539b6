"""`Signal`: one image of a patient in memory, and its planes in the frame of a slice at any size.

Knows NIfTI files and geometry; nothing about archives or HTTP. Planes are `[rows, columns]`: anterior at the top, the
patient's right on the left.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from diptych.volumes.geometry import to_canonical
from diptych.volumes.nifti import read_nifti

Window = tuple[float, float]
"""Signal that is shown black and white."""
PERCENTILES = (1.0, 99.7)
"""Of the brain's signal: half of the first is shown black, the second white. Tumour that enhances is rarely more than a
hundredth of the brain; whatever clips it hides what a reader looks for."""


@dataclass(frozen=True, eq=False)
class Signal:
    """Voxels on canonical axes with what it takes to show and to normalise them."""

    voxels: NDArray[Any]
    """`[X, Y, Z]`."""
    affine: NDArray[np.float64]
    mean: float
    """Over the brain, as slices are normalised."""
    deviation: float
    window: Window

    def plane(
        self, slice_affine: NDArray[np.float64], z: int, *, shape: tuple[int, int], size: tuple[int, int]
    ) -> NDArray[np.float32]:
        """Axial plane `z` in the frame of slices of `shape` (rows, columns), drawn with `size` (width, height)."""
        (H, W), (width, height) = shape, size
        to_voxel = np.linalg.inv(self.affine) @ slice_affine  # (column, row, z) → voxel; axes are parallel
        x_step, y_step = to_voxel[0, 0] * W / width, to_voxel[1, 1] * H / height
        x_start, y_start = to_voxel[:2, 3] + 0.5 - 0.5 * to_voxel[[0, 1], [0, 1]]  # the frame's corner, in voxels
        image = Image.fromarray(np.ascontiguousarray(self.voxels[:, :, z].T, dtype=np.float32))
        turn = (x_step, 0.0, x_start, 0.0, y_step, y_start)
        drawn = image.transform((width, height), Image.Transform.AFFINE, turn, Image.Resampling.BICUBIC)
        return np.maximum(np.asarray(drawn, dtype=np.float32), np.float32(0.0))

    def labels(
        self, slice_affine: NDArray[np.float64], z: int, *, shape: tuple[int, int], size: tuple[int, int]
    ) -> NDArray[np.uint8]:
        """The same for label maps, by the nearest voxel."""
        (H, W), (width, height) = shape, size
        to_voxel = np.linalg.inv(self.affine) @ slice_affine
        columns = (np.arange(width) + 0.5) * W / width - 0.5
        rows = (np.arange(height) + 0.5) * H / height - 0.5
        x = np.rint(to_voxel[0, 0] * columns + to_voxel[0, 3]).astype(int)
        y = np.rint(to_voxel[1, 1] * rows + to_voxel[1, 3]).astype(int)
        X, Y, _ = self.voxels.shape
        inside = ((y >= 0) & (y < Y))[:, None] & ((x >= 0) & (x < X))[None]
        plane = self.voxels[:, :, z].T[np.clip(y, 0, Y - 1)[:, None], np.clip(x, 0, X - 1)[None]]
        return np.where(inside, plane, 0).astype(np.uint8)


def read_signal(path: Path, *, labels: bool = False) -> Signal:
    """Read a copy and measure its brain."""
    image = read_nifti(path)
    turn = to_canonical(path, image.affine, image.stored.shape)
    voxels = turn.apply(image.stored)
    if image.scaled:
        voxels = (voxels * image.slope + image.intercept).astype(np.float32)
    brain = voxels[voxels > 0]
    if labels or not brain.size:
        return Signal(voxels, turn.affine, 0.0, 1.0, (0.0, 1.0))
    mean, deviation = float(brain.mean(dtype=np.float64)), float(brain.std(dtype=np.float64))
    low, high = (float(value) for value in np.percentile(brain[:: max(1, brain.size // 200_000)], PERCENTILES))
    return Signal(voxels, turn.affine, mean, deviation or 1.0, (low / 2, max(high, low + 1e-6)))
