"""`ArchiveStore`: read what is stored. Many readers work beside one writer, and each read sees one consistent version.

Knows nothing about models, images or search. Nothing is returned that does not match its checksum: a damaged volume
is left out and named in `problems`; damage that hides more than a volume is an `ArchiveError`.

    ARCHIVE/archive.sqlite   everything, one row per volume
    ARCHIVE/volumes/         de-identified NIfTI copies for viewing
    ARCHIVE/cache/           disposable; `compact` deletes it
"""

from __future__ import annotations

import difflib
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from diptych.archive.pseudonyms import ArchiveKeys
from diptych.archive.records import (
    CHECKSUM_BYTES,
    ArchiveCodes,
    ModelIdentity,
    VolumeInfo,
    VolumeRecord,
    blob_types,
)
from diptych.archive.rows import (
    DamagedRowError,
    Row,
    StoredLabels,
    label_checksums,
    read_blobs,
    read_labels,
    read_rows,
    row_id,
)
from diptych.archive.schema import DATABASE, Header, acknowledged_generation, connect_reader, explain, load_header
from diptych.description import Description
from diptych.errors import ArchiveError


@dataclass(frozen=True)
class Listing:
    """All volumes of one version, ordered by volume key."""

    version: str
    volumes: tuple[VolumeInfo, ...]
    slices: tuple[int, ...]
    """Number of slices of each volume."""
    problems: tuple[str, ...]
    """Damage that was found, one sentence each; the volumes it concerns are left out."""
    identities: tuple[bytes, ...] = ()
    """Checksum of each record and that of its label maps, put together: what a segment's row must have to count."""
    label_versions: tuple[str | None, ...] = ()
    """Which decoders made the label maps of each volume; None where it has none of its present codes."""


NO_LABELS = bytes(CHECKSUM_BYTES)
"""Stands for the checksum of label maps that are not there."""


@dataclass(frozen=True, eq=False)
class StoredVolume:
    """A record with its label maps, where it has some, and the identity that both have together."""

    record: VolumeRecord
    labels: StoredLabels | None
    identity: bytes


@dataclass(frozen=True)
class ArchiveStat:
    """An archive in numbers."""

    path: str
    format: int
    model: ModelIdentity
    version: str
    volumes: int
    patients: int
    slices: int
    lesion_sources: dict[str, int]
    """Volumes by where their lesion areas come from."""
    database_bytes: int
    copies_bytes: int
    problems: tuple[str, ...]
    decoded: int = 0
    """Volumes whose label maps are stored."""
    segments: int = 0
    """Files that searches read, made again from the truth whenever they are missing."""
    segment_bytes: int = 0


