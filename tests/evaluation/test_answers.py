"""One harness for all: a perfect retriever scores the oracle's number, a random one the random row."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray

from diptych.evaluation.compare_metrics import Trial
from diptych.evaluation.contender import Answers, answer_by_distance, own_answers, own_metrics
from diptych.evaluation.context import Context
from diptych.evaluation.judge import Judge
from diptych.evaluation.retrieval_score import best_volumes, score
from diptych.metrics.fusion import OVERLAP_SHARE
from diptych.metrics.label_search import average_neighbours
from diptych.metrics.overlap import pair_distances
from diptych.search.query import panels_of


def answer(context: Context, distances: Callable[[str, int], NDArray[np.floating]]) -> Answers:
    return answer_by_distance(context.trial(), "given", "", distances, bytes_per_slice=0, read_seconds=0)


@pytest.mark.parametrize("by", ["normal", "abnormal", "both"])
def test_a_perfect_retriever_scores_the_oracles_number(context: Context, by: str) -> None:
    trial = context.trial()
    perfect = answer(context, lambda by, query: -trial.truths()[by].dice[query])
    judge = Judge(trial, seed=0)
    found, oracle = judge.judge(perfect, by, "left out"), judge.oracle(by, "left out")
    assert {top: one.mean for top, one in found.items()} == {top: one.mean for top, one in oracle.items()}
    assert all(one.share.value == 1 for one in found.values())


def test_random_retrievers_score_the_random_row_on_average(context: Context) -> None:
    trial, rng = context.trial(), np.random.default_rng(0)
    truth = trial.truths()["normal"]
    scores = [score(best_volumes(rng.random(truth.dice.shape), truth), truth) for _ in range(400)]
    mean = np.mean([one.mean()[1] for one in scores])
    assert mean == pytest.approx(truth.chance.mean(), abs=0.02)


def plain_distances(trial: Trial, metric: str, by: str, place: int) -> NDArray[np.float64]:
    """From one slice to all, in plain arithmetic: each term over its spread, labels averaged over neighbours."""
    shares = {"learned": 1 - OVERLAP_SHARE, "overlap": OVERLAP_SHARE} if metric == "fusion" else {metric: 1.0}
    one, other = np.random.default_rng(0).integers(len(trial.slices), size=(2, 4096))
    total = np.zeros(len(trial.slices))
    for panel in panels_of(by):
        for name, share in shares.items():
            between = partial(plain_pairs, trial, name, panel)
            spread = float(np.std(between(one, other))) or 1.0
            total += share * between(np.full(len(total), place), np.arange(len(total))) / spread
    if metric not in ("overlap", "fusion"):
        return total
    assert trial.heights is not None
    return average_neighbours(total, trial.heights, trial.slices.volume)


def plain_pairs(
    trial: Trial, metric: str, panel: str, one: NDArray[np.int64], other: NDArray[np.int64]
) -> NDArray[np.float64]:
    if metric == "overlap":
        assert trial.searcher.planes is not None
        planes = trial.searcher.planes.planes()[panel]
        return pair_distances(planes.take(one), planes.take(other))
    ids, table = trial.slices.ids[panel], trial.tables.panel(panel)[metric]
    weights = table.weights_of(ids.shape[1])
    lengths = np.diag(table.entries).astype(np.int64)[ids] @ weights
    return table.distance(table.entries[ids[one], ids[other]] @ weights, lengths[one], lengths[other])


def test_searches_and_plain_arithmetic_find_the_same(context: Context) -> None:
    trial = context.trial()
    for one in own_answers(context):
        for by in trial.bys:
            plain = np.array([plain_distances(trial, one.name, by, int(place)) for place in trial.queries])
            chosen = np.take_along_axis(plain, one.found[by], axis=1)
            expected = np.take_along_axis(plain, best_volumes(plain, trial.truths()[by]), axis=1)
            assert chosen == pytest.approx(expected[:, : trial.longest], rel=1e-5), (one.name, by)
            ratio = trial.distances(one.name, by) / np.where(plain > 0, plain, np.nan)
            assert np.nanmax(ratio) == pytest.approx(np.nanmin(ratio), rel=1e-5), "distances, but for one factor"


def test_all_metrics_take_part(context: Context) -> None:
    assert own_metrics(context.trial()) == ["euclidean", "angular", "hamming", "learned", "overlap", "fusion"]


def test_every_metric_says_what_it_keeps(context: Context) -> None:
    kept = {one.name: one.bytes_per_slice for one in own_answers(context)}
    assert kept["euclidean"] == {"normal": 32, "abnormal": 32, "both": 64}
    assert kept["overlap"]["abnormal"] == 32 + 3 * 3 * 32 * 32 / 8
