from __future__ import annotations

import numpy as np
import pytest

from diptych.description import GLIOMA
from diptych.evaluation.survey import survey
from tests.evaluation_parts.making import C, H, W, Z, decomposed


def test_a_perfect_network_makes_no_error() -> None:
    found = survey([decomposed()], codes=4)
    assert found.l1_reconstruction[0] == 0
    assert found.ssim_twin[0] == pytest.approx(1)
    assert found.dice["ED"].tolist() == found.dice["whole"].tolist() == [1.0]
    assert np.isnan(found.dice["ET"][0])  # neither there nor predicted


def test_the_papers_l1_sums_over_pixels_and_channels_of_a_slice() -> None:
    off = np.full((Z, C, H, W), 0.5, dtype=np.float16)
    found = survey([decomposed(reconstruction=off, healthy_twin=off)], codes=4)
    assert found.l1_reconstruction[0] == pytest.approx(0.5 * C * H * W)
    assert found.l1_twin[0] == pytest.approx(0.5 * C * (H * W - 12 / Z))  # 12 lesion pixels in one of two slices
    assert found.mean_twin[0] == pytest.approx(0.5)
    assert found.psnr_reconstruction[0] == pytest.approx(20 * np.log10(8 / 0.5))


def test_what_x_minus_shows_inside_the_lesion_does_not_count() -> None:
    patient = decomposed()
    twin = patient.images.copy()
    twin[:, :, 2:5, 3:7] = np.where(patient.lesion[:, None, 2:5, 3:7] > 0, 4.0, 0.0)
    assert survey([decomposed(healthy_twin=twin)], codes=4).l1_twin[0] == 0


def test_dice_is_of_the_volume_and_by_class() -> None:
    predicted = np.zeros((Z, H, W), dtype=np.uint8)
    predicted[0, 2:5, 3:5] = 2  # half of the oedema
    predicted[1, 10:12, 10:13] = 3  # six pixels of tumour that is not there
    found = survey([decomposed(predicted_lesion=predicted)], codes=4)
    assert found.dice["ED"][0] == pytest.approx(2 * 6 / (6 + 12))
    assert found.dice["ET"][0] == 0
    assert found.dice["whole"][0] == pytest.approx(2 * 6 / (12 + 12))
    assert found.lesion_ml[0] == pytest.approx(12 * 1 * 2 * 5 / 1000)


def test_distance_from_the_true_twin_is_taken_inside_the_lesion() -> None:
    patient = decomposed()
    lesion = patient.lesion[:, None] > 0
    image = np.where(lesion, 3.0, 0.0).astype(np.float16).repeat(C, axis=1)
    painted = np.where(lesion, 1.0, 0.25).astype(np.float16).repeat(C, axis=1)
    found = survey(
        [decomposed(images=image, reconstruction=image, healthy_twin=painted, twin=np.zeros_like(image))], codes=4
    )
    assert found.from_true_twin[0].tolist() == [3.0, 3.0, 1.0]
    assert found.from_true_twin_outside[0].tolist() == [0.0, 0.0, 0.25]


def test_codes_are_counted_by_panel() -> None:
    assert survey([decomposed(), decomposed()], codes=3).counts.tolist() == [[24, 0, 0], [0, 24, 0]]


def test_classes_are_those_of_the_paper() -> None:
    assert list(GLIOMA.regions) == ["ET", "ED", "NET", "whole"]
