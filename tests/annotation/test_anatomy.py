"""Anatomy labels by registration: one true registration on a coarse phantom, the rest with the slow part replaced."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from diptych.annotation import anatomy_labels as anatomy
from diptych.annotation import registration
from diptych.annotation.anatomy_labels import annotate_anatomy, label_anatomy
from diptych.annotation.quality import Quality
from diptych.annotation.registration import Effort
from diptych.errors import DiptychError, MissingExtraError, VolumeError
from diptych.phantom import Phantom
from diptych.volumes import Volume, find_patients, read_patient, write_nifti
from diptych.volumes.nifti import read_nifti
from tests.annotation.conftest import write_case
from tests.conftest import Run

QUICK = Effort(affine=(200, 100, 0, 0), deformable=(10, 0))
GOOD = Quality("good", 0.6, 0.95, {}, {}, ())
FAILED = replace(GOOD, verdict="failed", remarks=("No voxel is left cerebellum.",))


def dice(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> float:
    return float(2 * np.count_nonzero(first & second) / (np.count_nonzero(first) + np.count_nonzero(second)))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace the registration by labels that split the brain in two; returns the keys that were labelled."""
    labelled: list[str] = []

    def label(volume: Volume, *, effort: Effort) -> tuple[NDArray[np.uint8], Quality]:
        labelled.append(volume.patient_key)
        labels = np.where(volume.brain, 1, 0).astype(np.uint8)
        labels[: volume.shape[0] // 2] *= 2
        return labels, FAILED if volume.patient_key.startswith("Bad") else GOOD

    monkeypatch.setattr(anatomy, "label_anatomy", label)
    return labelled


def test_a_registration_finds_both_sides(phantom: Phantom) -> None:
    labels, quality = label_anatomy(phantom.volume, effort=QUICK)
    truth = phantom.volume.anatomy
    assert truth is not None
    assert min(dice(labels == side, truth == side) for side in (1, 2)) > 0.7
    assert min(dice(labels == side, truth == side) for side in (3, 4)) > 0.5
    assert not labels[~phantom.volume.brain].any()
    assert 0.0 < quality.similarity <= 1.0


def test_labels_sheet_and_record_lie_beside_the_images(patients: Path, quick: list[str]) -> None:
    report = annotate_anatomy([patients])
    assert report.written == {"Case-1": GOOD}
    made = {path.name for path in (patients / "Case-1").glob("*-anatomy.*")}
    assert made == {f"Case-1-anatomy.{ending}" for ending in ("nii.gz", "png", "json")}
    assert read_patient(find_patients(patients)[0]).anatomy is not None


def test_labels_have_the_voxel_order_of_the_t1(patients: Path, phantom: Phantom, quick: list[str]) -> None:
    t1 = patients / "Case-1" / "Case-1-t1n.nii.gz"
    turn = np.array([[0, -1, 0, phantom.volume.shape[1] - 1], [1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1.0]])
    as_stored = phantom.volume.array[0].astype("int16").swapaxes(0, 1)[::-1]  # i runs backwards along y, j along x
    write_nifti(t1, as_stored, phantom.volume.affine @ np.linalg.inv(turn))
    annotate_anatomy([patients])
    labels, image = (read_nifti(t1.with_name(f"Case-1-{name}.nii.gz")) for name in ("anatomy", "t1n"))
    assert np.allclose(labels.affine, image.affine)
    assert np.array_equal(labels.stored > 0, image.stored > 0)


def test_a_second_run_has_nothing_to_do(patients: Path, tmp_path: Path, quick: list[str]) -> None:
    annotate_anatomy([patients], out=tmp_path / "out")
    assert annotate_anatomy([patients], out=tmp_path / "out").unchanged == ("Case-1",)
    assert quick == ["Case-1"]


def test_a_run_killed_before_its_labels_is_finished_by_the_next(patients: Path, quick: list[str]) -> None:
    annotate_anatomy([patients])
    (patients / "Case-1" / "Case-1-anatomy.nii.gz").unlink()
    assert list(annotate_anatomy([patients]).written) == ["Case-1"]


def test_new_images_get_new_labels(patients: Path, phantom: Phantom, quick: list[str]) -> None:
    annotate_anatomy([patients])
    write_nifti(patients / "Case-1" / "Case-1-t1n.nii.gz", phantom.volume.array[0] + 1, phantom.volume.affine)
    assert list(annotate_anatomy([patients]).written) == ["Case-1"]


def test_what_a_person_changed_is_left_alone(patients: Path, phantom: Phantom, quick: list[str]) -> None:
    annotate_anatomy([patients])
    path = patients / "Case-1" / "Case-1-anatomy.nii.gz"
    assert phantom.volume.anatomy is not None
    write_nifti(path, phantom.volume.anatomy, phantom.volume.affine)
    write_nifti(patients / "Case-1" / "Case-1-t1n.nii.gz", phantom.volume.array[0] + 1, phantom.volume.affine)
    edited = path.read_bytes()
    assert annotate_anatomy([patients]).unchanged == ("Case-1",)
    assert path.read_bytes() == edited
    assert list(annotate_anatomy([patients], replace=True).written) == ["Case-1"]


def test_a_failed_registration_is_shown_but_not_used(patients: Path, phantom: Phantom, quick: list[str]) -> None:
    write_case(patients, "Bad-1", phantom)
    for _ in range(2):
        report = annotate_anatomy([patients])
        assert "No voxel is left cerebellum." in report.failed["Bad-1"]
    assert quick == ["Bad-1", "Case-1"]
    assert (patients / "Bad-1" / "Bad-1-anatomy.png").is_file()
    assert not (patients / "Bad-1" / "Bad-1-anatomy.nii.gz").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: replace(v, channels=v.channels[1:], array=v.array[1:]), "has no T1"),
        (lambda v: replace(v, array=v.array + 5), "looks like a raw head"),
        (lambda v: replace(v, affine=v.affine * 0.5), "ml of brain"),
        (lambda v: replace(v, array=v.array * 0), "ml of brain"),
    ],
    ids=["no T1", "raw head", "small", "empty"],
)
def test_what_cannot_be_labelled_is_refused(phantom: Phantom, change: object, message: str) -> None:
    assert callable(change)
    with pytest.raises(DiptychError, match=message):
        label_anatomy(change(phantom.volume))


