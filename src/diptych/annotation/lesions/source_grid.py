"""The voxel grid a patient's files came with, and how label maps on canonical axes return to it.

Knows NIfTI geometry, nothing about lesions.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from nibabel.orientations import apply_orientation, axcodes2ornt, io_orientation, ornt_transform
from numpy.typing import NDArray

from diptych.volumes.nifti import read_nifti

__all__ = ["SourceGrid", "read_grid"]


@dataclass(frozen=True, eq=False)
class SourceGrid:
    """Axes, size and place of one image file."""

    shape: tuple[int, int, int]
    affine: NDArray[np.float64]
    """Voxel index to RAS+ millimetres, `[4, 4]`, as the file has it."""

    def from_canonical(self, labels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """A label map on canonical LPS axes, `[X, Y, Z]`, with its axes turned and swapped as in the file."""
        turn = ornt_transform(axcodes2ornt(("L", "P", "S")), io_orientation(self.affine))
        turned: NDArray[np.uint8] = np.ascontiguousarray(apply_orientation(labels, turn))
        assert turned.shape == self.shape, "the volume was read from this very file"
        return turned


def read_grid(path: Path) -> SourceGrid:
    """The grid of a NIfTI file."""
    image = read_nifti(path)
    columns, rows, planes = image.stored.shape
    return SourceGrid((columns, rows, planes), image.affine)
