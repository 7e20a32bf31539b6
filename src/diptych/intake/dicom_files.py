"""What a user hands over, as headers that can be trusted: a folder, a ZIP, a DICOMDIR, files from strangers.

`opened` gives every regular file of a source (a ZIP is unpacked under names of our own, within limits), `read_header`
one file's header without its pixels, `read_frames` its pixels. Sizes are checked before memory is taken: of the file,
of what a deflated file unfolds to, and of what a compressed image claims to be inside against what its header says.
Knows DICOM files; nothing about series or sequences.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from diptych.errors import InputError, LayoutError, MissingExtraError, TooLargeError, VolumeError
from diptych.volumes.layout import one_line

DEFLATED = "1.2.840.10008.1.2.1.99"
CHUNK = 1 << 20
MOST_LEVELS = 32
"""Of folders inside a ZIP."""


@dataclass(frozen=True)
class FileLimits:
    """How much one source may hold."""

    max_files: int = 50_000
    max_file_bytes: int = 2**30
    max_total_bytes: int = 16 * 2**30
    """Of a ZIP, unpacked."""
    max_pixels: int = 512**3
    """Of one file, all frames together."""


def require(name: str) -> Any:
    """Import a package of the extra `intake`, or say how to install it."""
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError as error:
        raise MissingExtraError(f"intake needs the package {name}: pip install 'diptych[intake]'") from error


@contextmanager
def opened(source: Path, *, limits: FileLimits = FileLimits(), scratch: Path | None = None) -> Iterator[list[Path]]:
    """The regular files of a folder (folders below it included), of a ZIP, or beside a DICOMDIR; a ZIP is unpacked
    below `scratch`, by default where the system keeps what is temporary.

    Raises:
        LayoutError: nothing is there, or it is none of these.
        TooLargeError: more files or bytes than `limits`.
    """
    if source.is_dir():
        yield _files_below(source, limits)
    elif not source.is_file():
        raise LayoutError(f"{one_line(source)}: is not there; give a folder, a ZIP, a DICOMDIR or NIfTI files")
    elif zipfile.is_zipfile(source):
        with tempfile.TemporaryDirectory(prefix="diptych-zip-", dir=scratch) as folder:
            _unpack(source, Path(folder), limits)
            yield _files_below(Path(folder), limits)
    elif source.name.upper() == "DICOMDIR":
        yield _files_below(source.parent, limits)
    else:
        yield [source]


def _files_below(folder: Path, limits: FileLimits) -> list[Path]:
    """Regular files, hidden ones left out, links to folders not followed."""
    files: list[Path] = []
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(where) / name
            if not name.startswith(".") and stat.S_ISREG(
                path.stat(follow_symlinks=True).st_mode if path.exists() else 0
            ):
                files.append(path)
        if len(files) > limits.max_files:
            raise TooLargeError(f"{one_line(folder)}: more than {limits.max_files} files; give one patient at a time")
    return files


def _unpack(source: Path, folder: Path, limits: FileLimits) -> None:
    """Unpack a ZIP under names of our own, keeping folders apart: of the names inside it only harmless letters stay,
    since names tell which sequence a NIfTI file is, and which JSON file belongs to it.
    """
    total = 0
    homes = {"": folder}
    try:
        with zipfile.ZipFile(source) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
            if len(members) > limits.max_files:
                raise TooLargeError(f"{one_line(source)}: {len(members)} files, the limit is {limits.max_files}")
            for number, member in enumerate(members):
                above, _, name = member.filename.replace("\\", "/").rpartition("/")
                if name.startswith("."):  # what a Mac adds to every file
                    continue
                if above.count("/") > MOST_LEVELS:
                    raise InputError(f"{one_line(source)}: folders within folders, too many; make it anew")
                target = _free(_home(above, homes) / _harmless(name), number)
                with archive.open(member) as packed, open(target, "xb") as file:
                    while data := packed.read(CHUNK):
                        total += len(data)
                        if total > limits.max_total_bytes:
                            limit = limits.max_total_bytes >> 30
                            raise TooLargeError(
                                f"{one_line(source)}: unpacks to more than {limit} GiB; unpack it yourself"
                            )
                        file.write(data)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:80]
        raise InputError(f"{one_line(source)}: is a damaged or locked ZIP ({reason}); make it anew") from None
    except OSError as error:
        raise InputError(f"{one_line(source)}: cannot be unpacked ({error.strerror or error})") from None


def _home(above: str, homes: dict[str, Path]) -> Path:
    """Where the files of a folder inside a ZIP go; no two of its folders share one."""
    if above not in homes:
        parent, _, name = above.rpartition("/")
        home = _free(_home(parent, homes) / _harmless(name), len(homes))
        home.mkdir()
        homes[above] = home
    return homes[above]


def _free(wanted: Path, number: int) -> Path:
    return wanted if not wanted.exists() else wanted.with_name(f"{number:06d}-{wanted.name}")


def _harmless(name: str) -> str:
    """A name with nothing but letters, digits and a few signs; its end, where the kind of file is told, stays.

    >>> _harmless("T1 ax+C (1).nii.gz"), _harmless("../..")
    ('T1 ax+C _1_.nii.gz', '_')
    """
    kept = re.sub(r"[^\w .+-]", "_", name)[-60:].lstrip(".")
    return kept if kept.strip(" ._") else "_"


def is_dicom(path: Path) -> bool:
    """Whether a file starts as DICOM does, with or without its preamble."""
    try:
        with open(path, "rb") as file:
            start = file.read(132)
    except OSError:
        return False
    return start[128:] == b"DICM" or start[:2] in (b"\x08\x00", b"\x02\x00")


@contextmanager
def lenient() -> Iterator[None]:
    """Let pydicom read values that break the standard, without a word: real headers are full of them."""
    config = require("pydicom.config")
    before = config.settings.reading_validation_mode
    config.settings.reading_validation_mode = config.IGNORE
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        config.settings.reading_validation_mode = before


def read_header(path: Path, *, limits: FileLimits = FileLimits()) -> Any:
    """One file's header as a pydicom dataset without pixels.

    Raises:
        VolumeError: damaged, or larger than allowed; one line with the file's name.
    """
    return _read(path, limits, stop_before_pixels=True)


def read_frames(path: Path, count: int, *, limits: FileLimits = FileLimits()) -> NDArray[Any]:
    """The stored pixels of all frames, `[frames, rows, columns]`.

    Raises:
        VolumeError: damaged, compressed in a way nobody here can read, or not what the header says.
    """
    dataset = _read(path, limits, stop_before_pixels=False)
    pixels = require("pydicom.pixels")
    try:
        _check_codestreams(path, dataset)
        with lenient():
            array = np.asarray(pixels.pixel_array(dataset))
    except (MemoryError, KeyboardInterrupt, VolumeError):
        raise
    except Exception as error:  # decoders raise anything
        reason = " ".join(str(error).split())[:100]
        raise VolumeError(f"{one_line(path)}: pixels cannot be decoded ({reason}); export the series again") from None
    frames = array[None] if array.ndim == 2 else array
    expected = (count, int(dataset.Rows), int(dataset.Columns))
    if frames.shape != expected:
        raise VolumeError(f"{one_line(path)}: pixels are {frames.shape}, the header says {expected}; export it again")
    if str(dataset.get("PhotometricInterpretation", "")) == "MONOCHROME1":
        frames = frames.max() - frames
    return frames


def _read(path: Path, limits: FileLimits, *, stop_before_pixels: bool) -> Any:
    pydicom = require("pydicom")
    try:
        size = path.stat().st_size
        if size > limits.max_file_bytes:
            raise TooLargeError(f"{one_line(path)}: {size} bytes, the limit is {limits.max_file_bytes}")
        with lenient():
            with open(path, "rb") as file:
                check_deflated(file, path, limits)
            dataset = pydicom.dcmread(path, stop_before_pixels=stop_before_pixels, force=True)
            _check_pixels(path, dataset, limits)
    except (VolumeError, MemoryError, KeyboardInterrupt):
        raise
    except Exception as error:  # pydicom raises nearly everything on damaged files
        reason = " ".join(str(error).split())[:100]
        raise VolumeError(f"{one_line(path)}: damaged DICOM ({type(error).__name__}: {reason})") from None
    return dataset


def _check_pixels(path: Path, dataset: Any, limits: FileLimits) -> None:
    """Refuse what would not fit, by the header alone."""
    rows, columns = (int(dataset.get(name) or 0) for name in ("Rows", "Columns"))
    pixels = rows * columns * max(1, int(dataset.get("NumberOfFrames") or 1))
    if min(rows, columns) < 0 or pixels > limits.max_pixels:
        raise TooLargeError(f"{one_line(path)}: announces {pixels} pixels, the limit is {limits.max_pixels}")


def check_deflated(file: BinaryIO, name: Path | str, limits: FileLimits = FileLimits()) -> None:
    """Unfold a deflated file once without keeping it: a small file may hide any amount of zeros.

    Begins where pydicom itself would begin: lengths and places that a header gives may lie.
    """
    reader = require("pydicom.filereader")
    reader.read_preamble(file, force=True)
    if reader._read_file_meta_info(file).get("TransferSyntaxUID") != DEFLATED:
        return
    unfold, total = zlib.decompressobj(-zlib.MAX_WBITS), 0
    while data := file.read(CHUNK):
        while data:
            total += len(unfold.decompress(data, CHUNK))
            data = unfold.unconsumed_tail
            if total > limits.max_file_bytes:
                raise TooLargeError(f"{one_line(name)}: unfolds to more than {limits.max_file_bytes} bytes")


def _check_codestreams(path: Path, dataset: Any) -> None:
    """Refuse a compressed image whose own size differs from the header's, before a decoder believes it."""
    if not dataset.file_meta.TransferSyntaxUID.is_compressed or dataset.file_meta.TransferSyntaxUID == DEFLATED:
        return
    from pydicom.encaps import generate_fragments

    said = (int(dataset.Rows), int(dataset.Columns))
    for fragment in generate_fragments(dataset.PixelData):
        found = _codestream_size(fragment)
        if found is not None and found != said:
            raise VolumeError(
                f"{one_line(path)}: an image of {found} hides in a file that says {said}; export it again"
            )


def _codestream_size(data: bytes) -> tuple[int, int] | None:
    """Rows and columns that a JPEG or JPEG 2000 stream starts with; None for anything else."""
    if data[:4] == b"\xff\x4f\xff\x51" and len(data) >= 24:  # SIZ: extent minus offset of the image
        x1, y1, x0, y0 = (int.from_bytes(data[at : at + 4], "big") for at in (8, 12, 16, 20))
        return y1 - y0, x1 - x0
    if data[:2] != b"\xff\xd8":
        return None
    at = 2
    while at + 9 < len(data) and data[at] == 0xFF:
        marker, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        if (0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC)) or marker == 0xF7:  # start of frame
            return int.from_bytes(data[at + 5 : at + 7], "big"), int.from_bytes(data[at + 7 : at + 9], "big")
        at += 2 + length
    return None
