"""Segments: the searchable form of an archive, as a few immutable files beside the SQLite truth.

    ARCHIVE/segments/NAME.segment     the slices of some volumes as arrays, see docs/explanation/segments.md

A segment names, for each of its volumes, the checksums of the record and of the label maps that it was made from. A row
counts only while the truth holds a volume with exactly these; what was removed or replaced is thereby out at once, and
no crash can leave a row that counts wrongly. What no segment covers is read from the truth and becomes one more
segment. A damaged segment is not believed: its volumes are read from the truth again. Knows files and checksums; what
the arrays mean is `diptych.retrieval.catalogue`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.archive.array_file import load_arrays, save_arrays
from diptych.archive.records import CHECKSUM_BYTES
from diptych.files import remove_unfinished

FOLDER = "segments"
ENDING = ".segment"
IDENTITY = "identity"
"""Name of the array `[V, 64]` of identities."""


@dataclass(frozen=True, eq=False)
class Segment:
    """Some volumes of an archive; arrays are memory-mapped where it came from a file."""

    identities: tuple[bytes, ...]
    """Of its volumes, in the order of their keys."""
    arrays: Mapping[str, NDArray[Any]]
    path: Path | None = None

    @property
    def name(self) -> str:
        return segment_name(self.identities)


@dataclass(frozen=True)
class OpenedSegments:
    """Segments that can be believed, largest first, and files that cannot."""

    segments: tuple[Segment, ...]
    damaged: tuple[Path, ...]


@dataclass(frozen=True)
class Covered:
    """Which rows of which segments make up one version of an archive."""

    rows: Mapping[str, NDArray[np.int64]]
    """By name of the segment, the volumes of it that count, `[n]`."""
    missing: tuple[int, ...]
    """Places in the listing that no segment covers."""


def segment_name(identities: Sequence[bytes]) -> str:
    """Equal content, equal name."""
    return blake2b(b"".join(identities), digest_size=16).hexdigest()


def open_segments(archive: Path, *, key: str) -> OpenedSegments:
    """All segments that were made under `key`; others, and whatever is not a whole segment, count as damaged."""
    found, damaged = [], []
    for path in sorted((archive / FOLDER).glob(f"*{ENDING}")):
        arrays = load_arrays(path, key=key)
        identity = None if arrays is None else arrays.pop(IDENTITY, None)
        if arrays is None or identity is None or identity.shape[1:] != (2 * CHECKSUM_BYTES,):
            damaged.append(path)
            continue
        found.append(Segment(tuple(row.tobytes() for row in identity), arrays, path))
    found.sort(key=lambda segment: (-len(segment.identities), segment.name))
    return OpenedSegments(tuple(found), tuple(damaged))


def cover(segments: Sequence[Segment], wanted: Sequence[bytes]) -> Covered:
    """Find each wanted identity in the first segment that has it."""
    places = {identity: place for place, identity in enumerate(wanted)}
    rows = {}
    for segment in segments:
        alive = [row for row, identity in enumerate(segment.identities) if places.pop(identity, None) is not None]
        if alive:
            rows[segment.name] = np.array(alive, dtype=np.int64)
    return Covered(rows, tuple(sorted(places.values())))


def write_segment(archive: Path, segment: Segment, *, key: str) -> Segment:
    """The segment as a file, mapped; as it is where nothing can be written: it is only a copy of the truth."""
    folder = archive / FOLDER
    path = folder / f"{segment.name}{ENDING}"
    identity = np.frombuffer(b"".join(segment.identities), dtype=np.uint8).reshape(-1, 2 * CHECKSUM_BYTES)
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError:
        return segment
    if not save_arrays(path, {IDENTITY: identity, **segment.arrays}, key=key):
        return segment
    arrays = load_arrays(path, key=key)
    if arrays is None:
        return segment
    arrays.pop(IDENTITY)
    return Segment(segment.identities, arrays, path)


def drop_segments(paths: Sequence[Path]) -> None:
    """Delete files of segments; who has one mapped keeps it."""
    for path in paths:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def sweep(archive: Path, live: Sequence[bytes]) -> None:
    """Delete every segment that holds anything but live rows, and what a killed process left; only a writer may."""
    folder, alive = archive / FOLDER, set(live)
    remove_unfinished(folder)
    for path in folder.glob(f"*{ENDING}"):
        identities = read_identities(path)
        if identities is None or not alive.issuperset(identities):
            drop_segments([path])


def read_identities(path: Path) -> tuple[bytes, ...] | None:
    """The identities in a file, under whatever key it was made; None when it is not a whole segment."""
    arrays = load_arrays(path, key=None)
    identity = None if arrays is None else arrays.get(IDENTITY)
    if identity is None or identity.shape[1:] != (2 * CHECKSUM_BYTES,):
        return None
    return tuple(row.tobytes() for row in identity)
