"""The tables hold each step once, and the progress line shows the way things go."""

from __future__ import annotations

from pathlib import Path

from diptych.runs.csv_tables import CsvTable, Trend
from diptych.training.journal import Journal

ROW = {"step": 3, "normal_perplexity": 81.0, "abnormal_perplexity": 40.2, "images_per_second": 12.34}


def test_resumed_table_drops_later_and_cut_rows(tmp_path: Path) -> None:
    table = CsvTable(tmp_path / "log.csv")
    for step in (1, 2, 3):
        table.add({"step": step, "loss": 1 / step})
    with table.path.open("a") as file:
        file.write("4,0.")
        file.write("\n5")
    CsvTable(table.path, resume_after=2).add({"step": 3, "loss": 0.25})
    assert table.path.read_text() == "step,loss\n1,1\n2,0.5\n3,0.25\n"


def test_trend_points_down_for_a_falling_loss() -> None:
    trend = Trend()
    for step in range(300):
        trend.add(2.0 / (1 + step / 50))
    assert str(trend).endswith("↓")


def test_trend_is_level_for_a_constant() -> None:
    trend = Trend()
    for _ in range(5):
        trend.add(0.5)
    assert str(trend) == "0.500→"


def test_line_shows_losses_dice_usage_and_speed(tmp_path: Path) -> None:
    lines: list[tuple[int, int, str]] = []
    journal = Journal(tmp_path, progress=lambda done, total, note="": lines.append((done, total, note)))
    journal.observe({"reconstruction": 0.2, "segmentation": 0.7})
    journal.log_validation({"step": 2, "dice_whole": 0.531, "normal_usage": 0.9, "abnormal_usage": 0.84})
    journal.log_step(ROW, total=8)
    note = "step 3 · rec 0.200→ seg 0.700→ W – · Dice 0.53 · codes 90%/84% (now 81/40) · 12.3 images/s"
    assert lines == [(3, 8, note)]


def test_tensorboard_events_are_written_when_asked(tmp_path: Path) -> None:
    journal = Journal(tmp_path, tensorboard=True)
    journal.log_step(ROW, total=8)
    journal.close()
    assert list((tmp_path / "tensorboard").glob("events*"))
