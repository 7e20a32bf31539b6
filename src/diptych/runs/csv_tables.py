"""What a run writes down as it goes: CSV tables that a resumed run continues, and values with the direction they take.

Knows values by name, nothing about networks.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

Say = Callable[[str], None]
"""Prints one line for the user between two progress reports."""


class CsvTable:
    """A CSV file with a row per step, which a resumed run continues; the first row decides unnamed columns."""

    def __init__(self, path: Path, columns: Sequence[str] = (), *, resume_after: int = 0) -> None:
        self.path = path
        self.columns = list(columns)
        self._resume_after = resume_after
        self._begun = False

    def add(self, row: Mapping[str, float]) -> None:
        """Append one row; values that it lacks stay empty."""
        if not self._begun and not self._drop_later_rows():
            self.columns = self.columns or list(row)
            self.path.write_text(",".join(self.columns) + "\n", encoding="utf-8")
        self._begun = True
        with self.path.open("a", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerow([_short(row.get(name)) for name in self.columns])

    def _drop_later_rows(self) -> bool:
        """Keep whole rows up to the step from which the run goes on; tell whether any is left."""
        if not self.path.exists():
            return False
        with self.path.open(encoding="utf-8", newline="") as file:
            header, *rows = list(csv.reader(file)) or [[]]
        # A kill may have cut the last row anywhere; a row that is not whole is not kept.
        whole = [row for row in rows if len(row) == len(header) and row[0].isdecimal()]
        kept = [row for row in whole if int(row[0]) <= self._resume_after]
        if kept:
            self.columns = header
            with self.path.open("w", encoding="utf-8", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows([header, *kept])
        return bool(kept)


class Trend:
    """A smoothed value and the direction it takes: a quick mean against a slow one."""

    def __init__(self) -> None:
        self.quick = self.slow = 0.0
        self._weight_quick = self._weight_slow = 0.0

    def add(self, value: float) -> None:
        """Take in the next value (both means correct for their start, as Adam's do)."""
        self.quick, self._weight_quick = _decayed(self.quick, self._weight_quick, value, 0.95)
        self.slow, self._weight_slow = _decayed(self.slow, self._weight_slow, value, 0.995)

    def __str__(self) -> str:
        if not self._weight_quick:
            return "–"
        quick, slow = self.quick / self._weight_quick, self.slow / self._weight_slow
        change = (quick - slow) / max(abs(slow), 1e-12)
        arrow = "↓" if change < -0.01 else "↑" if change > 0.01 else "→"
        return f"{quick:.3f}{arrow}"


def _decayed(mean: float, weight: float, value: float, decay: float) -> tuple[float, float]:
    return decay * mean + (1 - decay) * value, decay * weight + (1 - decay)


def _short(value: float | None) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else f"{value:.6g}"
