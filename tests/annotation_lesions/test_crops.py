"""Crops: the same for the same step, image and labels in step, and half of them on the lesion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from diptych.annotation.lesions.crops import CropSampler
from diptych.annotation.lesions.lesion_cases import Case, prepare_cases
from diptych.description import GLIOMA
from diptych.volumes import find_patients
from tests.annotation_lesions.making import TINY


def sampler_of(patients: Path, folder: Path) -> CropSampler:
    cases, failed = prepare_cases(find_patients(patients), folder, about=GLIOMA, spacing_mm=2.0)
    assert not failed
    return CropSampler(list(cases.values()), TINY, fold=1)


def test_step_decides(patients: Path, tmp_path: Path) -> None:
    sampler = sampler_of(patients, tmp_path)
    first, again, next_one = sampler.draw(5), sampler.draw(5), sampler.draw(6)
    assert first.images.shape == (2, 4, 8, 8, 8)
    assert first.labels.shape == (2, 1, 8, 8, 8)
    assert torch.equal(first.images, again.images)
    assert not torch.equal(first.images, next_one.images)


def test_image_and_labels_flip_together(patients: Path, tmp_path: Path) -> None:
    """Enhancing voxels are the brightest in T1Gd, wherever the crop and its flips put them."""
    sampler = sampler_of(patients, tmp_path)
    for step in range(12):
        crops = sampler.draw(step)
        enhancing = (crops.labels[:, 0] == 3) & (crops.images[:, 1] != 0)
        others = (crops.labels[:, 0] != 3) & (crops.images[:, 1] != 0)
        if enhancing.any():
            assert crops.images[:, 1][enhancing].min() > np.quantile(crops.images[:, 1][others].numpy(), 0.99)


def test_every_patient_once_per_epoch(patients: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sampler, seen = sampler_of(patients, tmp_path), []
    read = Case.image

    def noting(case: Case, place: Any = None) -> Any:
        seen.append(case.patient_key)
        return read(case, place)

    monkeypatch.setattr(Case, "image", noting)
    for step in range(sampler.steps_per_epoch):
        sampler.draw(step)
    assert sorted(seen) == [case.patient_key for case in sampler.cases]
