"""How long a run lasts: a number of steps, or minutes turned into one. Knows clocks only by the seconds it is told.

A run bounded by minutes measures its speed over the first steps, turns the minutes into a number of steps, and saves
that number in every checkpoint; from then on the learning rate is a function of the step alone, so a killed and
resumed run takes the very same steps. The plan is renewed only when the machine's speed has changed so much that the
promise of minutes would be broken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from diptych.errors import UsageError

__all__ = ["Length", "Plan", "cosine_rate"]

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
        """Go on with the plan of a checkpoint."""
        self.steps, self.seconds = state["planned_steps"], state["seconds"]

    def observe(self, step: int, seconds: float) -> None:
        """Take in the seconds of training so far; the first look fixes the plan of a run bounded by minutes."""
        self.seconds = seconds
        if self.steps is not None or self.minutes is None:
            return
        if self._mark is None:
            self._mark = (step + SKIPPED_STEPS, -1.0)
        first, began = self._mark
        if step == first:
            self._mark = (first, seconds)
        elif step >= first + MEASURED_STEPS or (step > first and seconds > 0.2 * 60 * self.minutes):
            self.steps = self._fitting(step, (seconds - began) / (step - first))
        elif seconds >= 60 * self.minutes:
            self.steps = step

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