def test_a_missing_extra_is_named(patients: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ants", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'diptych\[annotation\]'"):
        annotate_anatomy([patients])


def test_trouble_inside_ants_is_one_line(phantom: Phantom, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> list[str]:
        raise RuntimeError("ITK\nsays no")

    monkeypatch.setattr(registration, "_find_transforms", fail)
    with pytest.raises(VolumeError, match=r"registration failed \(ITK says no\)"):
        label_anatomy(phantom.volume)


@pytest.mark.e2e
def test_the_command_goes_on_after_a_bad_patient(
    patients: Path, phantom: Phantom, diptych: Run, quick: list[str]
) -> None:
    annotate_anatomy([patients])
    write_case(patients, "Case-2", phantom, leave_out="t1n")
    done = diptych("annotate", "anatomy", patients, "--workers", 1)
    assert done.returncode == 4
    assert "0 patients labelled, 0 of them to be checked; 1 had labels; 1 failed" in done.stdout
    assert "failed: Case-2: Case-2: has no T1" in done.stderr


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize("key", ["BraTS-GLI-00013-000", "BraTS-GLI-00450-000"], ids=["usual", "poor T1"])
def test_real_patients_agree_with_labels_made_independently(brats: Path, key: str) -> None:
    volume = read_patient(find_patients(brats / "patients" / key)[0])
    reference = volume.anatomy
    assert reference is not None
    labels, quality = label_anatomy(replace(volume, anatomy=None))
    agreement = [dice(labels == value, reference == value) for value in range(1, 7)]
    assert quality.verdict == "good"
    assert np.greater(agreement, [0.95, 0.95, 0.90, 0.90, 0.75, 0.75]).all()
