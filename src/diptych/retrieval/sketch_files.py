"""Sketches from files: a PNG whose pixel values are labels, or a NIfTI image with one painted axial plane.

Knows file formats; what the labels mean to a model is `sketch.py`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from nibabel.orientations import apply_orientation
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from diptych.errors import LabelError, UsageError
from diptych.volumes import Limits
from diptych.volumes.geometry import to_canonical
from diptych.volumes.nifti import read_nifti

__all__ = ["read_sketch"]

LARGEST = 4096
"""Rows or columns of a sketch."""
PNG_MODES = ("1", "L", "P")


def read_sketch(path: Path | str) -> NDArray[np.uint8]:
    """The label map `[H, W]` in a .png, .nii or .nii.gz file."""
    path = Path(path)
    name = path.name.lower()
    if name.endswith(".png"):
        return _read_png(path)
    if name.endswith((".nii", ".nii.gz")):
        return _read_nifti(path)
    raise UsageError(f"{path}: a sketch is a .png with label values, or a .nii or .nii.gz with one painted axial plane")


def _read_png(path: Path) -> NDArray[np.uint8]:
    try:
        with Image.open(path, formats=("PNG",)) as image:
            if max(image.size) > LARGEST:
                raise LabelError(f"{path}: {image.width}x{image.height} pixels; a sketch has the size of a slice")
            if image.mode not in PNG_MODES:
                raise LabelError(
                    f"{path}: is a {image.mode} picture; save it as greys or palette colours numbered 0 to 3"
                )
            return np.asarray(image, dtype=np.uint8)
    except FileNotFoundError:
        raise LabelError(f"{path}: not there; give the file of a sketch") from None
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise LabelError(f"{path}: cannot be read as PNG ({str(error).splitlines()[0]}); save it again") from None


def _read_nifti(path: Path) -> NDArray[np.uint8]:
    image = read_nifti(path, limits=Limits(max_voxels=LARGEST**2))
    voxels = apply_orientation(image.stored, to_canonical(path, image.affine, image.stored.shape).ornt)
    labels = voxels * image.slope + image.intercept
    painted = np.flatnonzero(labels.any(axis=(0, 1)))
    if len(painted) != 1:
        raise LabelError(f"{path}: has {len(painted)} painted axial planes; a sketch is one; leave the others 0")
    plane = labels[:, :, painted[0]].T
    if not np.array_equal(plane, np.clip(plane, 0, 255).astype(np.uint8)):
        raise LabelError(f"{path}: holds values that are no labels; store whole numbers from 0 to 3")
    return np.asarray(plane, dtype=np.uint8)
