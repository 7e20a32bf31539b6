"""How long a run lasts and how it behaves: steps or minutes, stopping when asked, the same bits each time.

Knows clocks only by the seconds it is told, signals, and torch's switches; nothing about networks.
"""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any

import torch
from torch.utils import deterministic

from diptych.errors import UsageError

MEASURED_STEPS = 20
"""Steps after the first few by which a run bounded by minutes learns its speed."""
SKIPPED_STEPS = 3
"""First steps that are slower than the rest and do not count for the speed."""
TOLERANCE = 0.10
"""Share of the promised minutes by which a plan may miss before it is renewed."""
VALIDATIONS = 12
"""Looks at the validation patients that even a short run takes."""


@dataclass(frozen=True)
class Length:
    """How long the user lets a run last: exactly one of the three."""

    steps: int | None = None
    epochs: float | None = None
    minutes: float | None = None

    def __post_init__(self) -> None:
        given = {name: value for name, value in vars(self).items() if value is not None}
        if len(given) != 1:
            raise UsageError(f"length of training {given or 'missing'}: give one of --minutes, --epochs and --steps")
        (name, value), *_ = given.items()
        if not value > 0:
            raise UsageError(f"--{name} {value}: must be above 0")


class Plan:
    """The number of steps a run takes in all, once it is known."""

    def __init__(self, length: Length, *, steps_per_epoch: int) -> None:
        self.minutes = length.minutes
        self.seconds = 0.0
        self.steps: int | None = length.steps
        if length.epochs is not None:
            self.steps = max(1, round(length.epochs * steps_per_epoch))
        self._mark: tuple[int, float] | None = None

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps of the plan."""
        return {"planned_steps": self.steps, "seconds": self.seconds}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on with the plan of a checkpoint; steps that the user has counted are the user's."""
        self.seconds = state["seconds"]
        if self.minutes is not None:
            self.steps = state["planned_steps"]

    def observe(self, step: int, seconds: float) -> None:
        """Take in the seconds of training so far; the first look fixes the plan of a run bounded by minutes."""
        self.seconds = seconds
        if self.minutes is not None and seconds >= 60 * self.minutes:
            self.steps = step  # the time is up, whatever was planned
        if self.steps is not None or self.minutes is None:
            return
        if self._mark is None:
            self._mark = (step + SKIPPED_STEPS, -1.0)
        first, began = self._mark
        if step == first:
            self._mark = (first, seconds)
        elif step >= first + MEASURED_STEPS or (step > first and seconds > 0.2 * 60 * self.minutes):
            self.steps = self._fitting(step, (seconds - began) / (step - first))

    def renew(self, step: int) -> bool:
        """Make a new plan if the old one would miss the promised minutes by far; tell whether that was so.

        Called where a checkpoint follows at once, so that the plan is part of the saved state.
        """
        if self.minutes is None or self.steps is None or step < 1:
            return False
        projected = self.seconds / step * self.steps
        if abs(projected - 60 * self.minutes) <= TOLERANCE * 60 * self.minutes:
            return False
        self.steps = self._fitting(step, self.seconds / step)
        return True

    def total(self, step: int) -> int:
        """Steps in all as far as can be said now."""
        if self.steps is not None:
            return self.steps
        return max(step + 1, round(step * 60 * (self.minutes or 0) / max(self.seconds, 1e-9)))

    def done(self, step: int) -> bool:
        """Whether the last step has been taken."""
        return self.steps is not None and step >= self.steps

    def validates(self, step: int, every: int) -> bool:
        """Whether this step is followed by a look at the validation patients."""
        if self.steps is None:
            return False
        return step >= self.steps or step % min(every, -(-self.steps // VALIDATIONS)) == 0

    def _fitting(self, step: int, seconds_per_step: float) -> int:
        left = max(60 * (self.minutes or 0) - self.seconds, 0)
        return max(step, step + int(left / max(seconds_per_step, 1e-9)))


def cosine_rate(step: int, planned: int | None, *, peak: float, warmup: int, floor: float) -> float:
    """Size of update number `step` (from 1): a linear rise, then half a cosine down to `floor` times the peak.

    A short run rises over a tenth of its steps at most. Without a plan the peak is kept.

    >>> [round(cosine_rate(step, 110, peak=1.0, warmup=10, floor=0.0), 6) for step in (5, 60, 110)]
    [0.5, 0.5, 0.0]
    """
    warmup = min(warmup, (planned or warmup * 10) // 10)
    if step <= warmup:
        return peak * step / warmup
    if planned is None:
        return peak
    fraction = min((step - warmup) / max(planned - warmup, 1), 1.0)
    return peak * (floor + (1 - floor) * (1 + math.cos(math.pi * fraction)) / 2)


class Interruption:
    """Turns Ctrl-C and SIGTERM into a wish to stop after the current step; a second one stops at once."""

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


@contextmanager
def repeatable(threads: int) -> Iterator[None]:
    """Fixed threads, and deterministic algorithms where torch has them; leaves torch as it was."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    torch.set_num_threads(threads)
    torch.set_deterministic_debug_mode("warn")  # unlike use_deterministic_algorithms, imports no compiler
    deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # it only costs time
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        torch.set_deterministic_debug_mode(before[1])
