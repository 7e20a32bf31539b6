"""The SQLite file: its tables, its format version, and how a connection to it is opened.

Knows rows and errors of SQLite; what a row means is `records.py`.

The header row says which model made the codes and sums up the rows (count, and the sum of their checksums), so a
row that a damaged page hides is noticed too. There is no secondary index: a damaged one could hide rows silently.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any
from urllib.parse import quote
from zlib import crc32

from diptych.archive.records import ModelIdentity
from diptych.errors import ArchiveError, ArchiveMismatchError, UsageError
from diptych.files import parse_json

DATABASE = "archive.sqlite"
FORMAT = 2
"""Version of the tables below. Raise it with every change and add the step from the old one to `MIGRATIONS`."""
OLDEST = 1
"""Oldest format that can be read as it is; it has no label maps."""

APPLICATION_ID = 0x44495054  # "DIPT"; lets `file` tell an archive from other SQLite files
PAGE_SIZE = 8192  # a row's metadata fits its first page; the two id grids fill a few more
BUSY_SECONDS = 20.0

HEADER_TABLE = "CREATE TABLE header (id INTEGER PRIMARY KEY, content TEXT NOT NULL, checksum BLOB NOT NULL)"
VOLUME_TABLE = """CREATE TABLE volumes (
  id INTEGER PRIMARY KEY, volume_key TEXT NOT NULL, patient_key TEXT NOT NULL, study_date TEXT, sex TEXT, age REAL,
  source TEXT, tags TEXT NOT NULL, lesion_source TEXT NOT NULL, input_digest TEXT NOT NULL, files TEXT NOT NULL,
  slices INTEGER NOT NULL, checksum BLOB NOT NULL, codes_checksum BLOB NOT NULL,
  normal_ids BLOB NOT NULL, abnormal_ids BLOB NOT NULL, z_index BLOB NOT NULL, position BLOB NOT NULL,
  z_mm BLOB NOT NULL, lesion_area BLOB NOT NULL, slice_affine BLOB NOT NULL)"""

LABEL_TABLE = """CREATE TABLE label_maps (
  id INTEGER PRIMARY KEY, version TEXT NOT NULL, codes_checksum BLOB NOT NULL, checksum BLOB NOT NULL,
  content BLOB NOT NULL)"""
TABLES = {1: [HEADER_TABLE, VOLUME_TABLE], 2: [HEADER_TABLE, LABEL_TABLE, VOLUME_TABLE]}
"""By format, ordered by name."""


def _add_label_maps(database: sqlite3.Connection) -> None:
    database.execute(LABEL_TABLE)


MIGRATIONS: dict[int, Callable[[sqlite3.Connection], None]] = {1: _add_label_maps}
"""Step from format N to N + 1, run inside the transaction that also writes the new version."""


@dataclass(frozen=True)
class Header:
    """The archive in one row; rewritten in the transaction of every change."""

    format: int
    model: ModelIdentity
    generation: int = 0
    """Number of changes so far."""
    volumes: int = 0
    slices: int = 0
    content: int = 0
    """Sum of all record checksums modulo 2²⁵⁶: equal content, equal sum, in whatever order it came."""

    @property
    def version(self) -> str:
        """Names the content, not its history."""
        model = replace(self.model, description=None).to_json()  # the fingerprint covers the description
        text = json.dumps([self.format, model, self.volumes, f"{self.content:x}"])
        return blake2b(text.encode(), digest_size=16).hexdigest()

    def changed(self, *, volumes: int, slices: int, content: int) -> Header:
        """The header after a change that adds these (possibly negative) amounts."""
        return replace(
            self,
            generation=self.generation + 1,
            volumes=self.volumes + volumes,
            slices=self.slices + slices,
            content=(self.content + content) % 2**256,
        )


def holds_other_things(path: Path) -> bool:
    """Whether a folder is there that is no archive and not empty; files that a killed first run left do not count."""
    if not path.is_dir() or (path / DATABASE).exists():
        return False
    return any(entry.suffix != ".lock" and not entry.name.startswith(".") for entry in path.iterdir())


def is_blank(database: sqlite3.Connection) -> bool:
    """Whether nothing was ever stored: a new file, or one whose creation was cut short."""
    tables = database.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    return not tables and not database.execute("PRAGMA user_version").fetchone()[0]


def create_tables(database: sqlite3.Connection, model: ModelIdentity) -> None:
    """Make an empty archive in one transaction."""
    database.execute("BEGIN IMMEDIATE")
    for statement in TABLES[FORMAT]:
        database.execute(statement)
    database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    database.execute(f"PRAGMA user_version = {FORMAT}")
    store_header(database, Header(FORMAT, model))
    database.execute("COMMIT")


def store_header(database: sqlite3.Connection, header: Header) -> None:
    values = {**asdict(header), "model": header.model.to_json(), "content": f"{header.content:x}"}
    content = json.dumps(values, sort_keys=True)
    database.execute("INSERT OR REPLACE INTO header VALUES (1, ?, ?)", (content, _text_checksum(content)))


def load_header(database: sqlite3.Connection, path: Path) -> Header:
    """Read the header, refusing another format and a damaged one."""
    found = int(database.execute("PRAGMA user_version").fetchone()[0])
    if found > FORMAT:
        raise ArchiveMismatchError(
            f"{path}: has archive format {found}, this Diptych reads up to {FORMAT}; use the newer Diptych that made it"
        )
    if found < OLDEST:
        raise ArchiveMismatchError(
            f"{path}: has archive format {found}, this Diptych uses {FORMAT}; "
            "run 'diptych archive compact' on it once to bring it up to date, or check that it is an archive at all"
        )
    tables = [row[0] for row in database.execute("SELECT sql FROM sqlite_schema ORDER BY name")]
    if tables != TABLES[found]:
        raise ArchiveError(f"{path}: its table definitions are damaged; restore a copy, or index again")
    row = database.execute("SELECT content, checksum FROM header WHERE id = 1").fetchone()
    if row is None or _text_checksum(row[0]) != row[1]:
        raise ArchiveError(f"{path}: its header is damaged; restore a copy, or index again")
    try:
        return _parse_header(parse_json(row[0]))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, UsageError):
        raise ArchiveError(f"{path}: its header is not one that Diptych writes; index the sources again") from None


def _parse_header(values: dict[str, Any]) -> Header:
    model = ModelIdentity.from_json(values.pop("model"))
    model.check()
    return Header(**{**values, "model": model, "content": int(values["content"], 16)})


def migrate(database: sqlite3.Connection, path: Path) -> None:
    """Bring an older archive to `FORMAT`, one transaction per step; a newer one is left to `load_header`."""
    found = int(database.execute("PRAGMA user_version").fetchone()[0])
    while found < FORMAT:
        if found not in MIGRATIONS:
            raise ArchiveMismatchError(
                f"{path}: has archive format {found}, which this Diptych (format {FORMAT}) cannot bring up to date; "
                "index the sources into a new archive"
            )
        database.execute("BEGIN IMMEDIATE")
        MIGRATIONS[found](database)
        found += 1
        database.execute(f"PRAGMA user_version = {found}")
        database.execute("COMMIT")


def connect_writer(path: Path) -> sqlite3.Connection:
    """Open for writing; the caller holds the writer lock. An acknowledged commit survives a power cut."""
    database = _connect(path, "rwc")
    database.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("PRAGMA secure_delete = ON")
    return database


def connect_reader(path: Path) -> sqlite3.Connection:
    """Open for reading beside any writer, and from a medium that nobody can write."""
    try:
        return _probed(_connect(path, "ro"))
    except sqlite3.OperationalError:
        # Without room for SQLite's shared-memory file a clean archive can still be read as it lies there.
        log = path.with_name(f"{path.name}-wal")
        if not path.is_file() or (log.exists() and log.stat().st_size):
            raise
        return _probed(_connect(path, "ro&immutable=1"))


def _probed(database: sqlite3.Connection) -> sqlite3.Connection:
    try:
        database.execute("SELECT 1 FROM sqlite_schema").fetchone()
    except BaseException:
        database.close()
        raise
    return database


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    database = sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?mode={mode}",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )
    database.text_factory = lambda text: text.decode(errors="surrogateescape")  # damage is for checksums to find
    database.execute("PRAGMA trusted_schema = OFF")
    database.execute("PRAGMA cell_size_check = ON")
    return database


@contextmanager
def explain(path: Path, *, writing: bool = False) -> Iterator[None]:
    """Turn failures of SQLite and of the disk into one line that says what is safe and what to do."""
    try:
        yield
    except sqlite3.Error as error:
        reason = _reason(error)
        if reason == _REASONS["SQLITE_IOERR"] and _is_full(path):
            reason = _REASONS["SQLITE_FULL"]
    except (UnicodeDecodeError, OverflowError):  # SQLite quoting, or sizing, what is no longer text
        reason = _REASONS["SQLITE_CORRUPT"]
    except MemoryError:  # too little of it, or a damaged length that asks for too much
        reason = "memory ran out; close other programs, and if that does not help run 'diptych archive verify'"
    except OSError as error:
        reason = error.strerror or str(error)
    else:
        return
    safe = "; this change was not stored, all earlier ones are safe" if writing else ""
    raise ArchiveError(f"{path}: {reason}{safe}")


def _is_full(path: Path) -> bool:
    """SQLite cannot always tell a full disk from a broken one."""
    try:
        return shutil.disk_usage(path).free < 1 << 20
    except OSError:
        return False


def _reason(error: sqlite3.Error) -> str:
    name = getattr(error, "sqlite_errorname", None) or ""
    return next((reason for start, reason in _REASONS.items() if name.startswith(start)), str(error))


_REASONS = {
    "SQLITE_FULL": "the disk is full; free some space and run the same command again",
    "SQLITE_IOERR": "the disk failed to read or write; check it and run the same command again",
    "SQLITE_READONLY": "is read-only; it can be searched, but changes need write access to the file and its folder",
    "SQLITE_CANTOPEN": "cannot be opened; check that it exists and that you may read it (and write, to change it)",
    "SQLITE_PERM": "you may not open it; check its owner and mode",
    "SQLITE_BUSY": "another program keeps it locked; try again when that one is done",
    "SQLITE_CORRUPT": "the file is damaged; restore a copy, or index the sources into a new archive",
    "SQLITE_NOTADB": "is not an archive, or its first page is damaged; restore a copy, or index again",
    "SQLITE_ERROR": "its table definitions are damaged; restore a copy, or index again",
}


def _text_checksum(text: str) -> bytes:
    return blake2b(text.encode(errors="surrogateescape"), digest_size=32).digest()


def make_private(path: Path) -> None:
    """Create an empty file that only its owner can read: codes are patient data. SQLite's side files follow it."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


MARK = "acknowledged"
"""Beside the database: the number of the last change that was reported as done."""


def acknowledge(folder: Path, generation: int) -> None:
    """Note that change number `generation` is on disk and was reported as done.

    Written after the commit without a sync, so it may lag behind the archive but never run ahead: an archive that
    is behind its own mark has lost changes (a damaged or deleted `-wal` file).
    """
    text = f"{generation:020d}"
    descriptor = os.open(folder / MARK, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.pwrite(descriptor, f"{text} {crc32(text.encode()):08x}\n".encode(), 0)
    finally:
        os.close(descriptor)


def acknowledged_generation(folder: Path) -> int:
    """The last acknowledged change; 0 when there is no mark or it cannot be trusted."""
    try:
        text, checksum = (folder / MARK).read_text().split()
        return int(text) if checksum == f"{crc32(text.encode()):08x}" else 0
    except (OSError, ValueError):
        return 0
