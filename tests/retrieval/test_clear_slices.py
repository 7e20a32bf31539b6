"""Slices of a volume without labels count as lesion-free only well clear of a predicted lesion."""

from __future__ import annotations

import numpy as np

from diptych.retrieval.catalogue import CLEAR_MM, clear_of_lesions


def test_slices_near_a_predicted_lesion_do_not_count() -> None:
    heights = np.arange(0, 40, 2.0)
    area = np.where(heights == 10, 30.0, 0.0)
    assert clear_of_lesions(area, heights).tolist() == (np.abs(heights - 10) > CLEAR_MM).tolist()


def test_without_a_lesion_every_slice_counts_and_unknown_ones_never() -> None:
    area = np.array([0.0, np.nan, 0.0])
    assert clear_of_lesions(area, np.arange(3.0)).tolist() == [True, False, True]
