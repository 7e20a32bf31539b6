"""Progress in plain lines: said now and then, and at the end of anything that took long enough to wonder."""

from __future__ import annotations

import pytest

from diptych.cli import console


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr("diptych.cli.console.time.monotonic", lambda: now[0])
    return now


def test_quick_work_says_nothing(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with console.progress_bar("reading") as report:
        clock[0] = 1.0
        report(3, 3)
    assert capsys.readouterr().err == ""


def test_slow_work_says_the_time_left(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with console.progress_bar("reading") as report:
        clock[0] = 10.0
        report(1, 4, "patient-7")
    assert capsys.readouterr().err == "reading: 1/4 patient-7 (30 s left)\n"


def test_the_end_of_slow_work_is_said(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with console.progress_bar("reading") as report:
        clock[0] = 3.0
        report(4, 4)
    assert capsys.readouterr().err == "reading: 4/4  (3 s)\n"
