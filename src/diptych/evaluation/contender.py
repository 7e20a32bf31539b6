"""`Answers`: what one way of searching found for every query, what it keeps of a slice, and what it costs.

Also the answers of Diptych's own metrics, from the engine that users search with.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from diptych.evaluation.compare_metrics import Trial
from diptych.evaluation.context import Context
from diptych.evaluation.retrieval_score import best_volumes
from diptych.metrics.label_search import average_neighbours
from diptych.metrics.searcher import METRICS
from diptych.progress import Progress, silent
from diptych.search.query import panels_of

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
    alone: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    """What would be found if every slice stood for itself alone."""
    together: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    """What would be found if neighbouring slices had a say, as they have in our searches by labels."""


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
    found, together, seconds = {}, {}, {}
    for by, truth in trial.truths().items():
        rows = np.empty(truth.dice.shape)
        started = time.process_time()
        for query in range(len(rows)):
            rows[query] = distances(by, query)
        seconds[by] = (time.process_time() - started) / max(len(rows), 1)
        found[by] = _best(trial, rows, by)
        together[by] = _best(trial, with_neighbours(trial, rows), by)
    kept = bytes_per_slice if isinstance(bytes_per_slice, Mapping) else dict.fromkeys(found, bytes_per_slice)
    return Answers(name, about, found, kept, read_seconds, seconds, alone=found, together=together)


def with_neighbours(trial: Trial, rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Distances `[Q, N]` averaged over neighbouring slices; as they are where heights are not known."""
    if trial.heights is None:
        return rows
    return np.stack([average_neighbours(row, trial.heights, trial.slices.volume) for row in rows])


def _best(trial: Trial, rows: NDArray[np.float64], by: str) -> NDArray[np.int64]:
    return best_volumes(rows, trial.truths()[by])[:, : trial.longest].astype(np.int64)


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU time that some work takes; unlike the time on the clock, it does not depend on what else the machine does."""
    started = time.process_time()
    work()
    return time.process_time() - started


PAPER_METRICS = {"euclidean": "D_E", "angular": "D_A", "hamming": "D_H"}
OURS = "fusion"
"""The metric that others are compared with; chosen on validation patients."""


def own_metrics(trial: Trial) -> list[str]:
    """Every metric that this model offers."""
    return [*trial.searcher.offered("both")]


def own_answers(context: Context, progress: Progress = silent) -> list[Answers]:
    """All metrics' answers, worked out once."""
    trial = context.trial(progress)
    metrics = own_metrics(trial)
    answers = []
    for done, metric in enumerate(metrics, start=1):
        answers.append(context.once(f"answers by {metric}", partial(_answer, context, trial, metric)))
        progress(done, len(metrics), metric)
    return answers


def raw_sum_answers(context: Context) -> list[Answers]:
    """The paper's S_sum to the letter: raw distances of both panels added, whatever their scales."""
    trial = context.trial()
    return [
        Answers(
            name=f"{metric}, raw sum",
            about=f"{symbol} of both panels, added as they are",
            found={"both": trial.search(metric, "both", raw_sum=True)},
            bytes_per_slice={"both": float(sum(_kept(trial, metric, panel) for panel in panels_of("both")))},
            read_seconds=float("nan"),
            search_seconds={"both": float("nan")},
        )
        for metric, symbol in PAPER_METRICS.items()
    ]


def _answer(context: Context, trial: Trial, metric: str) -> Answers:
    image = torch.zeros(1, context.network.config.channels, *context.network.config.image_size)
    read = cpu_seconds(lambda: context.network.encode(image))
    kept = {by: float(sum(_kept(trial, metric, panel) for panel in panels_of(by))) for by in trial.bys}
    found, seconds = {}, {}
    single = replace(trial, heights=None)
    rows = {by: single.distances(metric, by) for by in trial.bys}
    alone = {by: _best(trial, rows[by], by) for by in trial.bys}
    together = {by: _best(trial, with_neighbours(trial, rows[by]), by) for by in trial.bys}
    for by in trial.bys:
        trial.search_one(int(trial.queries[0]), metric, by)  # what is made on first use is no part of a query
        started = time.process_time()
        found[by] = trial.search(metric, by)
        seconds[by] = (time.process_time() - started) / len(trial.queries)
    return Answers(metric, METRICS[metric], found, kept, read, seconds, alone=alone, together=together)


def _kept(trial: Trial, metric: str, panel: str) -> int:
    """Bytes per slice of one panel: ids for tables, packed label maps for what compares labels."""
    ids = trial.engine.index.cells * (1 if trial.tables.panel(panel)["euclidean"].codes <= 256 else 2)
    if trial.searcher.planes is None or not trial.searcher.decodes(metric):
        return ids
    return ids + int(trial.searcher.planes.planes()[panel].words[0].nbytes)
