"""Leakiness with the classifier of appendix D to the letter: 256x256, 100 epochs. For a GPU; days on a CPU."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

from diptych.evaluation.leak_classifier import PAPER
from diptych.evaluation.part import Part
from diptych.evaluation.parts.leakiness import run

PART = Part(
    "leakiness_paper",
    "Leakiness, the paper's classifier",
    "Whether the healthy twin still tells that there was a lesion, asked with the full network of appendix D.",
    partial(run, config=PAPER),
    settings={"version": 2, **asdict(PAPER)},
    by_default=False,
)
