"""Matches with known labels, as users would find them: what `diptych fit worth` learns from and evaluation judges.

Knows trials; the curves themselves are in `diptych.retrieval.match_worth`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from diptych.evaluation.compare_metrics import Trial
from diptych.evaluation.context import Context
from diptych.evaluation.parts.robustness import found_of_oracle, sampled_slices, with_only
from diptych.evaluation.retrieval_score import mean_dice, pack_labels
from diptych.progress import Progress, silent
from diptych.retrieval.match_worth import Pairs
from diptych.slices import SliceDataset

ASKED = 10
"""Slices of each patient that ask: the one with the largest lesion, and others evenly spaced."""


def asking_slices(trial: Trial) -> NDArray[np.int64]:
    """Places of the slices that ask, patient by patient."""
    chosen = set(trial.queries.tolist())
    for volume in np.unique(trial.slices.volume[trial.queries]).tolist():
        own = np.flatnonzero(trial.slices.volume == volume)
        chosen |= set(own[np.linspace(0, len(own) - 1, ASKED + 1).round().astype(np.int64)[1:-1]].tolist())
    return np.array(sorted(chosen), dtype=np.int64)


def known_matches(trial: Trial, metrics: Sequence[str], *, progress: Progress = silent) -> dict[tuple[str, str], Pairs]:
    """Every match of every question by metric and panel, whatever was searched by; lesions of queries that have one."""
    planes = {
        panel: pack_labels(labels, classes=trial.slices.classes[panel]) for panel, labels in trial.slices.labels.items()
    }
    asked = asking_slices(trial)
    rows: dict[tuple[str, str], list[tuple[int, float, float]]] = {}
    for done, place in enumerate(asked.tolist(), start=1):
        person = int(trial.person[trial.slices.volume[place]])
        for metric in metrics:
            for by in trial.bys:
                found = trial.search_one(place, metric, by)
                slices = np.array([match.slice for match in found], dtype=np.int64)
                for panel, packed in planes.items():
                    if panel == "abnormal" and not trial.slices.lesion_area[place]:
                        continue
                    dice = mean_dice(packed.take(np.array([place])), packed.take(slices))[0]
                    compared = [(getattr(match, panel), float(one)) for match, one in zip(found, dice, strict=True)]
                    known = [(person, side.distance, one) for side, one in compared if side is not None]
                    rows.setdefault((metric, panel), []).extend(known)
        progress(done, len(asked), "")
    return {key: _pairs(found) for key, found in rows.items() if found}


def costs_of_missing(context: Context, trial: Trial, *, progress: Progress = silent) -> dict[str, dict[str, float]]:
    """What searches lose where channels are missing that the model can do without, as shares of the oracle.

    By the channels that are missing, in the model's order and joined by commas, and by panel or both. The slice of each
    patient's largest lesion asks; references have all channels.
    """
    about = context.network.description
    subsets = [kept for size in range(1, len(about.channels)) for kept in combinations(about.channels, size)]
    readable = [kept for kept in subsets if not about.needed(kept)] if about.enough else []
    if not readable:
        return {}
    dataset = SliceDataset(context.stores, [trial.slices.keys[volume] for volume in trial.slices.volume[trial.queries]])
    places, asks = sampled_slices([context.records[key].lesion_pixels or () for key in dataset.keys])
    batch = dataset.batch(places[asks])

    def found(kept: Sequence[str]) -> dict[str, float]:
        ids = context.network.encode(with_only(about.channels, kept)(batch).image)
        return found_of_oracle(trial, ids.normal.numpy(), ids.abnormal.numpy())

    whole, costs = found(about.channels), {}
    for done, kept in enumerate(readable, start=1):
        lost = found(kept)
        costs[",".join(about.missing(kept))] = {name[5:]: max(0.0, whole[name] - lost[name]) for name in whole}
        progress(done, len(readable), ", ".join(kept))
    return costs


def _pairs(found: list[tuple[int, float, float]]) -> Pairs:
    patient, distance, dice = (np.array(column) for column in zip(*found, strict=True))
    return Pairs(patient, distance, dice)
