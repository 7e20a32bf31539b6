"""BIDS names: who, which visit, what; masks from anywhere in the data set; a brain mask is no lesion."""

from __future__ import annotations

from pathlib import Path

import pytest

from diptych.errors import InputError
from diptych.volumes import find_patients, subject_of
from diptych.volumes.bids import parse_name, participants_table


def touch(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def test_persons_and_visits_with_masks_from_derivatives(tmp_path: Path) -> None:
    touch(
        tmp_path,
        "sub-01/ses-1/anat/sub-01_ses-1_T1w.nii.gz",
        "sub-01/ses-1/anat/sub-01_ses-1_FLAIR.nii.gz",
        "sub-01/ses-2/anat/sub-01_ses-2_T1w.nii.gz",
        "sub-02/anat/sub-02_ce-gadolinium_T1w.nii.gz",
        "derivatives/lesions/sub-01/ses-1/anat/sub-01_ses-1_space-T1w_label-lesion_mask.nii.gz",
        "derivatives/fmriprep/sub-01/ses-1/anat/sub-01_ses-1_desc-preproc_T1w.nii.gz",
        "derivatives/fmriprep/sub-01/ses-1/anat/sub-01_ses-1_desc-brain_mask.nii.gz",
    )
    first, second, third = find_patients(tmp_path)
    assert [p.patient_key for p in (first, second, third)] == ["sub-01_ses-1", "sub-01_ses-2", "sub-02"]
    assert list(first.channels) == ["t1", "flair"]
    assert first.channels["t1"].name == "sub-01_ses-1_T1w.nii.gz"
    assert first.lesion is not None
    assert "label-lesion" in first.lesion.name
    assert list(third.channels) == ["t1gd"]
    assert subject_of(first.patient_key) == subject_of(second.patient_key) == "sub-01"


def test_derivatives_alone_are_a_data_set_and_stripped_images_are_preferred(tmp_path: Path) -> None:
    touch(
        tmp_path,
        "derivatives/x/sub-1/anat/sub-1_T1w.nii.gz",
        "derivatives/x/sub-1/anat/sub-1_desc-brain_T1w.nii.gz",
        "derivatives/x/sub-1/anat/sub-1_lesion.nii.gz",
        "derivatives/x/sub-1/anat/sub-1-anatomy.nii.gz",
    )
    (patient,) = find_patients(tmp_path)
    assert patient.channels["t1"].name == "sub-1_desc-brain_T1w.nii.gz"
    assert patient.lesion is not None
    assert patient.anatomy is not None


def test_a_brain_mask_of_any_name_is_no_lesion(tmp_path: Path) -> None:
    touch(tmp_path, "P1/P1_t1.nii.gz", "P1/P1_brain_mask.nii.gz", "P1/other_roi.nii.gz")
    assert find_patients(tmp_path)[0].lesion is None
    touch(tmp_path, "P1/P1_mask.nii.gz")
    lesion = find_patients(tmp_path)[0].lesion
    assert lesion is not None
    assert lesion.name == "P1_mask.nii.gz"


@pytest.mark.parametrize("name", ["sub-01_bold.nii.gz", "sub-01_desc-brain_mask.nii.gz", "t1.nii.gz"])
def test_names_of_no_use(name: str) -> None:
    assert parse_name(name) is None


def test_the_table_of_participants_tells_sex_age_and_who_is_healthy(tmp_path: Path) -> None:
    from diptych.archive.metadata import DateShift, MetadataTable
    from diptych.archive.records import VolumeInfo

    table = tmp_path / "participants.tsv"
    table.write_text(
        "participant_id\tage\tsex\tgroup\tsite\nsub-01\t61\tfemale\tstroke\tA\nsub-02\tn/a\tM\tcontrol\tB\n"
    )
    assert participants_table(tmp_path) == table
    rows, shift = MetadataTable(table), DateShift(b"secret")
    patient = rows.describe(VolumeInfo("sub-01_ses-1", "sub-01"), shift)
    control = rows.describe(VolumeInfo("sub-02", "sub-02"), shift)
    assert (patient.sex, patient.age, patient.tags) == ("F", 61.0, ())
    assert (control.sex, control.age, control.tags) == ("M", None, ("healthy",))
    table.write_text("name\tage\nsub-01\t61\n")
    with pytest.raises(InputError, match="participant_id"):
        MetadataTable(table)
