"""Leakiness asked as appendix D asks it: the classifier learns from training patients and is tested on the others."""

from __future__ import annotations

from dataclasses import asdict

from diptych.evaluation.leak_classifier import PAPER
from diptych.evaluation.part import Part
from diptych.evaluation.parts.leakiness import run_paper

PART = Part(
    "leakiness_paper",
    "Leakiness, asked as the paper does",
    "Whether a classifier that training patients have taught can tell from the healthy twin that there was a lesion.",
    run_paper,
    settings={"version": 3, **asdict(PAPER)},
    by_default=False,
)
