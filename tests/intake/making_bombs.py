"""Small DICOM files that would unfold to a great many zeros, in every disguise that a reader could fall for."""

from __future__ import annotations

import struct
import zlib

DEFLATED = b"1.2.840.10008.1.2.1.99"


def bombs(zeros: int) -> dict[str, bytes]:
    """Files of a few kilobytes, by what is odd about them."""
    pack = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    stream = pack.compress(_element(0x7FE0, 0x10, b"OW", bytes(zeros))) + pack.flush()
    harmless = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    small = harmless.compress(b"x") + harmless.flush()
    syntax = _element(0x0002, 0x0010, b"UI", DEFLATED)
    preamble = bytes(128) + b"DICM"
    lie = _length(len(syntax) + len(stream))  # points behind the bomb, at a stream that is harmless
    return {
        "plain": preamble + _length(len(syntax)) + syntax + stream,
        "wrong length": preamble + lie + syntax + stream + small,
        "long header": preamble + _length(0) + _element(0x0002, 0x0102, b"OB", bytes(8000)) + syntax + stream,
        "no preamble": _length(len(syntax)) + syntax + stream,
    }


def _length(number: int) -> bytes:
    return struct.pack("<HH2sHI", 0x0002, 0x0000, b"UL", 4, number)


def _element(group: int, element: int, kind: bytes, value: bytes) -> bytes:
    value += bytes(len(value) % 2)
    if kind in (b"OB", b"OW"):
        return struct.pack("<HH2sHI", group, element, kind, 0, len(value)) + value
    return struct.pack("<HH2sH", group, element, kind, len(value)) + value
