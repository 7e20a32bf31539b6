"""One writer at a time, and a mark of the last acknowledged change.

Knows nothing about SQLite. The lock belongs to the process: when it dies, however it dies, the lock is free.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from zlib import crc32

from diptych.errors import ArchiveLockedError

LOCK = "writer.lock"
MARK = "acknowledged"


class WriterLock:
    """Held from `acquire` to `release`; the file keeps the holder's pid for the message others get."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock or say who has it. A file left by a dead process holds nothing."""
        descriptor = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise ArchiveLockedError(
                f"{self.folder}: process {holder} is writing to this archive; wait until it is done, or stop it"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


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
