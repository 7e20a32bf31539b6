"""The ledger: what became of every study, on the disk before anybody relies on it. One SQLite file, no patient in it.

    coming   →  being fetched, or being sent to us
    done     →  in the archive, under its key
    refused  →  cannot be taken in as it is; comes again when the study changes
    waiting  →  something around it failed (network, disk, a locked archive): comes again by itself

A study is known by its pseudonym and by a fingerprint of what it holds. Whoever begins with a study counts that first:
one that ends the whole program three times is refused, not tried for ever. Knows SQLite; no DICOM, no archive.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from diptych.errors import InputError
from diptych.volumes.layout import one_line

State = Literal["coming", "done", "refused", "waiting"]
FILE = "ledger.sqlite"
MOST_ATTEMPTS = 3
"""How often a study is begun without an end before it is refused."""
LONGEST_PAUSE = 600.0
SCHEMA = """
CREATE TABLE IF NOT EXISTS studies (study TEXT PRIMARY KEY, server TEXT NOT NULL, state TEXT NOT NULL,
    fingerprint TEXT NOT NULL, begun INTEGER NOT NULL, failures INTEGER NOT NULL, reason TEXT NOT NULL,
    volume_key TEXT NOT NULL, changed REAL NOT NULL);
CREATE TABLE IF NOT EXISTS series (study TEXT NOT NULL, key TEXT NOT NULL, series TEXT NOT NULL,
    PRIMARY KEY (study, key));
CREATE TABLE IF NOT EXISTS aside (study TEXT NOT NULL, series TEXT NOT NULL, reason TEXT NOT NULL,
    instances INTEGER NOT NULL, PRIMARY KEY (study, series, reason));
