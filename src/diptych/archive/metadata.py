"""What a table says of patients beyond their images, and dates that no longer tell the day.

The table is a CSV file with a `key` column (volume key or patient key) and any of `COLUMNS`, or the `participants.tsv`
of a BIDS data set. Who is healthy gets the tag `HEALTHY`: lesion-free without a label map. Knows nothing about
archives but where the secret of the date shift is.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import replace
from datetime import date, timedelta
from hashlib import blake2b
from io import StringIO, TextIOWrapper
from pathlib import Path

from diptych.archive.pseudonyms import archive_secret
from diptych.archive.records import VolumeInfo
from diptych.errors import ArchiveError, InputError
from diptych.files import open_regular

COLUMNS = ("study_date", "sex", "age", "source", "tags", "healthy")
"""`study_date` as YYYY-MM-DD, `sex` as F, M or O, `age` in years, `tags` with `;` between them, `healthy` as yes or no;
empty is unknown."""
HEALTHY = "healthy"
"""Tag of people without a lesion; their slices are comparators."""
YES, NO = ("yes", "true", "1", "y"), ("no", "false", "0", "n", "")
CONTROLS = ("control", "controls", "healthy", "hc", "healthy control", "healthy controls")
"""What BIDS tables call healthy people in their columns `group` and `diagnosis`."""

MAX_SHIFT_DAYS = 365


class MetadataTable:
    """Rows of a CSV file by key."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.rows = {} if path is None else _read_rows(path)

    def describe(self, info: VolumeInfo, shift: DateShift, *, names: Iterable[str] = ()) -> VolumeInfo:
        """`info` with what the table knows of this volume or, failing that, of its patient.

        `names` are what the table may call them besides the keys of the archive.
        """
        rows = (self.rows.get(name) for name in (*names, info.volume_key, info.patient_key))
        if not (row := next(filter(None, rows), None)):
            return info
        values = {name: text for name in COLUMNS if (text := (row.get(name) or "").strip())}
        try:
            described = replace(
                info,
                study_date=shift.apply(values["study_date"], info.patient_key) if "study_date" in values else None,
                sex=values.get("sex", info.sex),
                age=float(values["age"]) if "age" in values else info.age,
                source=values.get("source", info.source),
                tags=_tags(info, values),
            )
            described.check()
        except (ValueError, ArchiveError) as error:
            raise InputError(f"{self.path}: row {row['key']}: {error}; correct the table") from None
        return described


def _tags(info: VolumeInfo, values: dict[str, str]) -> tuple[str, ...]:
    """The volume's own tags, those of the table, and that of healthy people."""
    if (healthy := values.get("healthy", "").lower()) not in (*YES, *NO):
        raise ValueError(f"healthy {healthy!r} is neither yes nor no")
    given = {tag.strip() for tag in values.get("tags", "").split(";")}
    return tuple(sorted({*info.tags, *given, *({HEALTHY} if healthy in YES else ())} - {""}))


class DateShift:
    """Moves all dates of a patient by the same secret number of days, so that intervals between them stay true."""

    def __init__(self, secret: bytes) -> None:
        self.secret = secret

    @classmethod
    def of_archive(cls, archive: Path) -> DateShift:
        """The shift of this archive; its secret is made on first use and is never exported."""
        return cls(archive_secret(archive))

    def apply(self, day: str, patient_key: str) -> str:
        """Shift an ISO date by 1 to 365 days back or forth."""
        number = int.from_bytes(blake2b(patient_key.encode(), key=self.secret, digest_size=8).digest())
        days = 1 + number % MAX_SHIFT_DAYS
        return (date.fromisoformat(day) + timedelta(days=days if number >> 63 else -days)).isoformat()


def _read_rows(path: Path) -> dict[str, dict[str, str]]:
    bids = path.suffix.lower() == ".tsv"
    try:
        with TextIOWrapper(open_regular(path), encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(_as_our_table(file) if bids else file, restval="")
            columns = reader.fieldnames or []
            unknown = [name for name in columns if name not in ("key", *COLUMNS)]
            if unknown or "key" not in columns:
                what = f"column {unknown[0]!r} is not known" if unknown else "has no column 'key'"
                raise InputError(f"{path}: {what}; columns are key, {', '.join(COLUMNS)}")
            rows = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot be read as a CSV table ({error}); save it as UTF-8 CSV") from None
    by_key: dict[str, dict[str, str]] = {}
    for number, row in enumerate(rows, start=2):
        if None in row:
            raise InputError(f"{path}: line {number} has more values than columns; quote values that hold commas")
        if row["key"] in by_key:
            raise InputError(f"{path}: line {number} repeats key {row['key']!r}; keep one line per key")
        by_key[row["key"]] = row
    return by_key


def _as_our_table(file: Iterable[str]) -> list[str]:
    """A BIDS table of participants as lines of our own; columns that we do not know are left out."""
    reader = csv.DictReader(file, delimiter="\t", restval="")
    if "participant_id" not in (reader.fieldnames or []):
        raise csv.Error("a .tsv table needs the column participant_id")
    lines = StringIO()
    writer = csv.DictWriter(lines, ["key", "sex", "age", "healthy"])
    writer.writeheader()
    for row in reader:
        known = {name.lower(): (text or "").strip() for name, text in row.items() if isinstance(name, str)}
        known = {name: "" if text.lower() in ("n/a", "nan", "unknown") else text for name, text in known.items()}
        about = {known.get(name, "").lower() for name in ("group", "diagnosis")}
        key = known["participant_id"]
        writer.writerow(
            {
                "key": key if key.startswith("sub-") else f"sub-{key}",
                "sex": known.get("sex", known.get("gender", ""))[:1].upper(),
                "age": known.get("age", ""),
                "healthy": known.get("healthy", "") or ("yes" if about & set(CONTROLS) else ""),
            }
        )
    return lines.getvalue().splitlines()
