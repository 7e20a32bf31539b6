from __future__ import annotations

import numpy as np
import pytest
import torch

from diptych.evaluation.leak_classifier import (
    Classifier,
    ClassifierConfig,
    deal_patients,
    height_scores,
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


def _patients(rng: np.random.Generator, count: int = 40) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Heights of slices, which of them one lesion per patient makes diseased, and whose they are."""
    heights = [np.linspace(0, 1, rng.integers(60, 78)) for _ in range(count)]
    centre, reach = np.clip(rng.normal(0.55, 0.15, count), 0.1, 0.9), rng.uniform(0.08, 0.3, count)
    diseased = [abs(z - c) < r for z, c, r in zip(heights, centre, reach, strict=True)]
    return np.concatenate(heights), np.concatenate(diseased), np.repeat(np.arange(count), [len(z) for z in heights])


@pytest.mark.parametrize("in_turns", [True, False], ids=["patients in turns", "taught by others"])
@pytest.mark.parametrize(("leak", "expected"), [(0.0, 0.5), (1.0, 0.760)])
def test_without_a_leak_matched_pairs_give_one_half_and_a_planted_one_is_found(
    leak: float, expected: float, in_turns: bool
) -> None:
    """Scores know height, as any classifier does, with noise of one; a leak of 1 then is Φ(1 / √2) = .760.

    Either 40 patients judge one another in five groups, or the first 40 teach a classifier that judges the next 40.
    """
    found = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        position, diseased, patient = _patients(rng, 40 if in_turns else 80)
        group = deal_patients(patient, groups=5, seed=seed) if in_turns else patient // 40
        share = height_scores(diseased, position, group=group)
        scores = np.log(share / (1 - share)) + leak * diseased + rng.normal(size=len(share))
        judged = (group >= 0) if in_turns else (group == 1)
        pairs = matched_pairs(scores[judged], diseased[judged], position[judged], patient[judged], group=group[judged])
        found.append(pairs.auroc)
    assert np.mean(found) == pytest.approx(expected, abs=0.02)


def test_pairs_across_classifiers_would_fall_below_one_half() -> None:
    position, diseased, patient = _patients(np.random.default_rng(0))
    group = deal_patients(patient, groups=5, seed=0)
    scores = height_scores(diseased, position, group=group)
    assert matched_pairs(scores, diseased, position, patient).auroc < 0.42
    assert matched_pairs(scores, diseased, position, patient, group=group).auroc == pytest.approx(0.5, abs=0.02)


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
