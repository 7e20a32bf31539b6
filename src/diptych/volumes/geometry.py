"""Where voxels lie in the body: the affine a header gives, canonical LPS axes, and whether two images match.

Knows headers and arrays, not patients. All affines map voxel indices to RAS+ millimetres.

Rules, each with its refusal (`GeometryError`):
- sform and qform: one of them is used as it is; both must put every corner of the image in the same place
  (within `TOLERANCE`); with neither, nobody knows left from right.
- Voxel sizes are finite, positive and between `MIN_SPACING` and `MAX_SPACING` millimetres.
- Axes are taken as the closest patient axes. Oblique by more than `OBLIQUE_WARNING` is said, by more than
  `OBLIQUE_LIMIT` refused (the closest axis is a toss-up near 45°); the same for shear.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.errors import GeometryError
from diptych.volumes.layout import one_line

TOLERANCE = 0.25
"""How far, in voxels, two geometries may differ at any corner and still count as one."""
MIN_SPACING, MAX_SPACING = 0.01, 50.0
OBLIQUE_WARNING, OBLIQUE_LIMIT = 5.0, 40.0
SHEAR_WARNING, SHEAR_LIMIT = 1.0, 5.0
MILLIMETRES = {0: 1.0, 1: 1000.0, 2: 1.0, 3: 0.001}
"""NIfTI's spatial units: unknown (taken as mm), metre, millimetre, micrometre."""


@dataclass(frozen=True, eq=False)
class Reorientation:
    """How to bring one image to LPS axes without touching a voxel's value."""

    ornt: NDArray[np.float64]
    """nibabel's orientation transform."""
    affine: NDArray[np.float64]
    """Affine of the reoriented image."""
    warnings: tuple[str, ...]

    def apply(self, array: NDArray[Any]) -> NDArray[Any]:
        """The array with its axes swapped and turned, as a view."""
        from nibabel.orientations import apply_orientation

        turned: NDArray[Any] = apply_orientation(array, self.ornt)
        return turned


