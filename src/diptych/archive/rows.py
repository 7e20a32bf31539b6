"""Rows of the `volumes` table to records and back, each checked against its checksum on the way out.

Knows the columns; opening the file and transactions are `store.py` and `writer.py`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

from diptych.archive.records import (
    BLOB_COLUMNS,
    CHECKSUM_BYTES,
    ModelIdentity,
    VolumeInfo,
    VolumeRecord,
    codes_checksum,
    record_checksum,
)
from diptych.errors import ArchiveError
from diptych.files import parse_json

INFO_COLUMNS = (
    "volume_key",
    "patient_key",
    "study_date",
    "sex",
    "age",
    "source",
    "tags",
    "lesion_source",
    "input_digest",
    "files",
)
ROW_COLUMNS = ("id", *INFO_COLUMNS, "slices", "checksum", "codes_checksum")
_JSON_COLUMNS = ("tags", "files")
MAX_COLUMN = 1 << 17
"""Bytes of one column of metadata; nothing that `VolumeInfo.check` lets through is longer."""


class DamagedRowError(Exception):
    """A row that does not match its checksum. Never leaves the archive package."""

    def __init__(self, row: int, volume_key: object, what: str) -> None:
        super().__init__(f"row {row} ({str(volume_key)[:80]!r}): {what}")
        self.row = row


@dataclass(frozen=True)
class Row:
    """A volume without its arrays; its metadata has been checked."""

    id: int
    info: VolumeInfo
    slices: int
    checksum: bytes
    codes_checksum: bytes


@dataclass(frozen=True)
class StoredLabels:
    """What a volume's codes decode to, as bytes that the archive does not look into."""

    version: str
    """Which decoders made it."""
    content: bytes

    def checksum(self, codes: bytes) -> bytes:
        """Covers everything, and the codes that they were decoded from."""
        about = json.dumps([self.version, len(self.content), codes.hex()])
        return blake2b(about.encode() + self.content, digest_size=CHECKSUM_BYTES).digest()


def row_id(volume_key: str) -> int:
    """Where a volume lies: 63 bits of its key's hash, so that finding it needs no index that could be damaged."""
    return int.from_bytes(blake2b(volume_key.encode(), digest_size=8).digest()) >> 1


def row_values(record: VolumeRecord, model: ModelIdentity) -> dict[str, object]:
    """All columns of a record."""
    blobs = record.blobs(model)
    codes = codes_checksum(blobs)
    info = record.info.to_json()
    for name in _JSON_COLUMNS:
        info[name] = json.dumps(info[name])
    return {
        "id": row_id(record.info.volume_key),
        **{name: info[name] for name in INFO_COLUMNS},
        "slices": record.slice_count,
        "checksum": record_checksum(record.info, record.slice_count, codes, model),
        "codes_checksum": codes,
        **dict(zip(BLOB_COLUMNS, blobs, strict=True)),
    }


def read_rows(
    database: sqlite3.Connection, model: ModelIdentity, *, only: int | None = None
) -> Iterator[Row | DamagedRowError]:
    """Every volume's metadata (or that of one row) as read in one pass; a damaged row comes as its error."""
    where, bound = ("", ()) if only is None else (" WHERE id = ?", (only,))
    for values in database.execute(f"SELECT {', '.join(ROW_COLUMNS)} FROM volumes{where}", bound):
        try:
            yield _checked(values, model)
        except DamagedRowError as error:
            yield error


