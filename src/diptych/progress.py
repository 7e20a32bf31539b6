"""How long-running work reports itself. Lower layers call a `Progress`; only the command line draws one."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called after each finished piece of work: `done` of `total`, with a short note such as a patient key."""

    def __call__(self, done: int, total: int, note: str = "") -> None: ...


def silent(done: int, total: int, note: str = "") -> None:
    """The default: report nothing."""
