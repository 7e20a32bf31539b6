"""Labels that other programs made."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from diptych.annotation.imported_labels import import_labels
from diptych.annotation.label_mapping import read_mapping
from diptych.phantom import Phantom
from diptych.volumes import find_patients, read_patient, write_nifti
from tests.annotation.conftest import write_case
from tests.conftest import Run

ASEG = np.array([0, 2, 41, 8, 47, 4, 43], dtype=np.int16)


def write_aseg(path: Path, phantom: Phantom, *, shift_mm: float = 0.0) -> Path:
    """FreeSurfer's ids on a grid twice as fine as the patient's, with other axes."""
    anatomy, affine = phantom.volume.anatomy, phantom.volume.affine.copy()
    assert anatomy is not None
    fine = ASEG[np.kron(anatomy, np.ones((2, 2, 2), dtype=np.uint8))]
    half = np.diag([0.5, 0.5, 0.5, 1.0])
    half[:3, 3] = -0.25
    affine = affine @ half
    affine[0, 3] += shift_mm
    turned = affine @ np.array([[-1, 0, 0, fine.shape[0] - 1], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1.0]])
    path.parent.mkdir(parents=True, exist_ok=True)
    write_nifti(path, fine[::-1], turned)
    return path


def labels_of(patients: Path) -> NDArray[np.uint8]:
    anatomy = read_patient(find_patients(patients)[0]).anatomy
    assert anatomy is not None
    return anatomy


def test_an_aseg_of_another_grid_becomes_the_six_labels(patients: Path, phantom: Phantom, tmp_path: Path) -> None:
    write_aseg(tmp_path / "fs" / "Case-1" / "aseg.nii.gz", phantom)
    report = import_labels([patients], tmp_path / "fs")
    assert phantom.volume.anatomy is not None
    truth = np.where(phantom.volume.brain, phantom.volume.anatomy, 0)
    assert (list(report.written), report.failed) == (["Case-1"], {})
    assert np.mean(labels_of(patients) == truth) > 0.999


def test_labels_that_are_there_stay_unless_told_otherwise(patients: Path, phantom: Phantom, tmp_path: Path) -> None:
    path = write_aseg(tmp_path / "Case-1_synthseg.nii.gz", phantom)
    import_labels([patients], path)
    assert import_labels([patients], path).unchanged == ("Case-1",)
    assert list(import_labels([patients], path, replace=True).written) == ["Case-1"]


def test_a_mapping_file_gives_other_ids_a_meaning(patients: Path, phantom: Phantom, tmp_path: Path) -> None:
    (tmp_path / "ids.txt").write_text("2 1\n41 2\n8 cerebellum\n47 right cerebellum\n4 left cerebellum\n43 0\n")
    path = write_aseg(tmp_path / "Case-1.nii.gz", phantom)
    import_labels([patients], path, mapping=read_mapping(tmp_path / "ids.txt"))
    assert set(np.unique(labels_of(patients)).tolist()) == {0, 1, 2, 3, 4}


def test_labels_of_another_place_are_refused(patients: Path, phantom: Phantom, tmp_path: Path) -> None:
    path = write_aseg(tmp_path / "Case-1.nii.gz", phantom, shift_mm=150.0)
    assert "lie on the patient's brain" in import_labels([patients], path).failed["Case-1"]


def test_freesurfers_own_format_says_how_to_convert(patients: Path, tmp_path: Path) -> None:
    (tmp_path / "fs" / "Case-1").mkdir(parents=True)
    (tmp_path / "fs" / "Case-1" / "aseg.mgz").write_bytes(b"")
    assert "mri_convert aseg.mgz" in import_labels([patients], tmp_path / "fs").failed["Case-1"]


@pytest.mark.e2e
def test_one_patient_without_labels_does_not_stop_the_others(
    patients: Path, phantom: Phantom, tmp_path: Path, diptych: Run
) -> None:
    write_case(patients, "Case-2", phantom)
    write_aseg(tmp_path / "fs" / "Case-1.nii.gz", phantom)
    done = diptych("annotate", "import", patients, "--labels", tmp_path / "fs", "--out", tmp_path / "out")
    assert done.returncode == 4
    assert "1 imported, 0 had labels, 1 failed" in done.stdout
    assert "failed: Case-2:" in done.stderr
    assert (tmp_path / "out" / "Case-1" / "Case-1-anatomy.nii.gz").is_file()
