from __future__ import annotations

import numpy as np
import pytest

from diptych.evaluation.parts.phantom_questions import centred, judge, label_dice


def test_equal_label_maps_overlap_wholly_and_others_by_class() -> None:
    query = np.array([1, 1, 2, 2, 0, 0])
    references = np.array([[1, 1, 2, 2, 0, 0], [1, 1, 0, 0, 2, 2], [0, 0, 0, 0, 0, 0]])
    assert label_dice(query, references, classes=3).tolist() == [1.0, 0.5, 0.0]


def test_two_slices_without_any_label_are_alike() -> None:
    assert label_dice(np.zeros(4, dtype=int), np.zeros((1, 4), dtype=int), classes=3).tolist() == [1.0]


def test_the_oracle_takes_the_best_slice_of_the_best_volumes() -> None:
    dice = np.array([0.9, 0.1, 0.2, 0.6, 0.5, 0.3])
    volume = np.array([0, 0, 1, 1, 2, 2])
    allowed = np.array([False, True, True])
    judged = judge(dice, volume, allowed, found=[2, 4])
    assert judged.found == pytest.approx(0.35)
    assert judged.oracle == pytest.approx(0.55)  # never the forbidden 0.9
    assert judged.chance == pytest.approx(0.4)


def test_the_oracles_own_answer_scores_the_oracle() -> None:
    dice, volume = np.array([0.2, 0.6, 0.5, 0.3]), np.array([0, 0, 1, 1])
    judged = judge(dice, volume, np.array([True, True]), found=[1, 2])
    assert judged.found == judged.oracle


def test_finding_a_forbidden_patient_is_impossible() -> None:
    with pytest.raises(AssertionError, match="must not find"):
        judge(np.array([0.5, 0.5]), np.array([0, 1]), np.array([False, True]), found=[0])


def test_the_same_lesion_elsewhere_is_the_same_when_centred() -> None:
    labels = np.zeros((3, 20, 30), dtype=np.uint8)
    labels[0, 2:5, 3:8] = 2
    labels[1, 12:15, 20:25] = 2
    moved = centred(labels)
    assert np.array_equal(moved[0], moved[1])
    assert not moved[2].any()
