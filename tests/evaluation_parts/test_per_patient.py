from __future__ import annotations

import numpy as np
import pytest

from diptych.evaluation.bootstrap import plain, summarise
from diptych.evaluation.parts.codebooks import perplexity
from diptych.evaluation.parts.segmentation import size_groups


def test_what_is_not_a_number_is_left_out() -> None:
    summary = summarise([0.0, np.nan, 1.0])
    assert (summary.mean, summary.sd, summary.patients) == (0.5, 0.5, 2)


def test_the_interval_of_many_patients_is_that_of_the_mean() -> None:
    values = np.random.default_rng(0).normal(2.0, 1.0, size=400)
    summary = summarise(values)
    assert summary.high - summary.low == pytest.approx(2 * 1.96 / 20, rel=0.15)


def test_nobody_has_no_mean() -> None:
    assert summarise([np.nan]).cells == (None, None, None, None, 0)


def test_plain_values_survive_json() -> None:
    assert plain({1: np.array([1.0, np.nan]), "s": np.float32(2)}) == {"1": [1.0, None], "s": 2.0}


def test_even_use_of_codes_has_their_number_as_perplexity() -> None:
    assert perplexity(np.array([3, 3, 3, 3, 0, 0])) == pytest.approx(4)
    assert perplexity(np.array([9, 0, 0])) == pytest.approx(1)


def test_groups_by_size_hold_everybody_once() -> None:
    groups = size_groups(np.array([0.0, 30.0, 10.0, 20.0, 0.0, 40.0]))
    assert sorted(np.concatenate(list(groups.values())).tolist()) == [0, 1, 2, 3, 4, 5]
    assert groups["no lesion"].tolist() == [0, 4]
