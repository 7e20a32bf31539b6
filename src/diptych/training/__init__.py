"""Training: from slice stores to a network. Start with `trainer.py`; Algorithm 1 of the paper is in `step.py`."""

from __future__ import annotations

from diptych.runs.run_length import Length
from diptych.training.trainer import train
from diptych.training.training_options import RunConfig, TrainingOptions
from diptych.training.validation import validate

__all__ = ["Length", "RunConfig", "TrainingOptions", "train", "validate"]
