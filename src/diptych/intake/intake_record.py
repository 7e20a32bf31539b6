"""`IntakeRecord`: everything that intake did to one patient, and all that is needed to go back; `intake.json` beside
them.

De-identified: a series is known by its key within the study, a person by a pseudonym. No name, date, UID, path or
description is kept; of a description only the words that decided which sequence it is appear, in reasons.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from diptych.errors import InputError
from diptych.files import write_json
from diptych.intake.resampling import Affine, Grid
from diptych.volumes.layout import one_line

RECORD, SHEET = "intake.json", "intake.png"
FORMAT = 1
LARGEST = 8 << 20


@dataclass(frozen=True)
class SeriesRecord:
    """One series that was used: its own grid and how it lies in the atlas."""

    key: str
    channel: str
    reasons: tuple[str, ...]
    shape: tuple[int, int, int]
    affine: tuple[tuple[float, ...], ...]
    """Index to RAS+ millimetres of the scanner."""
    transform: tuple[tuple[float, ...], ...]
    """Position in the atlas to position in the scanner, RAS+ millimetres."""
    to_reference: dict[str, Any] = field(default_factory=dict)
    """How the registration went: start, mutual information, checks."""
    remarks: tuple[str, ...] = ()
    scale: float = 1.0
    """What the written voxels must be divided by to have the scanner's units."""

    @property
    def grid(self) -> Grid:
        """Where its voxels lie in the scanner."""
        return Grid(self.shape, np.array(self.affine, dtype=np.float64))

    @property
    def matrix(self) -> Affine:
        """`transform` as a matrix."""
        return np.array(self.transform, dtype=np.float64)


@dataclass(frozen=True)
class IntakeRecord:
    """What became of one patient."""

    patient_key: str
    folder: Path
    """Where the patient lies now: images, record and picture."""
    series: tuple[SeriesRecord, ...]
    left: tuple[dict[str, str], ...]
    """Series that were not used: key and reason."""
    reference: str
    """The channel that the others were registered to and the skull was stripped on."""
    atlas: dict[str, Any]
    """How the registration to the atlas went."""
    brain_ml: float
    dropped_planes: tuple[int, ...] = ()
    """Planes emptied because a channel does not cover them."""
    warnings: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    """Processor time of each step."""
    versions: dict[str, str] = field(default_factory=dict)
    inputs: str = ""
    """Digest of what was read, so that a second run knows that nothing has changed."""
    notice: str = "Research use only, not a medical device."

    @property
    def channels(self) -> tuple[str, ...]:
        """Channels that the patient has."""
        return tuple(one.channel for one in self.series)

    def find(self, name: str) -> SeriesRecord:
        """A used series by its key or its channel."""
        for one in self.series:
            if name.lower() in (one.key.lower(), one.channel):
                return one
        known = ", ".join(f"{one.key} ({one.channel})" for one in self.series)
        raise InputError(f"series {one_line(name)[:60]!r}: was not used for this patient; there are {known}")


def matrix_rows(matrix: Affine) -> tuple[tuple[float, ...], ...]:
    """A matrix as JSON holds it."""
    return tuple(tuple(float(value) for value in row) for row in matrix)


def write_record(record: IntakeRecord, folder: Path) -> None:
    """Write `intake.json`; the folder itself is not named in it."""
    values = {"format": FORMAT, **asdict(record)}
    del values["folder"]
    write_json(folder / RECORD, values)


def read_record(folder: Path | str) -> IntakeRecord:
    """Read the record of a patient's folder.

    Raises:
        InputError: there is none, or it is damaged or newer than this program.
    """
    path = Path(folder) / RECORD
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError("too large")
        values = json.loads(path.read_text(encoding="utf-8"))
        if (found := values.pop("format")) != FORMAT:
            raise InputError(f"{one_line(path)}: format {found}, this program knows {FORMAT}; update Diptych")
        series = tuple(SeriesRecord(**_tuples(one)) for one in values.pop("series"))
        record = IntakeRecord(folder=Path(folder), series=series, **_tuples(values))
        _check(record)
    except InputError:
        raise
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InputError(f"{one_line(path)}: no record of intake, or damaged ({type(error).__name__})") from None
    return record


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    """Lists back to tuples, as the dataclasses have them."""
    return {name: _tuple(value) for name, value in values.items()}


def _tuple(value: Any) -> Any:
    return tuple(_tuple(one) for one in value) if isinstance(value, list) else value


def _check(record: IntakeRecord) -> None:
    for one in record.series:
        for matrix in (one.grid.affine, one.matrix):
            if matrix.shape != (4, 4) or not np.isfinite(matrix).all() or abs(np.linalg.det(matrix)) < 1e-6:
                raise ValueError("a matrix makes no sense")
        if len(one.shape) != 3 or not all(isinstance(n, int) and 0 < n <= 4096 for n in one.shape):
            raise ValueError("a shape makes no sense")
        if np.prod([float(n) for n in one.shape]) > 512**3:
            raise ValueError("a grid is too large")