class ArchiveStore:
    """A folder with the codes of many volumes. Open one with `ArchiveStore.open`; change it with `ArchiveWriter`."""

    def __init__(self, path: Path, header: Header) -> None:
        self.path = path
        self.model = header.model
        self.format = header.format

    @classmethod
    def open(cls, path: Path | str, *, model: ModelIdentity | None = None) -> ArchiveStore:
        """Open for reading; with `model`, refuse an archive that another model made."""
        path = require_archive(Path(path))
        with _snapshot(path) as (_, header):
            pass
        if model is not None:
            header.model.require(model, path)
        return cls(path, header)

    @property
    def description(self) -> Description:
        """Channels and classes by name, as the model that made the codes knows them."""
        return self.model.about

    @property
    def cache_folder(self) -> Path:
        """For files that can be made again from the archive; may not exist."""
        return self.path / "cache"

    def folder_of(self, info: VolumeInfo) -> Path:
        """The archive's folder that holds, or would hold, a volume: its own, unless it has several."""
        return self.path

    @property
    def header(self) -> Header:
        """The archive in one row, as it is now."""
        with _snapshot(self.path) as (_, header):
            return header

    @property
    def version(self) -> str:
        """Names the current content; equal for archives with equal content."""
        return self.header.version

    def listing(self) -> Listing:
        """Every volume's metadata, without its codes."""
        mark = acknowledged_generation(self.path)
        with _snapshot(self.path) as (database, header):
            rows, problems = _all_rows(database, header, mark)
            labels = label_checksums(database)
        current = [_current(row, labels) for row in rows]
        return Listing(
            header.version,
            tuple(row.info for row in rows),
            tuple(row.slices for row in rows),
            tuple(problems),
            tuple(row.checksum + checksum for row, (_, checksum) in zip(rows, current, strict=True)),
            tuple(version for version, _ in current),
        )

    def stored(self, volume_keys: Collection[str]) -> tuple[list[StoredVolume], list[str]]:
        """Some volumes with their label maps, in the order of their keys; damaged ones only as problems."""
        found, problems = [], []
        with _snapshot(self.path) as (database, header):
            for key in sorted(volume_keys):
                for row in read_rows(database, header.model, only=row_id(key)):
                    try:
                        if isinstance(row, DamagedRowError):
                            raise row
                        blobs = read_blobs(database, row, header.model)
                        record = VolumeRecord.from_blobs(row.info, blobs, header.model)
                    except DamagedRowError as error:
                        problems.append(str(error))
                        continue
                    labels = read_labels(database, row)
                    own = NO_LABELS if labels is None else labels.checksum(row.codes_checksum)
                    found.append(StoredVolume(record, labels, row.checksum + own))
        return found, problems

    def codes(self) -> ArchiveCodes:
        """The codes and metadata of all slices in one array each."""
        header, rows, columns, problems = self._read_all()
        return _join(header, rows, columns, problems)

    def records(self) -> tuple[list[VolumeRecord], tuple[str, ...]]:
        """All volumes of one version, ordered by volume key, and the problems found."""
        header, rows, columns, problems = self._read_all()
        records = [
            VolumeRecord.from_blobs(row.info, blobs, header.model) for row, blobs in zip(rows, columns, strict=True)
        ]
        return records, tuple(problems)

    def record(self, volume_key: str) -> VolumeRecord:
        """One volume with its codes, by its key or by the name that became its key.

        Damage is an error here, for there is nothing else to return.
        """
        with _snapshot(self.path) as (database, header):
            for row in read_rows(database, header.model, only=row_id(volume_key)):
                try:
                    if isinstance(row, DamagedRowError):
                        raise row
                    return VolumeRecord.from_blobs(row.info, read_blobs(database, row, header.model), header.model)
                except DamagedRowError as error:
                    raise ArchiveError(f"{self.path}: {error}; index this volume again") from error
            rows, _ = _all_rows(database, header, 0)
        if (pseudonym := self.known_as(volume_key)) != volume_key:
            return self.record(pseudonym)
        close = difflib.get_close_matches(volume_key, [row.info.volume_key for row in rows], n=3)
        hint = f"; near to it: {', '.join(close)}" if close else ""
        raise ArchiveError(f"{self.path}: holds no volume {volume_key!r}{hint}")

    def known_as(self, name: str) -> str:
        """The key of a volume or patient here: the name itself, or the pseudonym that it became."""
        known = {key for info in self.listing().volumes for key in (info.volume_key, info.patient_key)}
        pseudonym = ArchiveKeys.of_archive(self.path).pseudonym(name)
        return pseudonym if name not in known and pseudonym in known else name

    def stat(self) -> ArchiveStat:
        """Count what is there."""
        listing = self.listing()
        sources = [info.lesion_source for info in listing.volumes]
        database_files = self.path.glob(f"{DATABASE}*")
        copies = (self.path / "volumes").glob("*/*")
        segments = [file.stat().st_size for file in (self.path / "segments").glob("*.segment")]
        return ArchiveStat(
            path=str(self.path),
            format=self.format,
            model=self.model,
            version=listing.version,
            volumes=len(listing.volumes),
            patients=len({info.patient_key for info in listing.volumes}),
            slices=sum(listing.slices),
            lesion_sources={name: sources.count(name) for name in sorted(set(sources))},
            database_bytes=sum(file.stat().st_size for file in database_files),
            copies_bytes=sum(file.stat().st_size for file in copies),
            problems=listing.problems,
            decoded=sum(version is not None for version in listing.label_versions),
            segments=len(segments),
            segment_bytes=sum(segments),
        )

    def _read_all(self) -> tuple[Header, list[Row], list[tuple[bytes, ...]], list[str]]:
        """Every row with its blobs, in one snapshot; damaged ones only as problems."""
        mark = acknowledged_generation(self.path)
        with _snapshot(self.path) as (database, header):
            rows, problems = _all_rows(database, header, mark)
            kept, columns = [], []
            for row in rows:
                try:
                    columns.append(read_blobs(database, row, header.model))
                    kept.append(row)
                except DamagedRowError as error:
                    problems.append(str(error))
        return header, kept, columns, problems


