"""How large each step of the network is: a pure function of the step and the planned number of steps.

How that number comes about is in `diptych.runs.length`.
"""

from __future__ import annotations

from diptych.config import TrainingConfig
from diptych.runs.length import cosine_rate

__all__ = ["learning_rate"]


def learning_rate(step: int, planned: int | None, config: TrainingConfig) -> float:
    """Size of update number `step` (from 1): a linear rise, then half a cosine down to `final_fraction`, or none.

    >>> config = TrainingConfig(learning_rate=1.0, warmup_steps=10, final_fraction=0.0)
    >>> learning_rate(5, 110, config), round(learning_rate(60, 110, config), 6), learning_rate(110, 110, config)
    (0.5, 0.5, 0.0)
    """
    floor = 1.0 if config.schedule == "constant" else config.final_fraction
    return cosine_rate(step, planned, peak=config.learning_rate, warmup=config.warmup_steps, floor=floor)
