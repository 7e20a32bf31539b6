"""Dice by region, both conventions for absent compartments, and disagreement."""

from __future__ import annotations

import numpy as np

from diptych.annotation.lesions.prediction import dice_by_region, disagreement, mean_dice

ONE = np.array([0, 1, 3, 2], dtype=np.uint8)
OTHER = np.array([0, 3, 3, 2], dtype=np.uint8)


def test_regions() -> None:
    assert dice_by_region(ONE, OTHER) == {"ET": 2 / 3, "ED": 1.0, "TC": 1.0, "NET": 0.0, "WT": 1.0}


def test_absent_in_both_is_left_out_or_counts_as_nothing() -> None:
    means = mean_dice([dice_by_region(ONE, ONE), dice_by_region(OTHER, OTHER)])
    assert means["NET"] == {"dice": 1.0, "dice_absent_as_0": 0.5, "patients": 1}


def test_disagreement_is_0_for_one_mind_and_1_for_nothing_shared() -> None:
    assert disagreement([ONE, ONE], ONE) == 0.0
    assert disagreement([np.zeros_like(ONE)], ONE) == 1.0
    assert disagreement([np.zeros_like(ONE)], np.zeros_like(ONE)) == 0.0
