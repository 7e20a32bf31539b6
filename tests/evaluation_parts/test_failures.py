from __future__ import annotations

import numpy as np
import pytest

from diptych.evaluation.parts.failures import find_failures
from tests.evaluation_parts.making import H, W, Z, decomposed

LESION = np.zeros((Z, H, W), dtype=np.uint8)
LESION[0, 2:7, 3:8] = 2


def test_a_perfect_reading_fails_nowhere() -> None:
    found = find_failures(decomposed(lesion=LESION, predicted_lesion=LESION))
    assert {name: one.failed for name, one in found.items()} == dict.fromkeys(found, 0)
    assert found["left_ill"].asked == 0  # no true twin to compare with


def test_a_lesion_that_is_not_found_is_missed_and_not_mistaken() -> None:
    found = find_failures(decomposed(lesion=LESION, predicted_lesion=np.zeros_like(LESION)))
    assert (found["missed"].asked, found["missed"].failed, found["missed"].worst) == (1, 1, 0)
    assert found["missed"].severity == 25
    assert found["mistaken"].asked == 0


def test_a_lesion_too_small_to_see_is_not_asked_for() -> None:
    small = np.zeros_like(LESION)
    small[0, 2:4, 3:7] = 1
    assert find_failures(decomposed(lesion=small, predicted_lesion=np.zeros_like(small)))["missed"].asked == 0


def test_a_lesion_in_a_healthy_slice_is_imagined() -> None:
    predicted = LESION.copy()
    predicted[1, :6, :6] = 1
    found = find_failures(decomposed(lesion=LESION, predicted_lesion=predicted))["imagined"]
    assert (found.asked, found.failed, found.worst, found.severity) == (1, 1, 1, 36)


def test_classes_can_be_mistaken() -> None:
    predicted = np.where(LESION > 0, 3, 0).astype(np.uint8)
    found = find_failures(decomposed(lesion=LESION, predicted_lesion=predicted))["mistaken"]
    assert (found.failed, found.severity) == (1, 1.0)


def test_a_twin_is_judged_by_the_true_one_inside_the_lesion() -> None:
    image = decomposed().images
    ill = image.copy()
    ill[0, :, 2:7, 3:8] = 1
    ill[0, :, 10:, :] = 3  # outside the lesion: another matter
    found = find_failures(decomposed(lesion=LESION, predicted_lesion=LESION, twin=image, healthy_twin=ill))["left_ill"]
    assert (found.asked, found.failed) == (1, 1)
    assert found.severity == pytest.approx(1.0)
