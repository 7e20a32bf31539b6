"""Files on disk: written whole or not at all, known by their SHA-256, one writer at a time, opened only if regular.

    with replacing(path) as part: ...          a file that appears whole, in place of an older one
    with replacing_folder(path) as part: ...   the same for a folder
    with only_writer(folder): ...              the folder's lock

What is being written has a hidden name that starts with `.part-`, so that whatever a kill leaves behind is known as
rubbish (`remove_unfinished`). Failures of the disk stay `OSError`: the caller knows what it was writing and what the
way out is. Knows nothing about what is in the files.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import platform
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from io import BufferedReader
from pathlib import Path
from typing import Any

from diptych.errors import InputError

PART = ".part-"
"""How the name of an unfinished file or folder starts; its ending stays, since writers of images go by it."""
LOCK = ".lock"


@contextmanager
def replacing(path: Path, *, private: bool = False) -> Iterator[Path]:
    """Give a hidden path beside `path` to write to; it is flushed to the disk and takes the place of `path` at the end.

    When the block fails, nothing is left and `path` is as it was. `private` makes a file that only its owner reads.
    """
    part = _part_of(path)
    try:
        if private:
            os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        yield part
        flush(part)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def replacing_folder(path: Path, *, private: bool = False) -> Iterator[Path]:
    """Give a hidden folder beside `path` to fill; it takes the place of `path` at the end, or is gone on failure."""
    with hidden_folder(path, private=private) as part:
        yield part
        move_into_place(part, path)


@contextmanager
def hidden_folder(path: Path, *, private: bool = False) -> Iterator[Path]:
    """Make a hidden folder beside `path`; whatever was not moved elsewhere is deleted at the end."""
    part = _part_of(path)
    try:
        part.mkdir(parents=True, mode=0o700 if private else 0o777)
        yield part
    finally:
        shutil.rmtree(part, ignore_errors=True)


def move_into_place(part: Path, path: Path) -> None:
    """Flush a finished folder to the disk and rename it to `path`.

    A folder cannot be replaced in one step: an older one steps aside first. A kill between the two steps leaves it
    under a hidden name, and no folder at `path`.
    """
    for inside in sorted(part.rglob("*")):
        flush(inside)
    flush(part)
    aside = _part_of(path)
    if path.exists():
        os.replace(path, aside)
    os.replace(part, path)
    flush(path.parent)  # a name is on the disk only when the folder that lists it is
    shutil.rmtree(aside, ignore_errors=True)


def write_bytes(path: Path, data: bytes, *, private: bool = False) -> None:
    """Replace `path` by `data`, all or nothing."""
    with replacing(path, private=private) as part:
        part.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Replace `path` by `text` in UTF-8, all or nothing."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Replace `path` by `value` as JSON, all or nothing; what JSON does not know is written as its text."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, default=str) + "\n")


def append_line(path: Path, line: str) -> None:
    """Add one line to a log; it is on the disk when this returns."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())


def unfinished(folder: Path) -> list[Path]:
    """What a killed process left half written in `folder`; only its one writer may ask, others may still be writing."""
    return sorted(folder.glob(f"{PART}*"))


def remove_unfinished(folder: Path) -> None:
    """Delete what a killed process left half written in `folder`."""
    for left in unfinished(folder):
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def flush(path: Path) -> None:
    """Have the operating system put a file, or a folder's list of names, on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_regular(path: Path) -> BufferedReader:
    """Open a file for reading, and only if it is a file: a pipe would wait for ever, a device may never end.

    Raises:
        OSError: it is not there, may not be read, or is a pipe, socket, device or folder.
    """
    # Without O_NONBLOCK, opening a pipe already waits for its other end; for a regular file it changes nothing.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: Path, *, limit: int) -> bytes:
    """All bytes of a regular file of at most `limit` bytes.

    Raises:
        OSError: it cannot be read, is no regular file, or is larger.
    """
    with open_regular(path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"larger than {limit} bytes", str(path))
    return data


def parse_json(text: str | bytes) -> Any:
    """What `json.loads` makes of a text from anywhere; whatever is wrong with it is a `ValueError`, as is depth.

    >>> parse_json("[" * 100_000)
    Traceback (most recent call last):
    ...
    ValueError: nested too deep
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


def require_regular(path: Path) -> None:
    """Refuse, as `OSError`, what a library that opens files itself would wait on for ever."""
    open_regular(path).close()


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class FolderLock:
    """A lock file that keeps its holder's process id; the lock goes with the process, however that ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def acquire(self) -> str | None:
        """Take the lock, or return who has it. A file left by a dead process holds nothing."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            os.close(descriptor)
            return holder or "unknown"
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        return None

    def release(self) -> None:
        """Let others have the lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Hold the folder's lock while the block runs."""
    lock = FolderLock(folder / LOCK)
    holder = lock.acquire()
    if holder is not None:
        raise InputError(f"{folder}: another run is writing here (process {holder}); wait until it is done")
    try:
        yield
    finally:
        lock.release()


def program_versions(*packages: str) -> dict[str, str]:
    """Versions of Python, Diptych and `packages`, for whoever wants to know later what wrote a file."""
    versions = {"python": platform.python_version()}
    for name in ("diptych", *packages):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed as a package"
    return versions


def _part_of(path: Path) -> Path:
    return path.with_name(f"{PART}{secrets.token_hex(4)}-{path.name}")
