"""Every naming of every release is found; what is ambiguous or unsafe is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from diptych.errors import LayoutError, MissingChannelError
from diptych.volumes import CHANNELS, PatientFiles, find_patients, patient_from_files, read_patient, subject_of
from tests.volumes.making import SINCE_2023, UNTIL_2022, write_patient


def touch(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


@pytest.mark.parametrize("names", [SINCE_2023, UNTIL_2022, ("T1", "T1Gd", "T2W", "FLAIR")])
@pytest.mark.parametrize("sep", ["-", "_"])
@pytest.mark.parametrize("end", [".nii", ".nii.gz", ".NII.GZ"])
def test_all_namings(tmp_path: Path, names: tuple[str, ...], sep: str, end: str) -> None:
    touch(tmp_path, *(f"CASE_1/CASE_1{sep}{name}{end}" for name in (*names, "seg")))
    (patient,) = find_patients(tmp_path)
    assert patient.patient_key == "CASE_1"
    assert [path.name for path in patient.channels.values()] == [f"CASE_1{sep}{name}{end}" for name in names]
    assert patient.lesion is not None


@pytest.mark.parametrize(
    "key",
    [
        *("Brats17_2013_10_1", "Brats18_TCIA02_135_1", "BraTS19_CBICA_AAB_1", "BraTS20_Training_001"),
        *("BraTS2021_00000", "BraTS-GLI-00000-000", "BraTS-SSA-00002-000", "BraTS-GLI-02060-100"),
    ],
)
def test_keys_of_all_releases(tmp_path: Path, key: str) -> None:
    touch(tmp_path, f"{key}/{key}_t1.nii.gz")
    assert find_patients(tmp_path)[0].patient_key == key


def test_flat_folder_of_many_patients(tmp_path: Path) -> None:
    touch(tmp_path, *(f"{key}_{name}.nii" for key in "BA" for name in UNTIL_2022))
    assert [(p.patient_key, len(p.channels)) for p in find_patients(tmp_path)] == [("A", 4), ("B", 4)]


def test_nested_groups(tmp_path: Path) -> None:
    touch(tmp_path, "HGG/A/A_t1.nii", "LGG/B/B_t1.nii", "LGG/deep/er/C/C_t1.nii")
    assert [patient.patient_key for patient in find_patients(tmp_path)] == ["A", "B", "C"]


def test_bare_names_take_the_folder_as_key(tmp_path: Path) -> None:
    touch(tmp_path, "case7/t1.nii.gz", "case7/flair.nii.gz", "case7/seg.nii.gz")
    (patient,) = find_patients(tmp_path / "case7")
    assert (patient.patient_key, tuple(patient.channels)) == ("case7", ("t1", "flair"))


def test_twin_and_anatomy_of_a_phantom(tmp_path: Path) -> None:
    touch(tmp_path, "P-1/P-1-t1n.nii.gz", "P-1/P-1-twin-t1n.nii.gz", "P-1/P-1-anatomy.nii.gz")
    (patient,) = find_patients(tmp_path)
    assert (tuple(patient.twin), patient.anatomy) == (("t1",), tmp_path / "P-1/P-1-anatomy.nii.gz")


def test_misnamed_labels_of_brats_2020_patient_355(tmp_path: Path) -> None:
    touch(tmp_path, "X_355/X_355_t1.nii", "X_355/W39_1998.09.19_Segm.nii")
    (patient,) = find_patients(tmp_path)
    assert (patient.patient_key, patient.lesion) == ("X_355", tmp_path / "X_355/W39_1998.09.19_Segm.nii")


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    touch(tmp_path, "A_t1.nii", "._A_t1.nii", "A-t1n-voided.nii.gz", "B_seg.nii.gz", "notes.txt", ".git/Z_t1.nii")
    assert [patient.patient_key for patient in find_patients(tmp_path)] == ["A"]


@pytest.mark.parametrize("second", ["A_t1.nii.gz", "A-t1n.nii", "A_T1.nii"])
def test_two_files_for_one_channel(tmp_path: Path, second: str) -> None:
    touch(tmp_path, "A_t1.nii", second)
    with pytest.raises(LayoutError, match="already has a t1 file"):
        find_patients(tmp_path)


def test_one_key_in_two_folders(tmp_path: Path) -> None:
    touch(tmp_path, "one/A_t1.nii", "two/A_t1.nii")
    with pytest.raises(LayoutError, match="is also in"):
        find_patients(tmp_path)


def test_nothing_found_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(LayoutError, match=r"t1n.*t1ce.*flair"):
        find_patients(tmp_path)


@pytest.mark.parametrize("name", ["absent", "file"])
def test_source_must_be_a_folder(tmp_path: Path, name: str) -> None:
    touch(tmp_path, "file")
    with pytest.raises(LayoutError, match="not a folder"):
        find_patients(tmp_path / name)


@pytest.mark.parametrize("key", ["a b", "ключ", "a\nb", "-x", "x" * 65, "a;rm", "$(x)", "<b>"])
def test_unsafe_keys_are_refused_in_one_line(tmp_path: Path, key: str) -> None:
    touch(tmp_path, f"{key}_t1.nii")
    with pytest.raises(LayoutError, match="cannot be a patient key") as caught:
        find_patients(tmp_path)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("key", ["", "..", "../x", "a/b"])
def test_unsafe_explicit_keys(key: str) -> None:
    with pytest.raises(LayoutError, match="cannot be a patient key"):
        patient_from_files(t1="t1.nii", patient_key=key)


def test_links_that_loop_end(tmp_path: Path) -> None:
    touch(tmp_path, "A/A_t1.nii")
    (tmp_path / "A/up").symlink_to(tmp_path)
    (tmp_path / "self").symlink_to(tmp_path / "self")
    assert len(find_patients(tmp_path)) == 1


def test_explicit_files(tmp_path: Path) -> None:
    patient = patient_from_files(t2=tmp_path / "K-1_t2.nii", t1="x.nii", patient_key="me")
    assert (patient.patient_key, tuple(patient.channels)) == ("me", ("t1", "t2"))


@pytest.mark.parametrize(("name", "key"), [("K-1_t2.nii", "K-1"), ("scan.nii.gz", "scan"), ("dir/t2.nii", "dir")])
def test_explicit_files_give_a_key(name: str, key: str) -> None:
    assert patient_from_files(t2=name).patient_key == key


def test_explicit_files_need_one_channel() -> None:
    with pytest.raises(LayoutError, match="at least one of the channels t1, t1gd, t2, flair"):
        patient_from_files(lesion="seg.nii")


def test_one_file_for_two_channels() -> None:
    with pytest.raises(LayoutError, match="both as t1 and as t2"):
        patient_from_files(t1="a.nii", t2="a.nii")


def test_missing_channel_names_it_and_its_files(tmp_path: Path) -> None:
    write_patient(tmp_path, "A", ("t1n", "t2w", "t2f"))
    (patient,) = find_patients(tmp_path)
    with pytest.raises(MissingChannelError, match=r"no t1gd.*A-t1c\.nii.*A-t1ce\.nii"):
        read_patient(patient, required=CHANNELS)


def test_patient_without_any_image() -> None:
    with pytest.raises(MissingChannelError, match="no t1"):
        read_patient(PatientFiles("A", {}))


def test_channels_are_put_in_order_and_known() -> None:
    assert tuple(PatientFiles("A", {"flair": Path("f"), "t1": Path("t")}).channels) == ("t1", "flair")
    with pytest.raises(LayoutError, match="'ct' is not known; channels are t1"):
        PatientFiles("A", {"ct": Path("c")})


def test_subset_of_channels_reads(tmp_path: Path) -> None:
    write_patient(tmp_path, "A", ("t2w", "t1n"))
    assert read_patient(find_patients(tmp_path)[0], required=("t2",)).channels == ("t1", "t2")


def test_time_points_share_a_subject() -> None:
    assert subject_of("BraTS-GLI-00020-000") == subject_of("BraTS-GLI-00020-001") != subject_of("BraTS-GLI-00021-000")
