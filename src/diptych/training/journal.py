"""What a run tells about itself: CSV tables, TensorBoard when asked for, and one line that shows whether it learns.

Knows metrics by name, nothing about networks. Rows after the step from which a run resumes are dropped, so that
each step stands in `log.csv` once.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from diptych.errors import MissingExtraError
from diptych.progress import Progress, silent

__all__ = ["CsvTable", "Journal", "Say", "TensorBoard", "Trend"]

Say = Callable[[str], None]
"""Prints one line for the user between two progress reports."""


STEP_COLUMNS = (
    "step", "seconds", "planned_steps", "learning_rate", "images_per_second",
    "loss", "latent", "segmentation", "reconstruction", "anatomy", "twin", "regulariser", "critic", "wasserstein",
    "gradient_norm", "normal_perplexity", "abnormal_perplexity",
)  # fmt: skip
"""Columns of `log.csv`; a step without a critic leaves its columns empty."""


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


class TensorBoard:
    """Scalars and pictures for TensorBoard; needs the extra of that name."""

    def __init__(self, folder: Path, *, resume_after: int = 0) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise MissingExtraError("--tensorboard needs: pip install 'diptych[tensorboard]'") from error
        self._writer = SummaryWriter(str(folder), purge_step=resume_after + 1)

    def add(self, group: str, row: Mapping[str, float]) -> None:
        """Write all values of a row under `group/…`."""
        for name, value in row.items():
            self._writer.add_scalar(f"{group}/{name}", value, int(row["step"]))

    def add_picture(self, name: str, picture: Any, step: int) -> None:
        """Write one picture, an array `[H, W, 3]`."""
        self._writer.add_image(name, picture, step, dataformats="HWC")

    def close(self) -> None:
        """Finish the event file."""
        self._writer.close()


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


class Journal:
    """Everything a run writes down, in one place.

    Args:
        run: the run's folder.
        resume_after: the step from which the run goes on; later rows are dropped.
        tensorboard: whether to write TensorBoard events as well.
        progress: drawn by the command line.
        say: prints one line.
    """

    def __init__(
        self,
        run: Path,
        *,
        resume_after: int = 0,
        tensorboard: bool = False,
        progress: Progress = silent,
        say: Say = lambda line: None,
    ) -> None:
        self.run = run
        self.say = say
        self._progress = progress
        self._first_step = resume_after
        self._steps = CsvTable(run / "log.csv", STEP_COLUMNS, resume_after=resume_after)
        self._validations = CsvTable(run / "validation.csv", resume_after=resume_after)
        self._board = TensorBoard(run / "tensorboard", resume_after=resume_after) if tensorboard else None
        self._trends = {name: Trend() for name in ("reconstruction", "segmentation", "wasserstein")}
        self._dice = self._usage = "–"

    def observe(self, metrics: Mapping[str, float]) -> None:
        """Take in every step's losses for the trends of the progress line."""
        for name, trend in self._trends.items():
            if name in metrics:
                trend.add(metrics[name])

    def log_step(self, row: Mapping[str, float], *, total: int) -> None:
        """Write one row of losses and draw the progress line."""
        self._steps.add(row)
        if self._board:
            self._board.add("train", row)
        note = self.line(row)
        self._progress(int(row["step"]) - self._first_step, max(total - self._first_step, 1), note)

    def line(self, row: Mapping[str, float]) -> str:
        """The line that shows whether it learns; arrows are the direction of the smoothed value."""
        return (
            f"step {row['step']:.0f} · rec {self._trends['reconstruction']} seg {self._trends['segmentation']} "
            f"W {self._trends['wasserstein']} · Dice {self._dice} · codes {self._usage} "
            f"(now {row['normal_perplexity']:.0f}/{row['abnormal_perplexity']:.0f}) "
            f"· {row['images_per_second']:.1f} images/s"
        )

    def log_validation(self, row: Mapping[str, float]) -> None:
        """Write one row of validation figures and remember the two the progress line shows."""
        self._validations.add(row)
        if self._board:
            self._board.add("validation", row)
        self._dice = f"{row['dice_whole']:.2f}"
        self._usage = f"{row['normal_usage']:.0%}/{row['abnormal_usage']:.0%}"

    def log_picture(self, picture: Any, step: int) -> None:
        """Show a picture grid in TensorBoard; the PNG is already in the run's folder."""
        if self._board:
            self._board.add_picture("examples", picture, step)

    def close(self) -> None:
        """Finish what is open."""
        if self._board:
            self._board.close()


def _decayed(mean: float, weight: float, value: float, decay: float) -> tuple[float, float]:
    return decay * mean + (1 - decay) * value, decay * weight + (1 - decay)


def _short(value: float | None) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else f"{value:.6g}"
