"""Reads one NIfTI file and trusts nothing in it: made for files from strangers.

Knows nothing about patients, channels or label meanings; `patient.py` puts files together.

Order of checks when reading: regular file → size → gzip or not, as the name says → header → dimensions and bytes
against `Limits` → only then memory for the voxels. Compressed data are streamed straight into that memory and never
beyond it. Whatever is wrong comes out as a `VolumeError` of one line with the file's name.
"""

from __future__ import annotations

import gzip
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase, BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.errors import TooLargeError, VolumeError
from diptych.volumes.geometry import affine_from_header
from diptych.volumes.layout import one_line

CHUNK = 1 << 20
MAX_DEFLATE_RATIO = 1032
"""No deflate stream grows by more than this, so a header that needs more is refused before memory is taken."""
MAX_TRAILING = 1 << 16
"""Bytes after the last voxel that pass as padding."""
GZIP_MAGIC = b"\x1f\x8b"
READABLE = {"uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32", "float64"}


@dataclass(frozen=True)
class Limits:
    """How large one file may be; checked before memory is taken."""

    max_voxels: int = 512**3
    """Voxels in one file."""
    max_bytes: int = 2**30
    """Bytes of one file, compressed or not."""


@dataclass(frozen=True, eq=False)
class NiftiImage:
    """One file's voxels as stored, with what is needed to place and scale them."""

    path: Path
    stored: NDArray[Any]
    """Voxels in the file's own type, byte order and axis order, `[I, J, K]`."""
    affine: NDArray[np.float64]
    """Voxel index to RAS+ millimetres, `[4, 4]`."""
    slope: float
    intercept: float

    @property
    def scaled(self) -> bool:
        """True when stored values must be multiplied or shifted to become the signal."""
        return (self.slope, self.intercept) != (1.0, 0.0)


def read_nifti(path: Path, *, limits: Limits = Limits()) -> NiftiImage:
    """Read a 3-D NIfTI-1 or NIfTI-2 file (`.nii` or `.nii.gz`), either byte order.

    Raises:
        TooLargeError: the file or what its header announces is larger than `limits`.
        GeometryError: the header does not say, or says twice and differently, where the voxels lie.
        VolumeError: everything else: damaged, truncated, not NIfTI, not 3-D, a voxel type that is no number.
    """
    try:
        with _open_regular(path) as file, _decompressed(path, file, limits) as (stream, capacity):
            header = _read_header(path, stream)
            shape, dtype, offset = _check_header(path, header, limits, capacity)
            _skip(stream, offset - header.sizeof_hdr)
            stored = _read_voxels(stream, shape, dtype)
            _check_end(path, stream)
    except EOFError:
        raise VolumeError(
            f"{one_line(path)}: ends before its last voxel, so it is truncated; fetch the file again"
        ) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise VolumeError(f"{one_line(path)}: damaged gzip data ({error}); fetch the file again") from None
    except OSError as error:
        raise VolumeError(f"{one_line(path)}: cannot be read ({error.strerror or error})") from None
    slope, intercept = _scaling(path, header)
    return NiftiImage(path, stored, affine_from_header(path, header, shape), slope, intercept)


@contextmanager
def _open_regular(path: Path) -> Iterator[BufferedReader]:
    """Open a regular file; a pipe or device would block or never end."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise VolumeError(f"{one_line(path)}: not a regular file; give a .nii or .nii.gz file")
        yield file


@contextmanager
def _decompressed(path: Path, file: BufferedReader, limits: Limits) -> Iterator[tuple[BufferedIOBase, int]]:
    """The stream of NIfTI bytes, and the most bytes that can possibly come out of it."""
    size = os.fstat(file.fileno()).st_size
    if size > limits.max_bytes:
        raise TooLargeError(
            f"{one_line(path)}: {size} bytes on disk, the limit is {limits.max_bytes}; "
            "raise Limits.max_bytes to read it"
        )
    is_gzip = file.read(2) == GZIP_MAGIC
    named_gzip = path.name.lower().endswith(".gz")
    file.seek(0)
    if named_gzip and not is_gzip:
        raise VolumeError(f"{one_line(path)}: named .gz but not gzip data; rename it to .nii if it is uncompressed")
    if is_gzip and not named_gzip:
        raise VolumeError(f"{one_line(path)}: gzip data without .gz in its name; rename it to .nii.gz")
    if not is_gzip:
        yield file, size
        return
    with gzip.GzipFile(fileobj=file) as stream:
        yield stream, size * MAX_DEFLATE_RATIO


def _read_header(path: Path, stream: BufferedIOBase) -> Any:
    from nibabel.nifti1 import Nifti1Header
    from nibabel.nifti2 import Nifti2Header

    start = stream.read(4)
    for header_class in (Nifti1Header, Nifti2Header):
        size = header_class.sizeof_hdr
        for order, endianness in (("little", "<"), ("big", ">")):
            if start == size.to_bytes(4, order):
                return header_class(start + _read_exactly(stream, size - 4), endianness, check=False)
    raise VolumeError(f"{one_line(path)}: not a NIfTI file (no header size of 348 or 540); convert it to NIfTI first")


def _check_header(path: Path, header: Any, limits: Limits, capacity: int) -> tuple[tuple[int, ...], Any, int]:
    """Shape, voxel type and first voxel's byte, all within limits and within what the file can hold."""
    magic = bytes(header["magic"].item())
    if not magic.startswith(b"n+"):
        known = "a header whose voxels are in another file (.hdr/.img)" if magic.startswith(b"ni") else "Analyze"
        raise VolumeError(f"{one_line(path)}: {known}, not single-file NIfTI; convert it to .nii.gz")
    shape = _shape(path, header)
    dtype = _voxel_type(path, header)
    voxels = int(np.prod([int(n) for n in shape], dtype=object))
    offset = float(header["vox_offset"])
    if not header.single_vox_offset <= offset <= limits.max_bytes:
        raise VolumeError(
            f"{one_line(path)}: voxels said to start at byte {offset:g}, which cannot be; file is damaged"
        )
    needed = int(offset) + voxels * dtype.itemsize
    size = " x ".join(map(str, shape))
    if voxels > limits.max_voxels or needed > limits.max_bytes:
        raise TooLargeError(
            f"{one_line(path)}: {size} voxels of {dtype.name} are more than the limit of {limits.max_voxels} voxels "
            f"or {limits.max_bytes} bytes; raise Limits to read it"
        )
    if needed > capacity:
        raise VolumeError(
            f"{one_line(path)}: header announces {size} voxels ({needed} bytes), more than the file can hold, "
            "so it is truncated; fetch the file again"
        )
    return shape, dtype, int(offset)


