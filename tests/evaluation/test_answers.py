"""One harness for all: a perfect retriever scores the oracle's number, a random one the random row."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from diptych.evaluation.all_distances import FUSED, Distances
from diptych.evaluation.contender import Answers, answer_by_distance, own_answers, own_metrics
from diptych.evaluation.context import Context
from diptych.evaluation.judge import Judge
from diptych.evaluation.retrieval_score import best_volumes, score
from diptych.metrics.fusion import METRIC as FUSION
from diptych.metrics.fusion import OVERLAP_SHARE


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


def test_engine_and_plain_arithmetic_find_the_same(context: Context) -> None:
    trial = context.trial()
    for one in own_answers(context):
        for by in trial.bys:
            plain = Distances(trial, one.name, by).from_queries()
            chosen = np.take_along_axis(plain, one.found[by], axis=1)
            expected = np.take_along_axis(plain, best_volumes(plain, trial.truths()[by]), axis=1)
            assert chosen == pytest.approx(expected[:, : trial.longest], rel=1e-5), (one.name, by)


def test_all_metrics_take_part(context: Context) -> None:
    expected = ["euclidean", "angular", "hamming", "learned", "overlap", FUSION]
    assert own_metrics(context.trial()) == expected


def test_fusion_gives_each_metric_its_say(context: Context) -> None:
    trial = context.trial()
    learned, overlap = (Distances(trial, metric, "abnormal", alone=True).from_slice(3) for metric in FUSED)
    fused = Distances(trial, FUSION, "abnormal", alone=True)
    assert fused.from_slice(3) == pytest.approx((1 - OVERLAP_SHARE) * learned + OVERLAP_SHARE * overlap)


def test_every_metric_says_what_it_keeps(context: Context) -> None:
    kept = {one.name: one.bytes_per_slice for one in own_answers(context)}
    assert kept["euclidean"] == {"normal": 32, "abnormal": 32, "both": 64}
    assert kept["overlap"]["abnormal"] == 32 + 3 * 3 * 32 * 32 / 8
