"""Scores of hand-made searches: the oracle's own answer scores 1, chance scores what chance is."""

from __future__ import annotations

import numpy as np
import pytest

from diptych.errors import InputError
from diptych.evaluation.retrieval_score import (
    Truth,
    best_volumes,
    dice_by_class,
    largest_lesion_slices,
    mean_dice,
    score,
)
from diptych.metrics.label_planes import Planes

VOLUMES = np.array([0, 0, 1, 1, 1, 2, 3, 3])


def make_truth(seed: int = 0) -> Truth:
    return Truth(np.random.default_rng(seed).random((4, 8)), VOLUMES, np.array([0, 1, 2, 3]))


def test_a_perfect_retriever_scores_the_oracles_number() -> None:
    truth = make_truth()
    assert score(best_volumes(-truth.dice, truth), truth, tops=(1, 2, 3)).of_oracle() == {1: 1.0, 2: 1.0, 3: 1.0}


def test_the_worst_retriever_scores_less_than_chance() -> None:
    truth = make_truth()
    worst = score(best_volumes(truth.dice, truth), truth, tops=(1,))
    assert worst.mean()[1] < worst.chance.mean()


def test_each_volume_is_found_once_and_the_own_never() -> None:
    truth = make_truth()
    found = VOLUMES[best_volumes(np.random.default_rng(1).random((4, 8)), truth)]
    assert [sorted(row) for row in found.tolist()] == [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]


def test_oracle_by_hand() -> None:
    dice = np.array([[0.9, 0.9, 0.1, 0.5, 0.2, 0.7, 0.0, 0.6]])
    truth = Truth(dice, VOLUMES, np.array([0]))
    assert truth.oracle.tolist() == [[0.7, 0.6, 0.5]]


def test_chance_is_a_random_slice_of_a_random_volume() -> None:
    dice = np.array([[0.9, 0.9, 0.1, 0.5, 0.3, 0.7, 0.0, 0.6]])
    assert Truth(dice, VOLUMES, np.array([0])).chance == pytest.approx([(0.3 + 0.7 + 0.3) / 3])


def test_the_nearest_slice_of_a_volume_stands_for_it_not_its_best() -> None:
    dice = np.array([[0, 0, 0.1, 0.5, 0.2, 0, 0, 0]])
    distances = np.array([[9.0, 9, 1, 2, 3, 9, 9, 9]])
    truth = Truth(dice, VOLUMES, np.array([0]))
    assert score(best_volumes(distances, truth), truth, tops=(1,)).mean() == {1: 0.1}


def test_a_query_from_elsewhere_may_find_every_volume() -> None:
    truth = Truth(make_truth().dice[:1], VOLUMES, np.array([-1]))
    assert best_volumes(truth.dice, truth).shape == (1, 4)


def test_more_than_there_is_is_not_scored() -> None:
    truth = make_truth()
    assert set(score(best_volumes(truth.dice, truth), truth).dice) == {1, 3}


def test_distances_of_another_archive_are_refused() -> None:
    with pytest.raises(InputError, match="compare like with like"):
        best_volumes(np.zeros((4, 7)), make_truth())


def test_queries_are_the_slices_with_the_largest_lesion() -> None:
    area = np.array([1, 5, 0, 0, 0, 2, 3, 3])
    assert largest_lesion_slices(area, VOLUMES).tolist() == [1, 5, 6]


@pytest.mark.parametrize(("absent", "expected"), [("left out", [0.5, 1.0]), ("zero", [1 / 6, 0.0])])
def test_both_conventions_by_hand(absent: str, expected: list[float]) -> None:
    labels = np.zeros((3, 2, 3), np.uint8)
    labels[0, 0, :2] = 1  # against slice 1: one of 2 + 2 pixels shared; classes 2 and 3 are nowhere
    labels[1, 0, 1:] = 1
    planes = Planes.of_labels(labels, classes=3)
    dice = mean_dice(planes, planes, absent=absent)  # type: ignore[arg-type]
    assert dice[[0, 2], [1, 2]] == pytest.approx(expected)


def test_dice_equals_the_textbook() -> None:
    labels = np.random.default_rng(0).integers(0, 4, (5, 9, 11))
    planes = Planes.of_labels(labels, classes=3)
    for other in range(5):
        expected = [
            2 * ((labels[2] == c) & (labels[other] == c)).sum() / ((labels[2] == c).sum() + (labels[other] == c).sum())
            for c in (1, 2, 3)
        ]
        assert dice_by_class(planes, 2, planes)[other] == pytest.approx(expected)