def _shape(path: Path, header: Any) -> tuple[int, ...]:
    count, *sizes = (int(n) for n in header["dim"])
    if not 3 <= count <= 7 or min(sizes[:3]) < 2 or any(n != 1 for n in sizes[3:count]):
        shown = " x ".join(map(str, sizes[: max(0, min(count, 7))])) or str(count)
        raise VolumeError(
            f"{one_line(path)}: dimensions {shown}, need three of at least 2 voxels each; "
            "give one 3-D image per channel (split a 4-D file)"
        )
    return tuple(sizes[:3])


def _voxel_type(path: Path, header: Any) -> np.dtype[Any]:
    code = int(header["datatype"])
    try:
        dtype = header.get_data_dtype()
    except Exception:  # nibabel raises several kinds for codes it does not know
        dtype = None
    if dtype is None or dtype.name not in READABLE:
        raise VolumeError(
            f"{one_line(path)}: voxel type {dtype.name if dtype is not None else 'unknown'} (code {code}) is no plain "
            "number; store it as integer or floating point (float32)"
        )
    checked: np.dtype[Any] = dtype
    return checked


def _scaling(path: Path, header: Any) -> tuple[float, float]:
    """NIfTI's rule: signal = slope * stored + intercept; a slope of 0 (or NaN, as many tools write) means none."""
    slope, intercept = float(header["scl_slope"]), float(header["scl_inter"])
    if slope == 0 or np.isnan(slope):
        return 1.0, 0.0
    if not np.isfinite([slope, intercept]).all():
        raise VolumeError(
            f"{one_line(path)}: scl_slope {slope} and scl_inter {intercept} must be finite; correct the header"
        )
    return slope, intercept


def _read_exactly(stream: BufferedIOBase, count: int) -> bytes:
    data = stream.read(count)
    if len(data) < count:
        raise EOFError
    return data


def _skip(stream: BufferedIOBase, count: int) -> None:
    while count > 0:
        count -= len(_read_exactly(stream, min(count, CHUNK)))


def _read_voxels(stream: BufferedIOBase, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Fill one array from the stream, without a second copy."""
    stored = np.empty(shape, dtype=dtype, order="F")
    target = stored.reshape(-1, order="F").view(np.uint8).data
    done = 0
    while done < len(target):
        count = stream.readinto(target[done : done + CHUNK])
        if not count:
            raise EOFError
        done += count
    return stored


def _check_end(path: Path, stream: BufferedIOBase) -> None:
    """Read on to the end, which also makes gzip compare its checksum; more than padding is refused."""
    left = MAX_TRAILING + 1
    while left > 0 and (data := stream.read(left)):
        left -= len(data)
    if left <= 0:
        raise VolumeError(
            f"{one_line(path)}: data go on after the last voxel its header announces; the header is wrong, "
            "write the file again"
        )


@dataclass(frozen=True, eq=False)
class SourceGrid:
    """Axes, size and place of one image file."""

    shape: tuple[int, int, int]
    affine: NDArray[np.float64]
    """Voxel index to RAS+ millimetres, `[4, 4]`, as the file has it."""

    def from_canonical(self, labels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """A label map on canonical LPS axes, `[X, Y, Z]`, with its axes turned and swapped as in the file."""
        from nibabel.orientations import apply_orientation, axcodes2ornt, io_orientation, ornt_transform

        turn = ornt_transform(axcodes2ornt(("L", "P", "S")), io_orientation(self.affine))
        turned: NDArray[np.uint8] = np.ascontiguousarray(apply_orientation(labels, turn))
        assert turned.shape == self.shape, "the volume was read from this very file"
        return turned


def read_grid(path: Path) -> SourceGrid:
    """The grid of a NIfTI file."""
    image = read_nifti(path)
    columns, rows, planes = image.stored.shape
    return SourceGrid((columns, rows, planes), image.affine)
