"""Images on grids: an array with its affine, brought onto another grid through a rigid transform.

Every grid may be oblique or sheared; positions are RAS+ millimetres. A *transform* is a 4x4 matrix that takes a
position in the target to the position in the source where its value is found. Knows nothing about where transforms
come from.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

Affine = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Grid:
    """Where voxels lie."""

    shape: tuple[int, int, int]
    affine: Affine
    """Index to RAS+ millimetres."""

    @property
    def spacing(self) -> tuple[float, float, float]:
        """Millimetres between voxels along each axis."""
        x, y, z = np.linalg.norm(self.affine[:3, :3], axis=0)
        return float(x), float(y), float(z)

    @property
    def voxel_ml(self) -> float:
        """Volume of one voxel in millilitres."""
        return float(abs(np.linalg.det(self.affine[:3, :3]))) / 1000.0

    @property
    def corners(self) -> NDArray[np.float64]:
        """Positions of the eight outermost voxels, `[8, 3]`."""
        corners = np.array(list(product(*((0.0, n - 1.0) for n in self.shape))))
        return np.asarray(corners @ self.affine[:3, :3].T + self.affine[:3, 3])


@dataclass(frozen=True, eq=False)
class Placed:
    """An image and where it lies."""

    array: NDArray[Any]
    """`[X, Y, Z]`."""
    affine: Affine

    @property
    def grid(self) -> Grid:
        """Where its voxels lie."""
        x, y, z = self.array.shape
        return Grid((x, y, z), self.affine)


def resample(
    image: Placed, grid: Grid, transform: Affine | None = None, *, order: Literal[0, 1] = 1, outside: float = 0.0
) -> NDArray[np.float32]:
    """The image's values at the voxels of `grid`, linearly between voxels or (`order=0`) those of the nearest."""
    there = grid.affine if transform is None else transform @ grid.affine
    matrix = np.linalg.inv(image.affine) @ there
    values: NDArray[np.float32] = ndimage.affine_transform(
        np.asarray(image.array, dtype=np.float32),
        matrix[:3, :3],
        matrix[:3, 3],
        output_shape=grid.shape,
        output=np.float32,
        order=order,
        cval=outside,
    )
    return values


def covered(source: Grid, grid: Grid, transform: Affine | None = None) -> NDArray[np.bool_]:
    """Voxels of `grid` that lie inside what `source` has measured: up to half a voxel beyond its outermost centres."""
    there = grid.affine if transform is None else transform @ grid.affine
    matrix = np.linalg.inv(source.affine) @ there
    inside = np.ones(grid.shape, dtype=np.bool_)
    axes = [np.arange(n, dtype=np.float64) for n in grid.shape]
    for row, count in zip(matrix[:3], source.shape, strict=True):
        x, y, z = (weight * axis for weight, axis in zip(row[:3], axes, strict=True))
        index = x[:, None, None] + y[None, :, None] + (z + row[3])[None, None, :]
        inside &= (index >= -0.5) & (index <= count - 0.5)
    return inside


def even_grid(grid: Grid, mm: float, *, margin: float = 0.0) -> Grid:
    """A grid of cubes of `mm` along the patient's axes that holds all of `grid`."""
    low, high = grid.corners.min(axis=0) - margin, grid.corners.max(axis=0) + margin
    x, y, z = (int(n) for n in np.ceil((high - low) / mm) + 1)
    affine = np.diag([mm, mm, mm, 1.0])
    affine[:3, 3] = low
    return Grid((x, y, z), affine)


def smooth(image: Placed, mm: float) -> Placed:
    """Take away detail that a grid of `mm` cannot hold, along each axis that is finer than it."""
    sigmas = [0.5 * np.sqrt(max((mm / size) ** 2 - 1.0, 0.0)) for size in image.grid.spacing]
    array = np.asarray(image.array, dtype=np.float32)
    return Placed(ndimage.gaussian_filter(array, sigmas) if any(sigmas) else array, image.affine)


def grid_points(mask: NDArray[np.bool_], affine: Affine, *, step: int = 1) -> NDArray[np.float64]:
    """Positions of every `step`-th voxel of a mask, `[n, 3]`."""
    indices = np.argwhere(mask)[::step]
    return np.asarray(indices @ affine[:3, :3].T + affine[:3, 3])