def require_archive(path: Path) -> Path:
    """`path` itself when it is an archive folder."""
    if (path / DATABASE).is_file():
        return path
    what = "is a file, not an archive folder" if path.is_file() else "is no archive"
    raise ArchiveError(f"{path}: {what}; make one with 'diptych index SOURCE --archive {path}'")


@contextmanager
def _snapshot(path: Path) -> Iterator[tuple[sqlite3.Connection, Header]]:
    """One consistent version: whatever a writer does meanwhile, this connection sees the archive as it was."""
    file = path / DATABASE
    with explain(path):
        database = connect_reader(file)
        try:
            database.execute("BEGIN")
            yield database, load_header(database, path)
        finally:
            database.close()


def _all_rows(database: sqlite3.Connection, header: Header, mark: int) -> tuple[list[Row], list[str]]:
    """Checked rows by volume key, and what is wrong: damaged rows, hidden rows, lost changes."""
    rows, problems, found = [], [], 0
    for row in read_rows(database, header.model):
        found += 1
        if isinstance(row, DamagedRowError):
            problems.append(str(row))
        else:
            rows.append(row)
    content = sum(int.from_bytes(row.checksum) for row in rows) % 2**256
    if found != header.volumes or (not problems and content != header.content):
        problems.append(
            f"{found} volumes are readable, {header.volumes} were stored: a damaged page hides or doubles some; "
            "restore a copy, or index the sources into a new archive"
        )
    if mark > header.generation:
        problems.append(
            f"change {mark} was acknowledged, the newest one found is {header.generation}: the file {DATABASE}-wal "
            "was lost or damaged; index the last sources again, then run 'diptych archive repair'"
        )
    once = {row.info.volume_key: row for row in rows}
    return [once[key] for key in sorted(once)], problems


def _current(row: Row, labels: dict[int, tuple[str, bytes, bytes]]) -> tuple[str | None, bytes]:
    """Version and checksum of a volume's label maps, if they were made from the codes that it has now."""
    version, codes, checksum = labels.get(row.id, ("", b"", b""))
    return (version, checksum) if codes == row.codes_checksum else (None, NO_LABELS)


def _join(header: Header, rows: list[Row], columns: list[tuple[bytes, ...]], problems: list[str]) -> ArchiveCodes:
    """Join the blobs of all rows column by column: one copy of the bytes, no work per slice."""
    kinds = blob_types(header.model)[:-1]  # the affines of single volumes are of no use to a search
    arrays: list[Any] = [
        np.frombuffer(b"".join(blobs[i] for blobs in columns), dtype=kind) for i, kind in enumerate(kinds)
    ]
    cells = header.model.cells
    normal, abnormal, z_index, position, z_mm, lesion_area = arrays
    return ArchiveCodes(
        model=header.model,
        version=f"{header.version}-damaged" if problems else header.version,
        volumes=tuple(row.info for row in rows),
        volume=np.repeat(np.arange(len(rows), dtype=np.int32), [row.slices for row in rows]),
        normal_ids=normal.reshape(-1, cells),
        abnormal_ids=abnormal.reshape(-1, cells),
        z_index=z_index,
        position=position,
        z_mm=z_mm,
        lesion_area=lesion_area,
        problems=tuple(problems),
    )