def _checked(values: tuple[object, ...], model: ModelIdentity) -> Row:
    row = dict(zip(ROW_COLUMNS, values, strict=True))
    if any(isinstance(row[key], str | bytes) and len(row[key]) > MAX_COLUMN for key in INFO_COLUMNS):  # type: ignore[arg-type]
        raise DamagedRowError(int(str(row["id"])), row["volume_key"], "its metadata is too long to be read")
    try:
        fields = {key: row[key] for key in INFO_COLUMNS}
        fields.update({key: parse_json(str(row[key])) for key in _JSON_COLUMNS})
        info = VolumeInfo.from_json(fields)
        slices, codes = int(str(row["slices"])), bytes(row["codes_checksum"])  # type: ignore[call-overload]
        expected = record_checksum(info, slices, codes, model)
        whole = expected == row["checksum"] and row["id"] == row_id(info.volume_key)
    except (TypeError, ValueError, AttributeError, KeyError):
        whole = False
    if not whole:
        raise DamagedRowError(int(str(row["id"])), row["volume_key"], "its metadata does not match its checksum")
    try:
        info.check()  # whoever made the archive made the checksum too
    except ArchiveError as error:
        raise DamagedRowError(int(str(row["id"])), row["volume_key"], f"it is refused ({error})") from None
    return Row(int(str(row["id"])), info, slices, expected, codes)


def read_blobs(database: sqlite3.Connection, row: Row, model: ModelIdentity) -> tuple[bytes, ...]:
    """The arrays of a volume, in the order of `BLOB_COLUMNS`, checked."""
    try:
        values = database.execute(f"SELECT {', '.join(BLOB_COLUMNS)} FROM volumes WHERE id = ?", (row.id,)).fetchone()
    except sqlite3.DatabaseError as error:
        raise DamagedRowError(row.id, row.info.volume_key, f"its codes cannot be read ({error})") from error
    if values is None or not all(isinstance(blob, bytes) for blob in values):
        raise DamagedRowError(row.id, row.info.volume_key, "its codes cannot be read")
    if codes_checksum(values) != row.codes_checksum:
        raise DamagedRowError(row.id, row.info.volume_key, "its codes do not match their checksum")
    blobs: tuple[bytes, ...] = values
    try:
        record = VolumeRecord.from_blobs(row.info, blobs, model)
        record.check(model)
    except (ArchiveError, ValueError) as error:
        raise DamagedRowError(row.id, row.info.volume_key, f"it is refused ({error})") from None
    if record.slice_count != row.slices:
        raise DamagedRowError(row.id, row.info.volume_key, "its arrays do not have the slices it says")
    return blobs


def write_labels(database: sqlite3.Connection, row: int, codes: bytes, labels: StoredLabels) -> None:
    """Keep the label maps of a volume whose codes have this checksum."""
    values = row, labels.version, codes, labels.checksum(codes), labels.content
    database.execute("INSERT OR REPLACE INTO label_maps VALUES (?, ?, ?, ?, ?)", values)


def label_checksums(database: sqlite3.Connection) -> dict[int, tuple[str, bytes, bytes]]:
    """By row: version, checksum of the codes they were made from, and their own checksum; the content is not read."""
    try:
        if not _has_labels(database):
            return {}
        rows = database.execute("SELECT id, version, codes_checksum, checksum FROM label_maps").fetchall()
        return {int(row): (str(version), bytes(codes), bytes(own)) for row, version, codes, own in rows}
    except (sqlite3.DatabaseError, TypeError, ValueError):  # damaged: as if there were none, for they can be made again
        return {}


def read_labels(database: sqlite3.Connection, row: Row) -> StoredLabels | None:
    """The label maps of a volume; None where there are none, or none that can be believed."""
    if not _has_labels(database):
        return None
    try:
        found = database.execute("SELECT version, content, checksum FROM label_maps WHERE id = ?", (row.id,)).fetchone()
        labels = None if found is None else StoredLabels(str(found[0]), bytes(found[1]))
    except (sqlite3.DatabaseError, TypeError):
        return None
    return labels if labels is not None and labels.checksum(row.codes_checksum) == found[2] else None


def _has_labels(database: sqlite3.Connection) -> bool:
    """Archives of the first format have no such table."""
    return database.execute("SELECT 1 FROM sqlite_schema WHERE name = 'label_maps'").fetchone() is not None
