"""What a run tells about itself: CSV tables, TensorBoard when asked for, and one line that shows whether it learns.

Knows metrics by name, nothing about networks. Rows after the step from which a run resumes are dropped, so that
each step stands in `log.csv` once.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from diptych.errors import MissingExtraError
from diptych.progress import Progress, silent
from diptych.runs.csv_tables import CsvTable, Say, Trend

STEP_COLUMNS = (
    "step", "seconds", "planned_steps", "learning_rate", "images_per_second",
    "loss", "latent", "segmentation", "reconstruction", "anatomy", "twin", "quiet", "teacher",
    "regulariser", "critic", "wasserstein",
    "gradient_norm", "normal_perplexity", "abnormal_perplexity",
)  # fmt: skip
"""Columns of `log.csv`; a step without a critic leaves its columns empty."""


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
