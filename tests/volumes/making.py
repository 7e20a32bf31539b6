"""Small image files for the tests of this folder, right or wrong in one chosen way."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
from nibabel.nifti1 import Nifti1Header
from numpy.typing import NDArray

from diptych.volumes import write_nifti

LPS = np.diag([-1.0, -1.0, 1.0, 1.0])
SHAPE = (7, 8, 9)
SINCE_2023 = ("t1n", "t1c", "t2w", "t2f")
UNTIL_2022 = ("t1", "t1ce", "t2", "flair")


def brain(seed: int = 0, shape: tuple[int, ...] = SHAPE) -> NDArray[np.int16]:
    """Positive noise with a rim of zeros."""
    array = np.zeros(shape, dtype=np.int16)
    inside = tuple(slice(1, n - 1) for n in shape)
    array[inside] = np.random.default_rng(seed).integers(1, 1000, [n - 2 for n in shape])
    return array


def write_patient(
    folder: Path, key: str, names: tuple[str, ...] = SINCE_2023, *, end: str = ".nii.gz", sep: str = "-"
) -> Path:
    """One file per name, each with its own voxels; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed, name in enumerate(names):
        write_nifti(folder / f"{key}{sep}{name}{end}", brain(seed), LPS)
    return folder


def write_labels(path: Path, values: list[float], dtype: type = np.uint8) -> Path:
    """A label map that holds `values` in its middle."""
    array: NDArray[Any] = np.zeros(SHAPE, dtype=dtype)
    array[3, 3, 1 : 1 + len(values)] = values
    path.write_bytes(nifti_bytes(array))
    return path


def nifti_bytes(array: NDArray[Any], affine: NDArray[np.float64] = LPS, **fields: Any) -> bytes:
    """A NIfTI-1 file with sform and qform, then header fields overwritten as they are given."""
    header = Nifti1Header(endianness=fields.pop("endianness", "<"))
    header.set_data_dtype(array.dtype)
    header.set_data_shape(array.shape)
    header.set_qform(affine, code=1, strip_shears=True)
    header.set_sform(affine, code=1)
    header["vox_offset"] = 352
    header["magic"] = b"n+1"
    for name, value in fields.items():
        header[name] = value
    data = np.asarray(array, dtype=header.get_data_dtype() if "datatype" not in fields else array.dtype)
    return bytes(header.binaryblock) + b"\0" * 4 + data.tobytes(order="F")


def packed(data: bytes) -> bytes:
    return gzip.compress(data, compresslevel=1, mtime=0)
