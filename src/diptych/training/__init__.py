"""Training: from slice stores to a network. Start with `trainer.py`; Algorithm 1 of the paper is in `step.py`."""

from __future__ import annotations

from diptych.runs.length import Length
from diptych.training.options import RunConfig, TrainingOptions
from diptych.training.trainer import train
from diptych.training.validate import validate

__all__ = ["Length", "RunConfig", "TrainingOptions", "train", "validate"]
