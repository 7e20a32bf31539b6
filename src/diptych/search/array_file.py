"""A disposable file of named arrays: written whole, memory-mapped on reading, checked before it is believed.

Knows arrays and bytes; not what they mean. The file may be deleted at any time. `load_arrays` gives nothing back when
the file is absent, cut short, altered, of another format, or made for another `key`; the caller then builds anew.

Layout: magic, length of the header, header (JSON: key, and name, dtype, shape, offset, CRC-32 of each array), CRC-32 of
the header, then the arrays, each at a multiple of 64 bytes.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.files import replacing

MAGIC = b"DIPTYCH1"
ALIGNMENT = 64
LARGEST_HEADER = 1 << 20
KINDS = frozenset({"|b1", "|u1", "<u2", "<i4", "<i8", "<f4", "<f8"})


def save_arrays(path: Path, arrays: Mapping[str, NDArray[Any]], *, key: str) -> bool:
    """Write `arrays` under `key`, all or nothing; false when the disk does not let us (it is only a cache)."""
    entries, offset = [], 0
    for name, array in arrays.items():
        entries.append(
            {
                "name": name,
                "dtype": array.dtype.str,
                "shape": list(array.shape),
                "offset": offset,
                "crc": _crc(np.ascontiguousarray(array)),
            }
        )
        offset += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
    header = json.dumps({"key": key, "arrays": entries}).encode()
    try:
        with replacing(path, private=True) as part, open(part, "wb") as file:
            file.write(MAGIC + len(header).to_bytes(8, "little") + header + zlib.crc32(header).to_bytes(4, "little"))
            for array in arrays.values():
                file.write(b"\0" * (-file.tell() % ALIGNMENT))
                file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    except OSError:
        return False
    return True


def load_arrays(path: Path, *, key: str) -> dict[str, NDArray[Any]] | None:
    """Map the arrays saved under `key`, or nothing when the file cannot be trusted for it.

    Changes to them never reach the file; arrays flagged read-only would have every kernel compiled a second time.
    """
    try:
        header, first = _read_header(path)
        if header["key"] != key:
            return None
        size = path.stat().st_size
        whole = np.memmap(path, dtype=np.uint8, mode="c")
        return {entry["name"]: _array(whole, entry, first, size) for entry in header["arrays"]}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _read_header(path: Path) -> tuple[dict[str, Any], int]:
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise ValueError("not a cache file")
        length = int.from_bytes(file.read(8), "little")
        if length > LARGEST_HEADER:
            raise ValueError("header too long")
        raw = file.read(length)
        if len(raw) != length or zlib.crc32(raw) != int.from_bytes(file.read(4), "little"):
            raise ValueError("header damaged")
        return json.loads(raw), -(-file.tell() // ALIGNMENT) * ALIGNMENT


def _array(whole: NDArray[np.uint8], entry: dict[str, Any], first: int, size: int) -> NDArray[Any]:
    if entry["dtype"] not in KINDS:
        raise ValueError("unknown kind of number")
    dtype, shape = np.dtype(entry["dtype"]), tuple(entry["shape"])
    start, length = first + entry["offset"], dtype.itemsize * math.prod(shape)
    if start + length > size:
        raise ValueError("cut short")
    raw = whole[start : start + length]
    if _crc(raw) != entry["crc"]:
        raise ValueError("altered")
    mapped: NDArray[Any] = np.asarray(raw).view(dtype).reshape(shape)
    return mapped


def _crc(array: NDArray[Any]) -> int:
    return zlib.crc32(array.reshape(-1).view(np.uint8).data)
