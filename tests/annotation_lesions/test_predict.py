"""Predictions: the mean of the models, on the grid of the patient's files, and one bad patient stops no other."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from diptych.annotation.lesions import predict_lesions
from diptych.annotation.lesions.ensemble_folder import CONFIG, load_ensemble
from diptych.annotation.lesions.grid import brain_box, working_image
from diptych.annotation.lesions.lesion_network import mean_probabilities, probabilities
from diptych.annotation.lesions.prediction import predict_volume
from diptych.errors import ModelError
from diptych.volumes import find_patients, read_patient
from diptych.volumes.nifti import read_nifti
from tests.annotation_lesions.making import SHAPE, write_case
from tests.conftest import Run

RAS_TURNED = np.array([[0, 2.0, 0, -7], [0, 0, -2.0, 9], [2.0, 0, 0, 3], [0, 0, 0, 1]])
"""Axes superior, right, posterior: nothing is where canonical axes have it."""


def test_ensemble_is_the_mean_of_its_models(finished: Path, patients: Path) -> None:
    ensemble = load_ensemble(finished)
    volume = read_patient(find_patients(patients)[0])
    box = brain_box(volume, 2.0)
    image = working_image(volume, box)
    maps = [probabilities(network, image, multiple=2) for network in ensemble.networks]
    assert np.allclose(mean_probabilities(maps), sum(maps) / len(maps), atol=1e-6)
    assert np.allclose(mean_probabilities(maps).sum(axis=0), 1, atol=1e-5)
    expected = np.zeros(volume.shape, dtype=np.uint8)
    expected[box.place] = np.asarray(sum(maps)).argmax(axis=0)
    expected[~volume.brain] = 0
    assert np.array_equal(predict_volume(volume, ensemble).labels, expected)


def test_labels_land_on_the_source_grid(finished: Path, tmp_path: Path) -> None:
    """The same patient, stored with other axes, gets the same labels in the same places of the body."""
    write_case(tmp_path / "straight", 7)
    write_case(tmp_path / "turned", 7, affine=RAS_TURNED, turn=lambda array: array[::-1, :, :].transpose(2, 0, 1))
    found = {}
    for name in ("straight", "turned"):
        predict_lesions(find_patients(tmp_path / name), finished, tmp_path / f"{name}-out", threads=1)
        image = read_nifti(tmp_path / name / "case-07/case-07-t1n.nii.gz")
        labels = read_nifti(tmp_path / f"{name}-out/case-07/case-07-seg.nii.gz")
        assert labels.stored.shape == image.stored.shape
        assert np.array_equal(labels.affine, image.affine)
        assert labels.stored.dtype == np.uint8
        found[name] = labels.stored
    assert found["straight"].any()
    assert np.array_equal(found["straight"][::-1, :, :].transpose(2, 0, 1), found["turned"])


def test_list_tells_volumes_and_disagreement(finished: Path, tmp_path: Path) -> None:
    write_case(tmp_path / "in", 7)
    report = predict_lesions(find_patients(tmp_path / "in"), finished, tmp_path / "out", threads=1)
    entry = json.loads((tmp_path / "out/predictions.json").read_text())["case-07"]
    labels = read_nifti(tmp_path / "out" / entry["file"]).stored
    assert 0 <= entry["disagreement"] <= 1
    assert entry["volumes_ml"]["ED"] == pytest.approx(np.sum(labels == 2) * 0.008)
    assert entry["models"] == 3
    assert report.dice["WT"]["patients"] == 1


def test_training_patients_are_marked_and_not_scored(finished: Path, patients: Path, tmp_path: Path) -> None:
    report = predict_lesions(find_patients(patients)[:1], finished, tmp_path / "out", threads=1)
    entry = json.loads((tmp_path / "out/predictions.json").read_text())["case-00"]
    assert entry["warnings"] == ["All models but one were trained on this patient."]
    assert not report.dice


def test_second_run_leaves_alone_what_is_done(finished: Path, tmp_path: Path) -> None:
    write_case(tmp_path / "in", 7)
    found = find_patients(tmp_path / "in")
    predict_lesions(found, finished, tmp_path / "out", threads=1)
    assert predict_lesions(found, finished, tmp_path / "out", threads=1).unchanged == ("case-07",)


def test_bad_patients_are_reported_and_the_others_labelled(finished: Path, tmp_path: Path) -> None:
    write_case(tmp_path / "in", 7)
    write_case(tmp_path / "in", 8, key="empty", turn=lambda array: array * 0)
    write_case(tmp_path / "in", 9, key="head", labels=None, turn=lambda array: array + 5)
    write_case(tmp_path / "in", 9, key="short")
    (tmp_path / "in/short/short-t1n.nii.gz").unlink()
    report = predict_lesions(find_patients(tmp_path / "in"), finished, tmp_path / "out", threads=1)
    assert report.written == ("case-07",)
    assert {key: reason.split(": ", 1)[1][:24] for key, reason in report.failed.items()} == {
        "empty": "t1 has no voxel above ze",
        "head": "This looks like a raw he",
        "short": "patient short has no t1,",
    }


def test_changed_weights_are_refused(finished: Path, tmp_path: Path) -> None:
    import shutil

    model = shutil.copytree(finished / "model", tmp_path / "model")
    shutil.copy(model / "fold-2.safetensors", model / "fold-1.safetensors")
    with pytest.raises(ModelError, match="changed or mixed up"):
        load_ensemble(model)
    (model / CONFIG).unlink()
    with pytest.raises(ModelError, match="give the run of a finished"):
        load_ensemble(model)


@pytest.mark.e2e
def test_command(finished: Path, tmp_path: Path, diptych: Run) -> None:
    write_case(tmp_path / "in", 7)
    write_case(tmp_path / "in", 8, key="empty", turn=lambda array: array * 0)
    done = diptych("annotate", "lesions", "predict", "in", "--model", finished, "--out", "out", "--threads", 1)
    assert done.returncode == 4, done.stderr
    assert "1 patients labelled" in done.stdout
    assert "failed: empty:" in done.stderr
    assert read_nifti(tmp_path / "out/case-07/case-07-seg.nii.gz").stored.shape == SHAPE
