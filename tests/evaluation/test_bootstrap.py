"""Intervals of hand-made figures."""

from __future__ import annotations

import numpy as np
import pytest

from diptych.evaluation.bootstrap import Draws


def test_equal_values_are_certain() -> None:
    found = Draws.of(np.arange(5)).mean(np.full(5, 0.25))
    assert (found.value, found.low, found.high) == pytest.approx((0.25, 0.25, 0.25))


def test_the_interval_of_a_mean_is_that_of_the_normal_distribution() -> None:
    values = np.random.default_rng(0).normal(3.0, 2.0, size=400)
    found = Draws.of(np.arange(400), draws=8000).mean(values)
    reach = 1.96 * values.std() / 20
    assert (found.low, found.high) == pytest.approx((values.mean() - reach, values.mean() + reach), abs=0.02)


def test_a_constant_ratio_is_certain_however_values_scatter() -> None:
    oracle = np.array([0.1, 0.5, 0.9, 0.3])
    found = Draws.of(np.arange(4)).ratio(0.8 * oracle, oracle)
    assert (found.value, found.low, found.high) == pytest.approx((0.8, 0.8, 0.8))


def test_slices_of_one_person_are_drawn_together() -> None:
    draws = Draws.of([0, 0, 1, 2])
    assert np.array_equal(draws.weights[:, 0], draws.weights[:, 1])
    assert not np.array_equal(draws.weights[:, 1], draws.weights[:, 2])


def test_a_paired_difference_is_surer_than_two_intervals_apart() -> None:
    level = np.random.default_rng(1).random(40)
    found = Draws.of(np.arange(40)).mean((level + 0.02) - level)
    assert found.certain == 1


def test_the_same_seed_gives_the_same_interval() -> None:
    values = np.random.default_rng(2).random(9)
    assert Draws.of(np.arange(9), seed=3).mean(values) == Draws.of(np.arange(9), seed=3).mean(values)
