"""`AuditLog`: who searched, viewed, exported, uploaded, changed, deleted or signed in; append-only and hash-chained.

    ARCHIVE/audit/audit-000001.jsonl   one event per line; each line carries the hash of all lines before it
    ARCHIVE/audit/head                 number and hash of the last event, so that a missing end is noticed too

Whoever can write the folder can write a new chain: note the head elsewhere (`diptych audit verify` prints it), or send
events to a repository as they happen. Several processes may write. Knows files; DICOM's form is `audit_messages.py`.
"""

from __future__ import annotations

import fcntl
import json
import os
import queue
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from diptych.errors import ArchiveError
from diptych.files import open_regular, parse_json, write_bytes

FOLDER, HEAD = "audit", "head"
MAX_FILE = 16 << 20
"""Bytes after which the next event begins a new file."""
WAITING = 10_000
"""Events that may wait for the disk; whoever brings more waits with them."""
START = "0" * 64


@dataclass(frozen=True)
class AuditEvent:
    """What happened, in words that do not change."""

    event: str
    """search, view, export, upload, change, delete, sign in, sign out, refused, start, stop."""
    who: str
    what: Mapping[str, Any] = field(default_factory=dict)
    """Keys of volumes and names of routes; never a name, an image or a secret."""
    outcome: str = "done"
    time: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="milliseconds"))


@dataclass(frozen=True)
class AuditVerification:
    """What a check of the log found."""

    events: int
    head: str
    problems: tuple[str, ...]


class AuditLog:
    """The log of one archive. Events are on the disk when `flush` returns, and a moment later without it."""

    def __init__(self, archive: Path) -> None:
        self.folder = archive / FOLDER
        self.problem: str | None = None
        """Why the last events could not be written, for whoever watches."""
        self._waiting: queue.Queue[AuditEvent] = queue.Queue(WAITING)
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._known: tuple[Path, int, int, str] | None = None

    def record(self, event: str, who: str, what: Mapping[str, Any] | None = None, *, outcome: str = "done") -> None:
        """Note an event; written in order by a thread of its own, so that nobody waits for the disk."""
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="diptych-audit", daemon=True)
                self._thread.start()
        self._waiting.put(AuditEvent(event, who, dict(what or {}), outcome))

    def flush(self) -> None:
        """Wait until everything recorded so far is on the disk."""
        self._waiting.join()

    def append(self, *events: AuditEvent) -> None:
        """Write events now, behind whatever any process has written."""
        with self.held():
            number, chain = self._tail()
            file = self._current()
            lines = []
            for event in events:
                number += 1
                body = json.dumps({"n": number, **asdict(event)}, sort_keys=True)
                chain = next_hash(chain, body)
                lines.append(f"{chain} {body}\n")
            with open(os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a", encoding="utf-8") as log:
                log.writelines(lines)
                log.flush()
                os.fsync(log.fileno())
            self._known = file, file.stat().st_size, number, chain
            write_bytes(self.folder / HEAD, f"{number} {chain}\n".encode(), private=True)

    def read(self) -> Iterator[dict[str, Any]]:
        """Every event, oldest first, unchecked."""
        for file in self.files():
            for _, body in _lines(file):
                yield parse_json(body)

    def files(self) -> list[Path]:
        return sorted(self.folder.glob("audit-*.jsonl"))

    def verify(self) -> AuditVerification:
        """Find lines that were changed, taken out, put in or moved."""
        problems, number, chain, head = [], 0, START, self._head()
        whole = head is None
        for file in self.files():
            for place, (given, body) in enumerate(_lines(file), start=1):
                where = f"{file.name}, line {place}"
                if given != next_hash(chain, body):
                    problems.append(f"{where}: does not follow from what stands before it: changed, moved or missing")
                found = _number(body)
                if found != number + 1:
                    problems.append(f"{where}: event {found} follows event {number}")
                number, chain = found, given
                whole |= head == (number, chain)  # a kill may leave the head behind the log, never ahead of it
        if head is not None and not whole:
            problems.append(f"the log ends at event {number}, its head says {head[0]}: the end was cut off or changed")
        if head is None and number:
            problems.append("the head is gone: whether the end is there cannot be told")
        return AuditVerification(number, f"{number} {chain}", tuple(problems))

    def _run(self) -> None:
        while True:
            events = [self._waiting.get()]
            while len(events) < WAITING:
                try:
                    events.append(self._waiting.get_nowait())
                except queue.Empty:
                    break
            try:
                self.append(*events)
                self.problem = None
            except (OSError, ArchiveError) as error:
                self.problem = f"the audit log cannot be written ({error})"
            for _ in events:
                self._waiting.task_done()

    def _tail(self) -> tuple[int, str]:
        """Where the chain stands; the last line is believed over the head, which a kill may have left behind."""
        files = self.files()
        if self._known is not None and files and self._known[:2] == (files[-1], files[-1].stat().st_size):
            return self._known[2:]
        for file in reversed(files):
            for given, body in deque(_lines(file), maxlen=1):
                return _number(body), given
        return 0, START

    def _current(self) -> Path:
        files = self.files()
        if files and files[-1].stat().st_size < MAX_FILE:
            return files[-1]
        return self.folder / f"audit-{len(files) + 1:06d}.jsonl"

    def _head(self) -> tuple[int, str] | None:
        try:
            number, chain = (self.folder / HEAD).read_text(encoding="ascii").split()
            return int(number), chain
        except (OSError, ValueError):
            return None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nobody writes while this block runs."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        lock = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def holds_head(log: AuditLog, head: str) -> bool:
    """Whether an event that was the last one once is still in the log, with the same hash."""
    number, _, chain = head.strip().partition(" ")
    return any(given == chain and str(_number(body)) == number for file in log.files() for given, body in _lines(file))


def next_hash(chain: str, body: str) -> str:
    """The hash of everything up to and with this line."""
    return sha256(f"{chain} {body}".encode()).hexdigest()


def _lines(file: Path) -> Iterator[tuple[str, str]]:
    with open_regular(file) as log:
        for line in log:
            given, _, body = line.decode(errors="replace").rstrip("\n").partition(" ")
            yield given, body


def _number(body: str) -> int:
    try:
        return int(parse_json(body)["n"])
    except (ValueError, KeyError, TypeError):
        return -1
