"""`Habit`: which kinds of query pruning pays for, learnt from the queries that were asked.

Knows names of kinds, and whether pruning paid the last time; nothing about scans.
"""

from __future__ import annotations

from collections.abc import Hashable

__all__ = ["Habit"]

PAUSE = 16
"""Queries of a kind that are scanned plainly after one for which pruning did not pay."""


class Habit:
    """Try; where it did not pay, try again only after a while: a failure then costs little on average."""

    def __init__(self) -> None:
        self._pauses: dict[Hashable, int] = {}

    def tries(self, kind: Hashable) -> bool:
        """Whether to prune the next query of a kind."""
        left = self._pauses.get(kind, 0)
        self._pauses[kind] = max(0, left - 1)
        return left == 0

    def note(self, kind: Hashable, *, paid: bool) -> None:
        """Learn from a query."""
        self._pauses[kind] = 0 if paid else PAUSE
