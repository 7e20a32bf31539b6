"""`Answers`: what one way of searching found for every query, what it keeps of a slice, and what it costs.

The harness in which Diptych's own metrics and everything else a user could pick are judged alike: each brings the
slices that it found, one per volume, best first; `retrieval_score` does the rest. Knows arrays and clocks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diptych.evaluation.compare_metrics import Trial
from diptych.evaluation.retrieval_score import best_volumes

__all__ = ["Answers", "answer_by_distance", "cpu_seconds"]

Distances = Callable[[str, int], NDArray[np.floating]]
"""By what is searched and the number of a query: distances to all slices, `[N]`."""


@dataclass(frozen=True, eq=False)
class Answers:
    """One method's answers to all queries."""

    name: str
    about: str
    """One sentence: what is compared."""
    found: Mapping[str, NDArray[np.int64]]
    """By what was searched: slices, best first, `[Q, T]`."""
    bytes_per_slice: Mapping[str, float]
    """By what was searched: what an archive must keep of each slice."""
    read_seconds: float
    """CPU time from one image to what is compared."""
    search_seconds: Mapping[str, float]
    """By what was searched: CPU time of one query over all slices, once it has been read."""


def answer_by_distance(
    trial: Trial,
    name: str,
    about: str,
    distances: Distances,
    *,
    bytes_per_slice: float | Mapping[str, float],
    read_seconds: float,
) -> Answers:
    """Let distances decide: the nearest slice of each volume, nearest volume first, the same person never."""
    found, seconds = {}, {}
    for by, truth in trial.truths().items():
        rows = np.empty(truth.dice.shape)
        started = time.process_time()
        for query in range(len(rows)):
            rows[query] = distances(by, query)
        seconds[by] = (time.process_time() - started) / max(len(rows), 1)
        found[by] = best_volumes(rows, truth)[:, : trial.longest].astype(np.int64)
    kept = bytes_per_slice if isinstance(bytes_per_slice, Mapping) else dict.fromkeys(found, bytes_per_slice)
    return Answers(name, about, found, kept, read_seconds, seconds)


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU time that some work takes; unlike the time on the clock, it does not depend on what else the machine does."""
    started = time.process_time()
    work()
    return time.process_time() - started
