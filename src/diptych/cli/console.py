"""What commands share on the terminal: progress with time left, and machine-readable output.

Progress goes to standard error, results to standard output, so that `diptych … --json | jq` works.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from diptych.progress import Progress

PLAIN_LINE_EVERY = 5.0
"""Seconds between two progress lines when standard error is not a terminal."""


@contextmanager
def progress_bar(title: str) -> Iterator[Progress]:
    """Yield a `Progress` that draws a bar with time left on a terminal and prints plain lines elsewhere."""
    if sys.stderr.isatty():
        with _rich_bar(title) as report:
            yield report
    else:
        yield _PlainLines(title)


@contextmanager
def _rich_bar(title: str) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with RichProgress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=None, note="")

        def report(done: int, total: int, note: str = "") -> None:
            bar.update(task, completed=done, total=total, note=note)

        yield report


class _PlainLines:
    """A line at most every few seconds, and one at the end; silent for work that is over at once."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.started = self.printed = time.monotonic()

    def __call__(self, done: int, total: int, note: str = "") -> None:
        now = time.monotonic()
        finished = done >= total and now - self.started >= 2.0
        if not finished and now - self.printed < PLAIN_LINE_EVERY:
            return
        self.printed = now
        left = (now - self.started) / max(done, 1) * (total - done)
        time_text = f"{now - self.started:.0f} s" if finished else f"{left:.0f} s left"
        print(f"{self.title}: {done}/{total} {note} ({time_text})", file=sys.stderr, flush=True)


def print_json(value: Any) -> None:
    """Print `value` as JSON on standard output."""
    print(json.dumps(value, indent=2, ensure_ascii=False, default=str))
