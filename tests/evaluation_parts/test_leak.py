from __future__ import annotations

import numpy as np
import pytest
import torch

from diptych.evaluation.leak_classifier import (
    Classifier,
    ClassifierConfig,
    deal_patients,
    matched_pairs,
    positive_predictive_value,
    score_slices,
)

QUICK = ClassifierConfig(side=16, blocks=((1, 8), (1, 8)), hidden=8, epochs=5, batch_size=8, learning_rate=3e-3)


def _slices(*, patients: int = 6, each: int = 12) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Noise; every second slice is diseased."""
    rng = np.random.default_rng(0)
    images = rng.normal(size=(patients * each, 2, 16, 16)).astype(np.float16)
    diseased = np.arange(len(images)) % 2 == 1
    return images, diseased, np.repeat(np.arange(patients), each)


def test_a_lesion_that_shows_is_found_in_patients_never_seen() -> None:
    images, diseased, patient = _slices()
    images[diseased, :, 4:10, 4:10] += 2
    scores = score_slices(images, diseased, patient, config=QUICK)
    assert matched_pairs(scores, diseased, np.zeros(len(scores)), patient).auroc > 0.95
    assert positive_predictive_value(scores, diseased) > 0.9


def test_a_classifier_that_only_knows_height_scores_chance_on_matched_pairs() -> None:
    position = np.tile(np.linspace(0, 1, 11), 20)
    patient = np.repeat(np.arange(20), 11)
    diseased = np.random.default_rng(1).random(len(position)) < np.where(abs(position - 0.5) < 0.3, 0.9, 0.1)
    height = -abs(position - 0.5)
    confounded = matched_pairs(height, diseased, position, patient, window=1.0)
    matched = matched_pairs(height, diseased, position, patient)
    assert confounded.auroc > 0.8
    assert matched.auroc == 0.5  # every pair is a tie


def test_the_area_is_the_share_of_pairs_in_the_right_order() -> None:
    scores = np.array([0.9, 0.2, 0.5, 0.5])
    diseased = np.array([True, True, False, False])
    pairs = matched_pairs(scores, diseased, np.zeros(4), np.array([0, 1, 0, 1]))
    assert pairs.auroc == pytest.approx(0.5)
    assert pairs.total.sum() == 4
    low, high = pairs.interval(draws=200)
    assert 0 <= low <= 0.5 <= high <= 1


def test_no_patient_is_on_both_sides() -> None:
    patient = np.repeat(np.arange(9), 5)
    group = deal_patients(patient, groups=2, seed=3)
    assert all(len(set(group[patient == person])) == 1 for person in range(9))
    assert {4, 5} == {len(set(patient[group == number])) for number in (0, 1)}


def test_the_papers_network_has_its_layers() -> None:
    paper = ClassifierConfig(side=64, blocks=((2, 32), (2, 64), (3, 128), (3, 256)), hidden=256)
    network = Classifier(paper, channels=4)
    assert network(torch.zeros(2, 4, 64, 64)).shape == (2, 1)
    assert sum(isinstance(layer, torch.nn.Conv2d) for layer in network) == 10