CREATE TABLE IF NOT EXISTS cursors (server TEXT PRIMARY KEY, position INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS sent (uid TEXT PRIMARY KEY, study TEXT NOT NULL, kind TEXT NOT NULL, server TEXT NOT NULL,
    day REAL NOT NULL);
"""


@dataclass(frozen=True)
class StudyRow:
    """What is known of a study."""

    study: str
    server: str
    state: State
    fingerprint: str
    begun: int
    """How often it was begun since it last came to an end."""
    failures: int
    reason: str
    volume_key: str
    changed: float
    """Seconds since 1970."""

    @property
    def way_out(self) -> str:
        """What a person can do about it."""
        if self.state == "waiting":
            return "comes again by itself; mend what the reason names"
        return (
            "mend the study in the PACS, then it comes again; or diptych pacs fetch --again"
            if self.state == "refused"
            else ""
        )


class Ledger:
    """The file; safe to use from several threads and processes."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self._lock = threading.Lock()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._database = sqlite3.connect(self.path, timeout=60, check_same_thread=False, isolation_level=None)
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = FULL")
            self._database.executescript(SCHEMA)
        except (OSError, sqlite3.Error) as error:
            raise InputError(f"{one_line(self.path)}: the ledger cannot be used ({error}); mend the disk") from None

    def close(self) -> None:
        """Let the file go."""
        self._database.close()

    def study(self, study: str) -> StudyRow | None:
        """One study, if it was ever seen."""
        with self._transaction() as database:
            row = database.execute("SELECT * FROM studies WHERE study = ?", (study,)).fetchone()
        return None if row is None else StudyRow(*row)

    def studies(self, *states: State) -> list[StudyRow]:
        """All studies, or those in some states, oldest change first."""
        with self._transaction() as database:
            rows = database.execute("SELECT * FROM studies ORDER BY changed").fetchall()
        return [row for row in (StudyRow(*one) for one in rows) if not states or row.state in states]

    def is_settled(self, study: str, fingerprint: str) -> bool:
        """Whether nothing is left to do for a study as it is now."""
        row = self.study(study)
        return row is not None and row.state in ("done", "refused") and row.fingerprint == fingerprint

    def may_try(self, study: str, *, now: float | None = None) -> bool:
        """Whether a study that waits has waited long enough: pauses double from five seconds to ten minutes."""
        row = self.study(study)
        if row is None or row.state != "waiting":
            return True
        pause = min(LONGEST_PAUSE, 5.0 * 2 ** min(row.failures - 1, 20))
        return bool((time.time() if now is None else now) >= row.changed + pause)

    def begin(self, study: str, server: str, fingerprint: str) -> bool:
        """Note that a study is begun; False, and refused, where it has ended the program too often."""
        with self._transaction() as database:
            row = database.execute("SELECT begun, fingerprint FROM studies WHERE study = ?", (study,)).fetchone()
            begun = 1 if row is None or row[1] != fingerprint else row[0] + 1
            poison = begun > MOST_ATTEMPTS
            reason = f"ended the program {MOST_ATTEMPTS} times, perhaps for lack of memory" if poison else ""
            database.execute(
                "INSERT INTO studies VALUES (?, ?, ?, ?, ?, 0, ?, '', ?) ON CONFLICT (study) DO UPDATE SET "
                "server = excluded.server, state = excluded.state, fingerprint = excluded.fingerprint, "
                "begun = excluded.begun, reason = excluded.reason, changed = excluded.changed",
                (study, server, "refused" if poison else "coming", fingerprint, begun, reason, time.time()),
            )
        return not poison

    def arrived(self, study: str, server: str) -> None:
        """Note that something of a study was sent to us."""
        with self._transaction() as database:
            database.execute(
                "INSERT INTO studies VALUES (?, ?, 'coming', '', 0, 0, '', '', ?) ON CONFLICT (study) DO UPDATE SET "
                "state = 'coming', begun = 0, changed = excluded.changed",
                (study, server, time.time()),
            )

    def done(self, study: str, volume_key: str, series: Mapping[str, str]) -> None:
        """Note that a study is in the archive; `series` are keys of intake with pseudonyms of series."""
        with self._transaction() as database:
            database.execute(
                "UPDATE studies SET state = 'done', begun = 0, failures = 0, reason = '', volume_key = ?, changed = ? "
                "WHERE study = ?",
                (volume_key, time.time(), study),
            )
            database.execute("DELETE FROM series WHERE study = ?", (study,))
            rows = [(study, key, name) for key, name in series.items()]
            database.executemany("INSERT INTO series VALUES (?, ?, ?)", rows)

    def failed(self, study: str, reason: str, *, state: Literal["refused", "waiting"]) -> None:
        """Note why a study did not come in."""
        with self._transaction() as database:
            database.execute(
                "UPDATE studies SET state = ?, begun = 0, failures = failures + 1, reason = ?, changed = ? "
                "WHERE study = ?",
                (state, one_line(reason)[:500], time.time(), study),
            )

    def forget_failures(self) -> int:
        """Let refused and waiting studies come again; how many there were."""
        with self._transaction() as database:
            done = database.execute(
                "UPDATE studies SET fingerprint = '', begun = 0, failures = 0, state = 'waiting', changed = 0 "
                "WHERE state IN ('refused', 'waiting')"
            )
            database.execute("DELETE FROM cursors")
        return done.rowcount

    def set_aside(self, study: str, series: str, reason: str) -> None:
        """Count an instance that stayed outside."""
        with self._transaction() as database:
            database.execute(
                "INSERT INTO aside VALUES (?, ?, ?, 1) ON CONFLICT DO UPDATE SET instances = instances + 1",
                (study, series, reason[:200]),
            )

    def aside(self) -> list[tuple[str, str, str, int]]:
        """Study, series, reason and number of what stayed outside."""
        with self._transaction() as database:
            return database.execute("SELECT * FROM aside ORDER BY study, series").fetchall()

    def study_of(self, volume_key: str) -> StudyRow | None:
        """The study that a volume of the archive came from."""
        with self._transaction() as database:
            row = database.execute("SELECT * FROM studies WHERE volume_key = ?", (volume_key,)).fetchone()
        return None if row is None else StudyRow(*row)

    def series_of(self, study: str) -> dict[str, str]:
        """Keys of intake with pseudonyms of series."""
        with self._transaction() as database:
            return dict(database.execute("SELECT key, series FROM series WHERE study = ?", (study,)).fetchall())

    def cursor(self, server: str) -> int:
        """How far a server's feed of changes was followed."""
        with self._transaction() as database:
            row = database.execute("SELECT position FROM cursors WHERE server = ?", (server,)).fetchone()
        return 0 if row is None else int(row[0])

    def move_cursor(self, server: str, position: int) -> None:
        """Note that everything before is settled."""
        with self._transaction() as database:
            database.execute("INSERT OR REPLACE INTO cursors VALUES (?, ?)", (server, position))

    def note_sent(self, uids: Mapping[str, str], study: str, server: str) -> None:
        """Note what was sent back: UIDs of our own making, with their kind."""
        with self._transaction() as database:
            rows = [(uid, study, kind, server, time.time()) for uid, kind in uids.items()]
            database.executemany("INSERT OR REPLACE INTO sent VALUES (?, ?, ?, ?, ?)", rows)

    def sent(self, study: str) -> dict[str, str]:
        """UIDs of what was sent for a study, with their kind."""
        with self._transaction() as database:
            return dict(database.execute("SELECT uid, kind FROM sent WHERE study = ?", (study,)).fetchall())

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                self._database.execute("BEGIN IMMEDIATE")
                try:
                    yield self._database
                    self._database.execute("COMMIT")
                except BaseException:
                    if self._database.in_transaction:
                        self._database.execute("ROLLBACK")
                    raise
            except sqlite3.Error as error:
                raise OSError(0, f"the ledger cannot be written ({error})", str(self.path)) from None
