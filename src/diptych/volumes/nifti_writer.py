"""Writes one NIfTI file: the same input gives the same bytes, and the file appears whole or not at all.

Knows nothing about patients. `nifti.py` reads what this writes.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from diptych.errors import VolumeError
from diptych.files import replacing
from diptych.volumes.layout import one_line

GZIP_LEVEL = 4
WRITABLE = {"uint8", "int16", "float32"}


def write_nifti(path: Path | str, array: NDArray[Any], affine: ArrayLike) -> None:
    """Write a 3-D uint8, int16 or float32 array as `.nii` or `.nii.gz`: same input, same bytes.

    The file appears whole or not at all. The affine (RAS+ millimetres) goes into sform and, unless it is sheared,
    qform, so that every reader agrees on it.
    """
    path = Path(path)
    if not path.name.lower().endswith((".nii", ".nii.gz")):
        raise VolumeError(f"{one_line(path)}: NIfTI files end in .nii or .nii.gz; choose such a name")
    if array.ndim != 3 or array.dtype.name not in WRITABLE:
        raise VolumeError(
            f"{one_line(path)}: cannot write a {array.dtype.name} array of shape {array.shape}; "
            f"give a 3-D array of {', '.join(sorted(WRITABLE))}"
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise VolumeError(f"{one_line(path)}: the array holds NaN or infinite voxels; replace them before writing")
    header = _new_header(array, np.asarray(affine, dtype=np.float64))
    data = np.ascontiguousarray(array.T, dtype=array.dtype.newbyteorder("<"))  # [K, J, I]: i runs fastest on disk
    try:
        with replacing(path) as part, open(part, "xb") as file:
            if path.name.lower().endswith(".gz"):
                with gzip.GzipFile("", "wb", GZIP_LEVEL, file, mtime=0) as stream:
                    _write_parts(stream, header, data)
            else:
                _write_parts(file, header, data)
    except OSError as error:
        raise VolumeError(f"{one_line(path)}: cannot be written ({error.strerror or error})") from None


def _new_header(array: NDArray[Any], affine: NDArray[np.float64]) -> bytes:
    from nibabel.nifti1 import Nifti1Header

    header = Nifti1Header(endianness="<")
    header.set_data_dtype(array.dtype)
    header.set_data_shape(array.shape)
    header.set_xyzt_units("mm")
    header.set_qform(affine, code=1, strip_shears=True)
    header.set_sform(affine, code=1)
    if not np.allclose(header.get_qform(), affine, atol=1e-3):
        header["qform_code"] = 0
    header["scl_slope"], header["scl_inter"] = 1.0, 0.0
    header["vox_offset"] = header.single_vox_offset
    header["magic"] = header.single_magic
    block = header.binaryblock
    assert isinstance(block, bytes)
    return block + b"\0" * 4  # no extensions


def _write_parts(stream: Any, header: bytes, data: NDArray[Any]) -> None:
    stream.write(header)
    for plane in data:
        stream.write(plane.data)