def affine_from_header(path: Path, header: Any, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """The one affine a NIfTI header stands for."""
    unit = int(header["xyzt_units"]) & 7
    if unit not in MILLIMETRES:
        raise GeometryError(f"{one_line(path)}: spatial unit code {unit} is not known; store the image in millimetres")
    sizes = [float(size) for size in header["pixdim"][1:4]]
    if not all(np.isfinite(sizes)) or min(sizes) <= 0:
        raise GeometryError(
            f"{one_line(path)}: voxel sizes {sizes} must be finite and above zero; correct pixdim in the header"
        )
    sform, qform = _sform(header), _qform(path, header)
    if sform is None and qform is None:
        raise GeometryError(
            f"{one_line(path)}: neither sform nor qform is set, so left and right are unknown; "
            "convert it again from DICOM, or set the sform"
        )
    if sform is not None and qform is not None:
        _check_finite(path, sform)
        _check_finite(path, qform)
        if _largest_shift(sform, qform, shape) > TOLERANCE * min(sizes):
            raise GeometryError(
                f"{one_line(path)}: sform and qform put the image in different places; "
                "set the code of the wrong one to 0"
            )
    affine = sform if sform is not None else qform
    assert affine is not None
    _check_finite(path, affine)
    affine = np.diag([MILLIMETRES[unit]] * 3 + [1.0]) @ affine
    _check_spacing(path, affine)
    return affine


def to_canonical(path: Path, affine: NDArray[np.float64], shape: tuple[int, ...]) -> Reorientation:
    """Find the axis order and directions that make the image LPS (see `volume.py`)."""
    from nibabel.orientations import axcodes2ornt, inv_ornt_aff, io_orientation, ornt_transform

    ornt = ornt_transform(io_orientation(affine), axcodes2ornt(("L", "P", "S")))
    turned = affine @ inv_ornt_aff(ornt, shape) + 0.0  # adding zero turns -0.0 into 0.0
    directions = turned[:3, :3] / np.linalg.norm(turned[:3, :3], axis=0)
    oblique = _degrees(np.arccos(np.clip(np.abs(np.diag(directions)), 0, 1)).max())
    cosines = np.abs(directions.T @ directions)[np.triu_indices(3, 1)]
    shear = _degrees(np.arcsin(np.clip(cosines, 0, 1)).max())
    if shear > SHEAR_LIMIT:
        raise GeometryError(
            f"{one_line(path)}: axes are sheared by {shear:.0f}°, the limit is {SHEAR_LIMIT:.0f}°; "
            "resample the image first"
        )
    if oblique > OBLIQUE_LIMIT:
        raise GeometryError(
            f"{one_line(path)}: axes are {oblique:.0f}° oblique, the limit is {OBLIQUE_LIMIT:.0f}°; "
            "resample the image to the patient's axes first"
        )
    warnings = []
    if oblique > OBLIQUE_WARNING:
        warnings.append(f"The image is {oblique:.0f}° oblique; its planes are not truly axial.")
    if shear > SHEAR_WARNING:
        warnings.append(f"The image's axes are sheared by {shear:.1f}°; distances are slightly off.")
    return Reorientation(ornt, turned, tuple(warnings))


def check_same_place(
    first: Path,
    first_affine: NDArray[np.float64],
    first_shape: tuple[int, ...],
    second: Path,
    second_affine: NDArray[np.float64],
    second_shape: tuple[int, ...],
) -> None:
    """Raise `GeometryError` unless two images, both canonical, share their voxel grid."""
    if first_shape != second_shape:
        raise GeometryError(
            f"{one_line(second)}: {_times(second_shape)} voxels, but {one_line(first)} has {_times(first_shape)}; "
            "co-register the images to one grid first"
        )
    spacing = float(np.linalg.norm(first_affine[:3, :3], axis=0).min())
    shift = _largest_shift(first_affine, second_affine, first_shape)
    if shift > TOLERANCE * spacing:
        raise GeometryError(
            f"{one_line(second)}: lies up to {shift:.3g} mm away from {one_line(first)}; "
            "co-register the images to one grid first"
        )


def _sform(header: Any) -> NDArray[np.float64] | None:
    return None if header["sform_code"] == 0 else np.asarray(header.get_sform(), dtype=np.float64)


def _qform(path: Path, header: Any) -> NDArray[np.float64] | None:
    if header["qform_code"] == 0:
        return None
    try:
        with np.errstate(all="ignore"):
            return np.asarray(header.get_qform(), dtype=np.float64)
    except Exception as error:  # nibabel raises several kinds for impossible quaternions
        raise GeometryError(
            f"{one_line(path)}: qform is damaged ({one_line(str(error))}); correct the header"
        ) from None


def _check_finite(path: Path, affine: NDArray[np.float64]) -> None:
    if not np.isfinite(affine).all():
        raise GeometryError(f"{one_line(path)}: the affine holds NaN or infinite values; correct the header")


def _check_spacing(path: Path, affine: NDArray[np.float64]) -> None:
    spacing = np.linalg.norm(affine[:3, :3], axis=0)
    if spacing.min() < MIN_SPACING or spacing.max() > MAX_SPACING:
        shown = " x ".join(f"{size:.3g}" for size in spacing)
        raise GeometryError(
            f"{one_line(path)}: voxels of {shown} mm; each side must be {MIN_SPACING} to {MAX_SPACING:.0f} mm: "
            "correct the header"
        )
    if abs(np.linalg.det(affine[:3, :3] / spacing)) < 0.1:
        raise GeometryError(f"{one_line(path)}: the affine is singular, its axes share a plane; correct the header")


def _largest_shift(first: NDArray[np.float64], second: NDArray[np.float64], shape: tuple[int, ...]) -> float:
    """The largest distance in millimetres between where two affines put a corner of the image."""
    corners = np.array([(*corner, 1.0) for corner in product(*((0.0, n - 1.0) for n in shape))])  # [8, 4]
    return float(np.linalg.norm(corners @ (first - second).T, axis=1).max())


def _degrees(radians: np.floating[Any]) -> float:
    return float(np.degrees(radians))


def _times(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
