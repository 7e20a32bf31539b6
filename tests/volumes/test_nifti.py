"""Each way in which a single file can be wrong has its own refusal, and no memory is taken for it first."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest

from diptych.errors import GeometryError, TooLargeError, VolumeError
from diptych.volumes import Limits
from diptych.volumes.nifti import read_nifti
from tests.volumes.making import LPS, SHAPE, brain, nifti_bytes, packed


def put(folder: Path, data: bytes, name: str = "image.nii") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def refused(path: Path, kind: type[VolumeError], match: str, limits: Limits = Limits()) -> None:
    with pytest.raises(kind, match=match) as caught:
        read_nifti(path, limits=limits)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize("endianness", ["<", ">"])
@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"])
def test_every_number_type_and_byte_order(tmp_path: Path, dtype: str, endianness: str) -> None:
    array = (brain() % 100).astype(dtype)
    path = put(tmp_path, packed(nifti_bytes(array, endianness=endianness)), "image.nii.gz")
    np.testing.assert_array_equal(read_nifti(path).stored, array)


def test_nifti_2(tmp_path: Path) -> None:
    path = tmp_path / "image.nii.gz"
    nibabel.save(nibabel.Nifti2Image(brain(), LPS), path)
    np.testing.assert_array_equal(read_nifti(path).stored, brain())


def test_header_extensions_are_skipped(tmp_path: Path) -> None:
    image = nibabel.Nifti1Image(brain(), LPS)
    image.header.extensions.append(nibabel.nifti1.Nifti1Extension("comment", b"x" * 5000))
    nibabel.save(image, tmp_path / "image.nii")
    np.testing.assert_array_equal(read_nifti(tmp_path / "image.nii").stored, brain())


def test_trailing_unit_axes_are_dropped(tmp_path: Path) -> None:
    path = put(tmp_path, nifti_bytes(brain()[..., None, None]))
    assert read_nifti(path).stored.shape == SHAPE


def test_missing_file(tmp_path: Path) -> None:
    refused(tmp_path / "image.nii", VolumeError, "No such file")


def test_folder_pipe_and_link_loop_do_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.nii")
    (tmp_path / "loop.nii").symlink_to(tmp_path / "loop.nii")
    refused(tmp_path, VolumeError, "cannot be read|not a regular file")
    refused(tmp_path / "pipe.nii", VolumeError, "not a regular file")
    refused(tmp_path / "loop.nii", VolumeError, "cannot be read")


def test_gz_name_without_gzip_data(tmp_path: Path) -> None:
    refused(put(tmp_path, nifti_bytes(brain()), "a.nii.gz"), VolumeError, "named .gz but not gzip")


def test_gzip_data_without_gz_name(tmp_path: Path) -> None:
    refused(put(tmp_path, packed(nifti_bytes(brain()))), VolumeError, "without .gz in its name")


@pytest.mark.parametrize("keep", [0.2, 0.6, 0.99])
def test_truncated_gzip(tmp_path: Path, keep: float) -> None:
    data = packed(nifti_bytes(brain()))
    refused(put(tmp_path, data[: int(keep * len(data))], "a.nii.gz"), VolumeError, "truncated")


def test_gzip_with_a_flipped_bit(tmp_path: Path) -> None:
    data = bytearray(packed(nifti_bytes(brain())))
    data[-6] ^= 1  # in the checksum
    refused(put(tmp_path, bytes(data), "a.nii.gz"), VolumeError, "damaged gzip")


@pytest.mark.parametrize("data", [b"", b"hello", b"\0" * 400, b"\x1f\x8b"])
def test_not_nifti(tmp_path: Path, data: bytes) -> None:
    refused(put(tmp_path, data), VolumeError, "not a NIfTI file|without .gz")


@pytest.mark.parametrize(("magic", "match"), [(b"ni1", "another file"), (b"", "Analyze")])
def test_other_formats_of_the_family(tmp_path: Path, magic: bytes, match: str) -> None:
    refused(put(tmp_path, nifti_bytes(brain(), magic=magic)), VolumeError, match)


def test_header_alone(tmp_path: Path) -> None:
    refused(put(tmp_path, nifti_bytes(brain())[:200]), VolumeError, "truncated")


def test_fewer_voxels_than_announced(tmp_path: Path) -> None:
    refused(put(tmp_path, nifti_bytes(brain())[:-1]), VolumeError, "truncated")


@pytest.mark.parametrize("shape", [(7, 8), (7, 8, 1), (7, 8, 9, 4)])
def test_dimensions_other_than_three(tmp_path: Path, shape: tuple[int, ...]) -> None:
    refused(put(tmp_path, nifti_bytes(np.ones(shape, np.uint8))), VolumeError, "dimensions")


@pytest.mark.parametrize("dim", [[3, -7, 8, 9, 1, 1, 1, 1], [3, 0, 8, 9, 1, 1, 1, 1], [99] + [7] * 7, [-1] + [7] * 7])
def test_impossible_dimensions(tmp_path: Path, dim: list[int]) -> None:
    refused(put(tmp_path, nifti_bytes(brain(), dim=dim)), VolumeError, "dimensions")


@pytest.mark.parametrize("code", [0, 1, 32, 128, 1536, 1792, 2304, 9999])
def test_voxel_types_that_are_no_numbers(tmp_path: Path, code: int) -> None:
    refused(put(tmp_path, nifti_bytes(brain(), datatype=code)), VolumeError, "voxel type")


@pytest.mark.parametrize("offset", [0.0, -5.0, 351.0, 1e30, np.nan, np.inf])
def test_impossible_voxel_offset(tmp_path: Path, offset: float) -> None:
    refused(put(tmp_path, nifti_bytes(brain(), vox_offset=offset)), VolumeError, "start at byte")


@pytest.mark.parametrize("fields", [{"scl_slope": np.inf}, {"scl_slope": 2.0, "scl_inter": np.nan}])
def test_scaling_that_is_not_finite(tmp_path: Path, fields: dict[str, Any]) -> None:
    refused(put(tmp_path, nifti_bytes(brain(), **fields)), VolumeError, "scl_slope")


@pytest.mark.parametrize("slope", [0.0, np.nan, 1.0])
def test_slopes_that_mean_no_scaling(tmp_path: Path, slope: float) -> None:
    assert not read_nifti(put(tmp_path, nifti_bytes(brain(), scl_slope=slope, scl_inter=0))).scaled


@pytest.mark.parametrize("size", [0.0, -1.0, np.nan, np.inf])
def test_voxel_size_must_be_positive(tmp_path: Path, size: float) -> None:
    refused(put(tmp_path, nifti_bytes(brain(), pixdim=[1, 1, size, 1, 0, 0, 0, 0])), GeometryError, "voxel sizes")


def test_more_voxels_than_the_limit(tmp_path: Path) -> None:
    refused(put(tmp_path, nifti_bytes(brain())), TooLargeError, "limit of 100 voxels", Limits(max_voxels=100))


def test_more_bytes_than_the_limit(tmp_path: Path) -> None:
    data = packed(nifti_bytes(np.ones((50, 60, 70), np.uint8)))
    refused(put(tmp_path, data, "a.nii.gz"), TooLargeError, "50 x 60 x 70", Limits(max_bytes=100_000))


def test_larger_file_than_the_limit(tmp_path: Path) -> None:
    refused(put(tmp_path, nifti_bytes(brain())), TooLargeError, "bytes on disk", Limits(max_bytes=1000))


def memory_peak_when_refused(path: Path, kind: type[VolumeError], match: str) -> int:
    tracemalloc.start()
    try:
        refused(path, kind, match)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_huge_dimensions_take_no_memory(tmp_path: Path) -> None:
    path = put(tmp_path, packed(nifti_bytes(brain(), dim=[3, 32767, 32767, 32767, 1, 1, 1, 1])), "a.nii.gz")
    assert memory_peak_when_refused(path, TooLargeError, "32767") < 2**20


def test_dimensions_the_file_cannot_hold_take_no_memory(tmp_path: Path) -> None:
    path = put(tmp_path, packed(nifti_bytes(brain(), dim=[3, 500, 500, 500, 1, 1, 1, 1])), "a.nii.gz")
    assert memory_peak_when_refused(path, VolumeError, "truncated") < 2**20


def test_decompression_bomb_is_not_unpacked(tmp_path: Path) -> None:
    path = put(tmp_path, packed(nifti_bytes(brain()) + b"\0" * 2**26), "a.nii.gz")
    assert memory_peak_when_refused(path, VolumeError, "go on after the last voxel") < 2**21


def test_a_little_padding_is_fine(tmp_path: Path) -> None:
    read_nifti(put(tmp_path, nifti_bytes(brain()) + b"\0" * 500))
