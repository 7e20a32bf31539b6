"""Stroke phantoms: one class, dark on T1, on one side, in a known brain."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from diptych.description import STROKE
from diptych.errors import UsageError
from diptych.phantom import Phantom, PhantomConfig, make_phantom, write_phantoms
from diptych.phantom.stroke import StrokePlan
from diptych.volumes import find_patients, read_patient

COARSE = PhantomConfig(disease="stroke", voxel_mm=6.0, samples=1)


@pytest.fixture(scope="module")
def phantom() -> Phantom:
    return make_phantom(5, index=2, config=COARSE)


def test_the_lesion_is_one_class_on_its_own_side_and_dark_on_t1(phantom: Phantom) -> None:
    volume, plan = phantom.volume, phantom.plan
    assert isinstance(plan, StrokePlan)
    assert volume.lesion is not None
    assert volume.anatomy is not None
    assert volume.twin is not None
    lesion = volume.lesion > 0
    assert set(np.unique(volume.lesion)) == {0, 1}
    assert volume.description == STROKE
    assert not np.isin(volume.anatomy[lesion], (1, 3, 5) if plan.side == "right" else (2, 4, 6)).any()
    assert volume.array[0][lesion].mean() < 0.8 * volume.twin[0][lesion].mean()
    outside = volume.brain & (volume.array[0] == volume.twin[0])
    assert outside[~lesion].sum() > 0.8 * (volume.brain & ~lesion).sum()


def test_its_size_is_the_planned_one(phantom: Phantom) -> None:
    assert isinstance(phantom.plan, StrokePlan)
    assert phantom.volume.lesion is not None
    found = np.count_nonzero(phantom.volume.lesion) * 6.0**3 / 1000.0
    assert 0.6 * phantom.plan.volume_ml < found < 1.4 * phantom.plan.volume_ml


def test_a_stroke_on_disk_is_read_in_its_own_classes(tmp_path: Path) -> None:
    write_phantoms(tmp_path, patients=1, seed=1, config=PhantomConfig(disease="stroke", voxel_mm=8.0, samples=1))
    (files,) = find_patients(tmp_path)
    volume = read_patient(files, description=STROKE)
    assert files.patient_key == "PhantomStroke-00001-00000"
    assert (volume.channels, volume.description.lesion_names) == (("t1",), {1: "lesion"})


def test_an_unknown_disease_is_refused() -> None:
    with pytest.raises(UsageError, match="choose one of glioma, stroke"):
        PhantomConfig(disease="flu")  # type: ignore[arg-type]
