"""Back up an archive while others write to it, and restore it: codes, images, users, secrets and the audit log.

    BACKUP/backup.json      what is in it, with the SHA-256 of every file; written last
    BACKUP/archive.sqlite   one consistent version, taken by SQLite itself
    BACKUP/volumes/ …       the images that this version names

A backup appears whole or not at all. Restoring checks every file first and touches nothing until all is well. Knows
files and the archive's store; nothing about models.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from diptych.archive.archive_store import ArchiveStore, require_archive
from diptych.archive.audit import AuditLog
from diptych.archive.copies import copy_path
from diptych.archive.records import COPY_PATH
from diptych.archive.schema import DATABASE, connect_reader, explain
from diptych.errors import ArchiveError
from diptych.files import file_sha256, open_regular, parse_json, read_regular, replacing_folder, write_json
from diptych.progress import Progress, silent

RECORD, FORMAT = "backup.json", "diptych-backup"
BESIDE = ("users.json", "date-shift.key")
"""Small files that belong to an archive; its mark of the last change belongs to what went on after the copy."""
TRIES = 5
"""How often a copy that a writer took away meanwhile makes us begin anew."""
MAX_RECORD = 1 << 30


@dataclass(frozen=True)
class BackupReport:
    """What was copied."""

    volumes: int
    files: int
    bytes: int
    version: str


class _MovedOnError(Exception):
    """A writer has taken away an image of the version that is being copied."""


def back_up(archive: Path, out: Path, *, progress: Progress = silent) -> BackupReport:
    """Copy one consistent version of an archive to a new folder."""
    require_archive(archive)
    if out.exists():
        raise ArchiveError(f"{out}: is there already; give a new name, backups are never overwritten")
    for _ in range(TRIES):
        try:
            with explain(out, writing=True), replacing_folder(out, private=True) as part:
                return _copy(archive, part, progress)
        except _MovedOnError:
            continue
    raise ArchiveError(f"{archive}: changes too quickly to be copied; try again when less is written")


def _copy(archive: Path, part: Path, progress: Progress) -> BackupReport:
    with explain(archive):
        source = connect_reader(archive / DATABASE)
        try:
            _snapshot(source, part / DATABASE)
        finally:
            source.close()
    listing = ArchiveStore.open(part).listing()
    if listing.problems:
        raise ArchiveError(f"{archive}: {listing.problems[0]}; mend the archive before it is backed up")
    files = {DATABASE: file_sha256(part / DATABASE)}
    for done, info in enumerate(listing.volumes, start=1):
        for file in info.files:
            if file.is_copy:
                files[file.path] = _copy_file(copy_path(archive, file), part / file.path)
                if files[file.path] != file.sha256:
                    raise ArchiveError(
                        f"{info.volume_key}: {file.path} has changed since it was indexed; index it again"
                    )
        progress(done, len(listing.volumes), info.volume_key)
    with AuditLog(archive).held():
        for name in _beside(archive):
            files[name] = _copy_file(archive / name, part / name)
    total = sum((part / name).stat().st_size for name in files)
    made = datetime.now(UTC).isoformat(timespec="seconds")
    record = {"format": FORMAT, "version": 1, "made": made, "archive_version": listing.version, "files": files}
    write_json(part / RECORD, record)
    (part / RECORD).chmod(0o600)
    return BackupReport(len(listing.volumes), len(files), total, listing.version)


def restore(backup: Path, archive: Path, *, progress: Progress = silent) -> BackupReport:
    """Make an archive from a backup; everything is checked before anything is written."""
    if archive.exists():
        raise ArchiveError(f"{archive}: is there already; restore to a new name, then exchange the two")
    files = _checked_record(backup)
    for done, (name, digest) in enumerate(files.items(), start=1):
        _check_file(backup, name, digest)
        progress(done, len(files), name)
    store = ArchiveStore.open(backup)
    codes = store.codes()
    missing = [f.path for info in codes.volumes for f in info.files if f.is_copy and f.path not in files]
    if codes.problems or missing:
        raise ArchiveError(f"{backup}: {(*codes.problems, *missing)[0]}: is damaged or missing; use another backup")
    with explain(archive, writing=True), replacing_folder(archive, private=True) as part:
        for name, digest in files.items():
            if _copy_file(backup / name, part / name) != digest:
                raise ArchiveError(f"{backup}: {name} changed while it was read; try again")
    total = sum((archive / name).stat().st_size for name in files)
    return BackupReport(len(codes.volumes), len(files), total, store.version)


def _snapshot(source: Any, path: Path) -> None:
    """SQLite's own copy: consistent while a writer works."""
    import sqlite3

    copy = sqlite3.connect(path)
    try:
        source.backup(copy, pages=4096)
        copy.execute("PRAGMA journal_mode = DELETE")
    finally:
        copy.close()
    path.chmod(0o600)


def _beside(archive: Path) -> Iterator[str]:
    yield from (name for name in BESIDE if (archive / name).is_file())
    yield from (f"audit/{file.name}" for file in sorted((archive / "audit").glob("[!.]*")) if file.is_file())


def _copy_file(source: Path, target: Path) -> str:
    try:
        with open_regular(source) as data:
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(target, "xb") as copy:
                target.chmod(0o600)
                shutil.copyfileobj(data, copy, 1 << 20)
    except FileNotFoundError:
        raise _MovedOnError from None
    return file_sha256(target)


def _checked_record(backup: Path) -> dict[str, str]:
    try:
        record = parse_json(read_regular(backup / RECORD, limit=MAX_RECORD))
        if record["format"] != FORMAT or record["version"] != 1:
            raise ValueError("of another kind")
        files = {str(name): str(digest) for name, digest in record["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArchiveError(
            f"{backup}: is no whole backup ({error}); give a folder that 'archive backup' made"
        ) from None
    for name in files:
        plain = name in (DATABASE, *BESIDE) or COPY_PATH.fullmatch(name)
        if not plain and not (name.startswith("audit/") and name.count("/") == 1 and name.isprintable()):
            raise ArchiveError(f"{backup}: names the file {name[:80]!r}, which no archive has; it is refused")
    if DATABASE not in files:
        raise ArchiveError(f"{backup}: has no {DATABASE}; use another backup")
    return files


def _check_file(backup: Path, name: str, digest: str) -> None:
    path = backup / name
    if any(part.is_symlink() for part in (path, *path.parents) if part.is_relative_to(backup) and part != backup):
        raise ArchiveError(f"{path}: is a link, which may lead anywhere; use another backup")
    try:
        found = file_sha256(path)
    except OSError as error:
        raise ArchiveError(f"{path}: cannot be read ({error.strerror}); use another backup") from None
    if found != digest:
        raise ArchiveError(f"{path}: does not match its checksum; use another backup")
