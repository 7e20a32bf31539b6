"""How tests read what they wrote, and compare it with what dcm2niix makes of the same files."""

from __future__ import annotations

import subprocess
from pathlib import Path

import nibabel as nib
import numpy as np
from numpy.typing import NDArray

from diptych.intake.dicom_files import opened
from diptych.intake.series import Reading, Series, read_series


def read_study(source: Path) -> Reading:
    with opened(source) as files:
        (reading,) = read_series(files)
    return reading


def only_series(source: Path) -> Series:
    (series,) = read_study(source).series
    return series


def canonical(
    array: NDArray[np.generic], affine: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Voxels and affine with axes along the patient's, whatever order they were stored in."""
    image = nib.as_closest_canonical(nib.Nifti1Image(np.asarray(array, dtype=np.float32), affine))
    return np.asarray(image.dataobj, dtype=np.float64), image.affine


def by_dcm2niix(source: Path, out: Path) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    import dcm2niix

    out.mkdir()
    command = [dcm2niix.bin, "-o", str(out), "-f", "%s_%e", "-z", "n", "-b", "n", str(source)]
    subprocess.run(command, check=True, capture_output=True)
    images = [nib.load(path) for path in sorted(out.glob("*.nii"))]
    return [canonical(image.get_fdata(), image.affine) for image in images]
