"""`ArchiveWriter`: add, replace and remove volumes, one transaction each, and leave no byte of what was removed.

Knows nothing about models or images. When `add` or `remove` returns, the change survives kill -9 and a power cut.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Literal

from diptych.archive.archive_store import ArchiveStore, require_archive
from diptych.archive.copies import copy_path, require_own_folder
from diptych.archive.records import ModelIdentity, VolumeInfo, VolumeRecord
from diptych.archive.rows import (
    DamagedRowError,
    Row,
    StoredLabels,
    read_blobs,
    read_rows,
    row_id,
    row_values,
    write_labels,
)
from diptych.archive.schema import (
    DATABASE,
    Header,
    acknowledge,
    acknowledged_generation,
    connect_writer,
    create_tables,
    explain,
    holds_other_things,
    is_blank,
    load_header,
    make_private,
    migrate,
    store_header,
)
from diptych.archive.segments import sweep
from diptych.errors import ArchiveError, ArchiveLockedError
from diptych.files import FolderLock

LOCK = "writer.lock"
AddOutcome = Literal["added", "replaced", "unchanged"]


class ArchiveWriter(ArchiveStore):
    """The one process that may change an archive. Use it in a `with` block; reading works as with `ArchiveStore`."""

    def __init__(self, path: Path, header: Header, database: sqlite3.Connection, lock: FolderLock) -> None:
        super().__init__(path, header)
        self._database = database
        self._lock = lock

    @classmethod
    def open(cls, path: Path | str, *, model: ModelIdentity | None = None) -> ArchiveWriter:
        """Open for changes. With `model`, make the archive when there is none and refuse one of another model.

        The file's structure is checked first: writing into a damaged file would spread the damage.
        """
        path = Path(path)
        if model is None:
            require_archive(path)
        elif holds_other_things(path):
            raise ArchiveError(
                f"{path}: is a folder of something else, not an archive; name a folder that is new or empty"
            )
        with explain(path, writing=True):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = FolderLock(path / LOCK)
            if (holder := lock.acquire()) is not None:
                raise ArchiveLockedError(
                    f"{path}: process {holder} is writing to this archive; wait until it is done, or stop it"
                )
        try:
            database = _prepare(path, model)
        except BaseException:
            lock.release()
            raise
        return cls(path, load_header(database, path), database, lock)

    def __enter__(self) -> ArchiveWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Fold the write-ahead log into the file and let the next writer in."""
        try:
            self._database.close()
        finally:
            self._lock.release()

    def add(self, record: VolumeRecord, labels: StoredLabels | None = None) -> AddOutcome:
        """Store a volume, with its label maps where they are known, in one transaction.

        The same content again changes nothing; other content under its key replaces it.
        """
        values = row_values(record, self.model)
        columns, marks = ", ".join(values), ", ".join("?" * len(values))
        with self._change() as header:
            old = self._row(record.info.volume_key)
            if isinstance(old, Row) and old.checksum == values["checksum"]:
                return "unchanged"
            self._database.execute(f"INSERT OR REPLACE INTO volumes ({columns}) VALUES ({marks})", (*values.values(),))
            self._write_labels(record.info.volume_key, values["codes_checksum"], labels)
            self._commit(header, old, self._row(record.info.volume_key))
        if isinstance(old, Row) and old.info.files != record.info.files:
            self.delete_copies(old.info)
        return "added" if old is None else "replaced"

    def add_labels(self, volume_key: str, labels: StoredLabels) -> None:
        """Store the label maps of a volume that is there, in place of older ones; its record stays as it is."""
        with self._change() as header:
            row = self._row(volume_key)
            if not isinstance(row, Row):
                raise ArchiveError(f"{self.path}: holds no whole volume {volume_key!r}; index it again")
            self._write_labels(volume_key, row.codes_checksum, labels)
            self._store(header.changed(volumes=0, slices=0, content=0))

    def _write_labels(self, volume_key: str, codes: object, labels: StoredLabels | None) -> None:
        assert isinstance(codes, bytes)
        if labels is None:
            self._database.execute("DELETE FROM label_maps WHERE id = ?", (row_id(volume_key),))
        else:
            write_labels(self._database, row_id(volume_key), codes, labels)

    def remove(self, volume_key: str) -> None:
        """Take a volume out. No search finds it from now on; `compact` wipes its last bytes."""
        with self._change() as header:
            old = self._row(volume_key)
            if old is None:
                raise ArchiveError(f"{self.path}: holds no volume {volume_key!r}; 'diptych archive list' shows all")
            for table in ("volumes", "label_maps"):
                self._database.execute(f"DELETE FROM {table} WHERE id = ?", (row_id(volume_key),))
            self._commit(header, old, None)
        if isinstance(old, Row):
            self.delete_copies(old.info)

    def is_whole(self, volume_key: str) -> bool:
        """Whether the volume is there and every byte of its row matches its checksums."""
        with explain(self.path):
            return isinstance(self._row(volume_key), Row)

    def remove_patient(self, patient_key: str) -> tuple[str, ...]:
        """Take out all volumes of a patient; return their keys."""
        keys = tuple(info.volume_key for info in self.listing().volumes if info.patient_key == patient_key)
        for key in keys:
            self.remove(key)
        return keys

    def compact(self) -> int:
        """Rewrite the file without gaps, wipe what was removed, delete strays, caches and segments with removed rows.

        Returns the bytes that became free. Needs as much free space as the archive has. A reader in the middle of a
        long read delays the wiping, which then is an error: run it again.
        """
        before = _folder_bytes(self.path)
        with explain(self.path, writing=True):
            self._database.execute("VACUUM")
            busy, _, _ = self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if busy:
                raise ArchiveError(
                    f"{self.path}: a reader kept the old pages in use; run compact again when it is done"
                )
            shutil.rmtree(self.cache_folder, ignore_errors=True)
            sweep(self.path, self.listing().identities)
            self._delete_strays()
        return before - _folder_bytes(self.path)

    def repair(self) -> tuple[str, ...]:
        """Drop damaged rows, count anew, and accept what is there as the whole; return what was dropped.

        Index the dropped volumes again afterwards.
        """
        with self._change() as header:
            damaged = [row for row in self._all_rows() if isinstance(row, DamagedRowError)]
            for row in damaged:
                for table in ("volumes", "label_maps"):
                    self._database.execute(f"DELETE FROM {table} WHERE id = ?", (row.row,))
            caught_up = replace(header, generation=max(header.generation, acknowledged_generation(self.path)))
            self._store(self._recounted(caught_up))
        return tuple(str(row) for row in damaged)

    def delete_copies(self, info: VolumeInfo) -> None:
        """Delete the NIfTI copies of a volume that is no longer stored; nothing but copies, whatever a row says."""
        for folder in {copy_path(self.path, file).parent for file in info.files if file.is_copy}:
            shutil.rmtree(folder, ignore_errors=True)

    def _delete_strays(self) -> None:
        """Copies that no row names: left by a process that was killed between writing them and its commit."""
        named = {Path(file.path).parent.name for info in self.listing().volumes for file in info.files if file.is_copy}
        for stray in require_own_folder(self.path).glob("*"):
            if stray.is_symlink() or not stray.is_dir():
                stray.unlink()
            elif stray.name not in named:
                shutil.rmtree(stray)

    @contextmanager
    def _change(self) -> Iterator[Header]:
        """A transaction that ends in a commit or leaves everything as it was."""
        with explain(self.path, writing=True):
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield load_header(self._database, self.path)
            finally:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")

    def _row(self, volume_key: str) -> Row | DamagedRowError | None:
        """The stored volume with all its bytes checked, its damage, or None when there is none."""
        rows = [self._with_codes(row) for row in read_rows(self._database, self.model, only=row_id(volume_key))]
        row = rows[0] if rows else None
        if isinstance(row, Row) and row.info.volume_key != volume_key:
            raise ArchiveError(f"{self.path}: keys {volume_key!r} and {row.info.volume_key!r} collide; rename one")
        return row

    def _all_rows(self) -> list[Row | DamagedRowError]:
        return [self._with_codes(row) for row in list(read_rows(self._database, self.model))]

    def _with_codes(self, row: Row | DamagedRowError) -> Row | DamagedRowError:
        try:
            if isinstance(row, Row):
                read_blobs(self._database, row, self.model)
        except DamagedRowError as error:
            return error
        return row

    def _commit(self, header: Header, old: Row | DamagedRowError | None, new: Row | DamagedRowError | None) -> None:
        """Bring the header up to date and commit. What a damaged row once added is unknown, so all is counted anew."""
        if isinstance(old, DamagedRowError) or isinstance(new, DamagedRowError):
            self._store(self._recounted(header))
            return
        volumes = slices = content = 0
        for row, sign in ((old, -1), (new, 1)):
            if row is not None:
                volumes += sign
                slices += sign * row.slices
                content += sign * int.from_bytes(row.checksum)
        self._store(header.changed(volumes=volumes, slices=slices, content=content))

    def _recounted(self, header: Header) -> Header:
        rows = list(read_rows(self._database, self.model))
        whole = [row for row in rows if isinstance(row, Row)]
        return replace(header, volumes=0, slices=0, content=0).changed(
            volumes=len(rows),
            slices=sum(row.slices for row in whole),
            content=sum(int.from_bytes(row.checksum) for row in whole),
        )

    def _store(self, header: Header) -> None:
        store_header(self._database, header)
        self._database.execute("COMMIT")
        if header.generation > acknowledged_generation(self.path):
            acknowledge(self.path, header.generation)


def _prepare(path: Path, model: ModelIdentity | None) -> sqlite3.Connection:
    """Connect; make, migrate or check the tables."""
    file = path / DATABASE
    with explain(path, writing=True):
        if not file.exists():
            make_private(file)
        database = connect_writer(file)
        try:
            if model is not None and is_blank(database):
                create_tables(database, model)
            migrate(database, path)
            header = load_header(database, path)
            if model is not None:
                header.model.require(model, path)
            if database.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
                raise ArchiveError(
                    f"{path}: the file is damaged; restore a copy, or index the sources into a new archive"
                )
        except BaseException:
            database.close()
            raise
    return database


def _folder_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
