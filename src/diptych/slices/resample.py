"""In-plane resampling as two sparse matrices, for images and for labels.

Knows nothing about patients: an axis is a row of equal cells, and a target axis is another such row placed over it.
Along each axis the kernel is a triangle as wide as the coarser of the two grids: linear interpolation when pixels get
smaller, antialiased averaging when they get larger. All slices of a volume go through one multiplication.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

__all__ = ["Axis", "Resampler"]


@dataclass(frozen=True)
class Axis:
    """Equal cells along one direction: `count` cells of `spacing` mm, the first one beginning at `start` mm."""

    count: int
    spacing: float
    start: float = 0.0

    @property
    def centres(self) -> NDArray[np.float64]:
        """Middle of each cell in millimetres."""
        return self.start + (np.arange(self.count, dtype=np.float64) + 0.5) * self.spacing


class Resampler:
    """Maps planes `[X, Y]` on a source grid to images `[H, W]` on a target grid; rows run along y, columns along x."""

    def __init__(self, source_x: Axis, source_y: Axis, target_x: Axis, target_y: Axis) -> None:
        self._along_x = _weights(source_x, target_x)  # [W, X]
        self._along_y = _weights(source_y, target_y)  # [H, Y]

    def images(self, volume: NDArray[np.float32], *, fill: float) -> NDArray[np.float32]:
        """Resample `[X, Y, Z]` to `[Z, H, W]`; everything beyond the source counts as `fill`."""
        X, Y, Z = volume.shape
        W, H = self._along_x.shape[0], self._along_y.shape[0]
        # The orders of axes follow memory, in which volumes run x fastest: each copy moves whole rows where it can.
        above_fill = np.ascontiguousarray(volume.transpose(1, 2, 0)) - np.float32(fill)  # [Y, Z, X]
        rows = (self._along_y @ above_fill.reshape(Y, Z * X)).reshape(H * Z, X)
        pixels = (self._along_x @ np.ascontiguousarray(rows.T)).reshape(W, H, Z)
        return np.ascontiguousarray(pixels.transpose(2, 1, 0) + np.float32(fill))

    def labels(self, volume: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Resample a label map `[X, Y, Z]` to `[Z, H, W]` by majority, in two votes.

        First label against background, then the strongest label: a pixel shared by three tumour compartments stays
        tumour even when background alone outweighs each of them. A speck below half a pixel is lost.
        """
        present = [label for label in np.unique(volume) if label != 0]
        shape = (volume.shape[2], self._along_y.shape[0], self._along_x.shape[0])
        total = np.zeros(shape, dtype=np.float32)
        best = np.zeros(shape, dtype=np.float32)
        winner = np.zeros(shape, dtype=np.uint8)
        for label in present:
            share = self.images((volume == label).astype(np.float32), fill=0.0)
            total += share
            stronger = share > best
            best[stronger] = share[stronger]
            winner[stronger] = label
        winner[total < 0.5] = 0
        return winner


def _weights(source: Axis, target: Axis) -> csr_array:
    """Triangle-kernel weights `[target, source]`; a row that reaches beyond the source sums to less than one."""
    reach = max(source.spacing, target.spacing)
    lattice_start = source.start + 0.5 * source.spacing
    first = np.floor((target.centres - reach - lattice_start) / source.spacing).astype(int)
    taps = int(np.ceil(2 * reach / source.spacing)) + 2
    columns = first[:, None] + np.arange(taps)  # [target, taps], some of them beyond the source
    distance = np.abs(lattice_start + columns * source.spacing - target.centres[:, None])
    weight = np.clip(1.0 - distance / reach, 0.0, None)
    weight /= weight.sum(axis=1, keepdims=True)
    rows = np.broadcast_to(np.arange(target.count)[:, None], columns.shape)
    kept = (columns >= 0) & (columns < source.count) & (weight > 0)
    shape = (target.count, source.count)
    return csr_array((weight[kept].astype(np.float32), (rows[kept], columns[kept])), shape=shape)
