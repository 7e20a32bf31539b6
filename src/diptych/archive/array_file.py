"""A disposable file of named arrays: written whole, memory-mapped on reading, checked before it is believed.

Knows arrays and bytes; not what they mean. The file may be deleted at any time. `load_arrays` gives nothing back when
the file is absent, cut short, altered, of another format, or made for another `key`; the caller then builds anew.

Layout: magic, length of the header, header (JSON: key, and name, dtype, shape, offset, checksum of each array), CRC-32
of the header, then the arrays, each at a multiple of 64 bytes. docs/explanation/segments.md describes it for others.
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

from diptych.compiling import compiled
from diptych.files import parse_json, replacing

MAGIC = b"DIPTYCH2"
ALIGNMENT = 64
LARGEST_HEADER = 1 << 20
PRIME = 0x100000001B3
START = 0xCBF29CE484222325
LANES = 8
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
                "sum": _checksum(np.ascontiguousarray(array)),
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


def load_arrays(path: Path, *, key: str | None) -> dict[str, NDArray[Any]] | None:
    """Map the arrays saved under `key` (any, for None), or nothing when the file cannot be trusted for it.

    Changes to them never reach the file; arrays flagged read-only would have every kernel compiled a second time.
    """
    try:
        header, first = _read_header(path)
        if key is not None and header["key"] != key:
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
        return parse_json(raw), -(-file.tell() // ALIGNMENT) * ALIGNMENT


def _array(whole: NDArray[np.uint8], entry: dict[str, Any], first: int, size: int) -> NDArray[Any]:
    if entry["dtype"] not in KINDS:
        raise ValueError("unknown kind of number")
    dtype, shape = np.dtype(entry["dtype"]), tuple(entry["shape"])
    start, length = first + entry["offset"], dtype.itemsize * math.prod(shape)
    if start + length > size:
        raise ValueError("cut short")
    raw = whole[start : start + length]
    if _checksum(raw) != entry["sum"]:
        raise ValueError("altered")
    mapped: NDArray[Any] = np.asarray(raw).view(dtype).reshape(shape)
    return mapped


def _checksum(array: NDArray[Any]) -> str:
    """FNV-1a over 64-bit words in eight lanes, as fast as memory: any change within one word changes it.

    Word i goes into lane i mod 8; what does not fill a word is filled up with zeros. The lanes, and the number of
    bytes, then go through the same function, one after the other.
    """
    raw = array.reshape(-1).view(np.uint8)
    whole = len(raw) // 8 * 8
    tail = np.zeros(1 if whole < len(raw) else 0, dtype=np.uint64)
    tail.view(np.uint8)[: len(raw) - whole] = raw[whole:]
    lanes = np.full(LANES, START, dtype=np.uint64)
    _mix(np.ascontiguousarray(raw[:whole]).view(np.uint64), lanes, 0)
    _mix(tail, lanes, whole // 8 % LANES)
    last = np.full(LANES, START, dtype=np.uint64)
    for number in (*lanes.tolist(), len(raw)):
        _mix(np.array([number], dtype=np.uint64), last, 0)
    return f"{int(last[0]):016x}"


@compiled
def _mix(words: NDArray[np.uint64], lanes: NDArray[np.uint64], first: int) -> None:
    prime = np.uint64(PRIME)
    done = 0
    if first == 0:
        a, b, c, d, e, f, g, h = lanes
        while done + 8 <= len(words):
            a = (a ^ words[done]) * prime
            b = (b ^ words[done + 1]) * prime
            c = (c ^ words[done + 2]) * prime
            d = (d ^ words[done + 3]) * prime
            e = (e ^ words[done + 4]) * prime
            f = (f ^ words[done + 5]) * prime
            g = (g ^ words[done + 6]) * prime
            h = (h ^ words[done + 7]) * prime
            done += 8
        lanes[0], lanes[1], lanes[2], lanes[3], lanes[4], lanes[5], lanes[6], lanes[7] = a, b, c, d, e, f, g, h
    while done < len(words):
        lane = (first + done) % 8
        lanes[lane] = (lanes[lane] ^ words[done]) * prime
        done += 1
