"""Which cells of the grid a question is about: named cells, a rectangle or a mask in the image, or a lesion.

Knows shapes alone. Image coordinates are rows and columns of the slice as the network sees it `[H, W]`; a cell belongs
to a region when any of its pixels does.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from diptych.errors import UsageError

__all__ = ["region_of_cells", "region_of_mask", "region_of_rectangle"]

Region = NDArray[np.bool_]
"""`[h, w]`, true where cells are compared."""


def region_of_cells(cells: Iterable[tuple[int, int]], *, grid: tuple[int, int]) -> Region:
    """Cells by row and column, counted from 0 at the top left.

    >>> region_of_cells([(0, 1)], grid=(2, 3)).astype(int).tolist()
    [[0, 1, 0], [0, 0, 0]]
    """
    region = np.zeros(grid, dtype=np.bool_)
    for row, column in cells:
        if not (0 <= row < grid[0] and 0 <= column < grid[1]):
            raise UsageError(f"cell {row},{column}: this grid has rows 0…{grid[0] - 1} and columns 0…{grid[1] - 1}")
        region[row, column] = True
    return _filled(region, "no cell is given; name at least one, such as 3,4")


def region_of_rectangle(
    rectangle: tuple[int, int, int, int], *, image_size: tuple[int, int], grid: tuple[int, int]
) -> Region:
    """Cells that a rectangle touches: top row, left column, bottom row, right column, the last two left out.

    >>> region_of_rectangle((0, 7, 8, 9), image_size=(16, 24), grid=(2, 3)).astype(int).tolist()
    [[1, 1, 0], [0, 0, 0]]
    """
    top, left, bottom, right = rectangle
    H, W = image_size
    if not (0 <= top < bottom <= H and 0 <= left < right <= W):
        raise UsageError(
            f"rectangle {top},{left},{bottom},{right}: give top,left,bottom,right with "
            f"0 ≤ top < bottom ≤ {H} and 0 ≤ left < right ≤ {W}"
        )
    mask = np.zeros(image_size, dtype=np.bool_)
    mask[top:bottom, left:right] = True
    return region_of_mask(mask, image_size=image_size, grid=grid)


def region_of_mask(mask: ArrayLike, *, image_size: tuple[int, int], grid: tuple[int, int]) -> Region:
    """Cells that a mask `[H, W]` touches: all that is not zero counts, so a label map will do."""
    marked: NDArray[np.bool_] = np.asarray(mask) != 0
    if marked.shape != image_size:
        raise UsageError(
            f"mask of shape {marked.shape}: slices have {image_size[0]}x{image_size[1]} pixels; draw it on a slice"
        )
    region = touched_cells(marked, grid)
    return _filled(region, "the mask is empty; mark at least one pixel")


def touched_cells(mask: NDArray[np.bool_], grid: tuple[int, int]) -> Region:
    """The same without any check: an empty mask touches nothing."""
    (H, W), (h, w) = mask.shape, grid
    return np.asarray(mask.reshape(h, H // h, w, W // w).any(axis=(1, 3)))


def _filled(region: Region, otherwise: str) -> Region:
    if not region.any():
        raise UsageError(f"empty region: {otherwise}")
    return region
