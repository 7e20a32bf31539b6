"""The way back: what was drawn in the atlas, on the grid of a series as the scanner gave it.

Labels travel as one map per label, resampled linearly through the inverse of the way in and averaged over the
thickness of a slice; the largest wins. Nearest neighbour would lose a sixth of a lesion's outline at 6 mm. Images (a
healthy twin) are resampled linearly. Knows records and arrays; DICOM is written by `pacs`.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.errors import GeometryError, LabelError
from diptych.intake.intake_record import IntakeRecord, SeriesRecord
from diptych.intake.resampling import Affine, Grid, Placed, resample
from diptych.volumes import write_nifti
from diptych.volumes.layout import one_line
from diptych.volumes.nifti import read_nifti

LAYER_MM = 1.5
"""Thick slices are averaged over layers about this far apart."""
MOST_LABELS = 64


def labels_back(labels: NDArray[Any], affine: Affine, series: SeriesRecord) -> NDArray[np.uint8]:
    """Labels in the atlas as labels on the series' own grid."""
    values = [int(value) for value in np.unique(labels) if value != 0]
    if len(values) > MOST_LABELS or (values and max(values) > 255):
        raise LabelError(f"{len(values)} different values up to {max(values)}: not a label map; bring it as an image")
    won = np.zeros(series.shape, dtype=np.uint8)
    best = np.full(series.shape, 1.0, dtype=np.float32)  # what is left for the background
    shares = {value: image_back((labels == value).astype(np.float32), affine, series) for value in values}
    for share in shares.values():
        best -= share
    for value, share in shares.items():
        nearer = share > best
        won[nearer], best[nearer] = value, share[nearer]
    return won


def image_back(image: NDArray[np.float32], affine: Affine, series: SeriesRecord) -> NDArray[np.float32]:
    """An image in the atlas on the series' own grid, each slice as the mean over its thickness."""
    inverse: Affine = np.linalg.inv(series.matrix).astype(np.float64)
    source = Placed(image, affine)
    count = max(1, math.ceil(series.grid.spacing[2] / LAYER_MM))
    total = np.zeros(series.shape, dtype=np.float32)
    for layer in range(count):
        moved = np.eye(4)
        moved[2, 3] = (layer + 0.5) / count - 0.5
        total += resample(source, Grid(series.shape, series.grid.affine @ moved), inverse)
    return total / np.float32(count)


def file_back(file: Path, record: IntakeRecord, to: str, out: Path, *, as_image: bool = False) -> SeriesRecord:
    """Bring a NIfTI file in the atlas to the grid of a series and write it.

    Raises:
        InputError: the series was not used, or the file cannot be read.
        GeometryError: the file does not lie in the atlas.
    """
    series = record.find(to)
    image = read_nifti(file)
    _check_in_atlas(file, image.affine, image.stored.shape)
    values = image.stored.astype(np.float32) * np.float32(image.slope) + np.float32(image.intercept)
    if as_image:
        write_nifti(out, image_back(values, image.affine, series), series.grid.affine)
        return series
    if not np.array_equal(values, np.rint(values)) or values.min() < 0:
        raise LabelError(f"{one_line(file)}: holds values that are no labels; bring it back with --image")
    write_nifti(out, labels_back(np.rint(values).astype(np.int32), image.affine, series), series.grid.affine)
    return series


def _check_in_atlas(file: Path, affine: Affine, shape: tuple[int, ...]) -> None:
    """Whatever its resolution, a file in the atlas lies inside the atlas's frame."""
    from diptych.intake.atlas_space import SRI24

    own = Grid((shape[0], shape[1], shape[2]), affine).corners
    frame = SRI24.corners
    if (own.min(axis=0) < frame.min(axis=0) - 3.0).any() or (own.max(axis=0) > frame.max(axis=0) + 3.0).any():
        raise GeometryError(f"{one_line(file)}: does not lie in the atlas; give what was drawn for this patient there")
