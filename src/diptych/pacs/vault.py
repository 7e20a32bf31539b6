"""The vault: the secret key that makes pseudonyms, and the way back from a pseudonym to a patient. Kept apart.

    VAULT/pseudonyms.key     32 random bytes; with them the same person always gets the same pseudonym
    VAULT/way-back.sqlite    pseudonym to PatientID, StudyInstanceUID and SeriesInstanceUID
    VAULT/quarantine/        images with text burnt into their pixels, never indexed

De-identification needs the key only. The way back is written as studies come in, and read only to send results, to open
the hospital's viewer and to look for a patient's older studies. Lose the key, and later studies of the same people get
other pseudonyms; lose the way back, and nothing can be sent. Knows no DICOM.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from diptych.errors import InputError
from diptych.files import read_regular, write_bytes
from diptych.volumes.layout import one_line

KEY, WAY_BACK, QUARANTINE = "pseudonyms.key", "way-back.sqlite", "quarantine"
MAX_SHIFT_DAYS = 365
SCHEMA = """
CREATE TABLE IF NOT EXISTS people (person TEXT PRIMARY KEY, patient_id TEXT NOT NULL, issuer TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS studies (study TEXT PRIMARY KEY, person TEXT NOT NULL, server TEXT NOT NULL,
    uid TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS series (series TEXT PRIMARY KEY, study TEXT NOT NULL, uid TEXT NOT NULL);
"""


@dataclass(frozen=True)
class Original:
    """Who and what a study is in the hospital."""

    server: str
    study_uid: str
    patient_id: str
    issuer: str


class Pseudonyms:
    """What names become, under a secret key; the same name always becomes the same."""

    def __init__(self, key: bytes) -> None:
        if len(key) != 32:
            raise InputError(f"a key of {len(key)} bytes makes no pseudonyms; restore {KEY}, which has 32")
        self._key = key

    def person(self, patient_id: str, issuer: str = "") -> str:
        """Ten hexadecimal digits that stand for a person."""
        return self._digest("person", issuer, patient_id).hex()[:10]

    def study(self, uid: str) -> str:
        """Twenty hexadecimal digits that stand for a study."""
        return self._digest("study", uid).hex()[:20]

    def series(self, uid: str) -> str:
        return self._digest("series", uid).hex()[:20]

    def instance(self, uid: str) -> str:
        return self._digest("instance", uid).hex()[:20]

    def uid(self, original: str) -> str:
        """Another UID in place of one: 2.25 and a number of 128 bits."""
        return f"2.25.{int.from_bytes(self._digest('uid', original)[:16], 'big')}"

    def days(self, person: str) -> int:
        """By how many days all dates of a person are moved: 1 to 365, back or forth."""
        number = int.from_bytes(self._digest("days", person)[:8], "big")
        days = 1 + number % MAX_SHIFT_DAYS
        return days if number >> 63 else -days

    def volume_key(self, person: str, study: str) -> str:
        """The archive's key of a study, from which everybody sees whose studies belong together."""
        return f"Intake-{person}-{study[:6]}"

    def _digest(self, *parts: str) -> bytes:
        text = "\0".join(part.replace("\0", " ") for part in parts)
        return hashlib.blake2b(
            text.encode(errors="replace"), key=self._key, digest_size=32, person=b"diptych-pacs"
        ).digest()


class Vault:
    """The folder; made on first use, for its owner only."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._noted: set[tuple[str, str]] = set()

    @property
    def pseudonyms(self) -> Pseudonyms:
        """The key, made on first use."""
        path = self.folder / KEY
        try:
            self._make()
            if not path.exists():
                if (self.folder / WAY_BACK).exists():
                    raise InputError(f"{one_line(path)}: the key is gone but studies were named with it; restore it")
                write_bytes(path, secrets.token_bytes(32), private=True)
            return Pseudonyms(read_regular(path, limit=64))
        except OSError as error:
            raise InputError(f"{one_line(self.folder)}: the vault cannot be used ({error.strerror or error})") from None

    @property
    def quarantine(self) -> Path:
        """Where images wait that may name a patient in their pixels."""
        return self.folder / QUARANTINE

    def note(self, person: str, study: str, series: str, original: Original, series_uid: str) -> None:
        """Remember the way back; on the disk when this returns."""
        if (study, series) in self._noted:
            return
        with self._open() as database:
            database.execute(
                "INSERT OR REPLACE INTO people VALUES (?, ?, ?)", (person, original.patient_id, original.issuer)
            )
            database.execute(
                "INSERT OR REPLACE INTO studies VALUES (?, ?, ?, ?)",
                (study, person, original.server, original.study_uid),
            )
            database.execute("INSERT OR REPLACE INTO series VALUES (?, ?, ?)", (series, study, series_uid))
        self._noted.add((study, series))

    def original(self, study: str) -> Original:
        """Who a study is of.

        Raises:
            InputError: this vault does not know the study.
        """
        with self._open() as database:
            row = database.execute(
                "SELECT server, uid, patient_id, issuer FROM studies JOIN people USING (person) WHERE study = ?",
                (study,),
            ).fetchone()
        if row is None:
            raise InputError(f"study {study}: the vault {one_line(self.folder)} does not know it; restore the vault")
        return Original(*row)

    def series_uid(self, series: str) -> str:
        """The hospital's SeriesInstanceUID of a series."""
        with self._open() as database:
            row = database.execute("SELECT uid FROM series WHERE series = ?", (series,)).fetchone()
        if row is None:
            raise InputError(f"series {series}: the vault {one_line(self.folder)} does not know it; restore the vault")
        return str(row[0])

    def _make(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.folder.stat().st_mode & 0o077:
            raise InputError(f"{one_line(self.folder)}: others may look into the vault; chmod 700 it")

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        path = self.folder / WAY_BACK
        try:
            self._make()
            if not path.exists():
                os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
            database = sqlite3.connect(path, timeout=30)
            try:
                database.executescript(SCHEMA)
                with database:
                    yield database
            finally:
                database.close()
        except (sqlite3.Error, OSError) as error:
            raise InputError(f"{one_line(path)}: the way back cannot be used ({error}); restore it") from None
