"""From a study to a patient and back: the parts in a moment, the whole chain as slow tests on raw-head phantoms."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import diptych
from diptych.cli.app import app
from diptych.errors import DiptychError, GeometryError, InputError, LabelError, MissingChannelError
from diptych.intake import IntakeRecord, file_back, labels_back, read_record
from diptych.intake.atlas_space import SRI24
from diptych.intake.dicom_files import opened
from diptych.intake.intake_record import SeriesRecord, matrix_rows, write_record
from diptych.intake.many_patients import intake_sources, needs_intake
from diptych.intake.pipeline import inputs_digest, pseudonym, read_source
from diptych.intake.raw_nifti import series_from_nifti
from diptych.intake.resampling import Placed, grid_points, resample
from diptych.phantom.phantom_config import PhantomConfig
from diptych.phantom.phantom_dicom import DicomStyle, Person, Study, write_series, write_study
from diptych.phantom.raw_head import RawSeries, rigid, usual_study
from diptych.volumes import find_patients, read_patient, subject_of, write_nifti
from tests.intake.reading import read_study

take_in: Any = diptych.intake
"""The package is also its main verb."""
CENTRE = np.array([-120.0, 120.0, 77.0])


@pytest.fixture
def series() -> SeriesRecord:
    """A FLAIR of 6 mm whose head lies somewhere else than in the atlas."""
    affine = np.array([[-1.0, 0, 0, 110], [0, -1.0, 0, 130], [0, 0, 6.0, -60], [0, 0, 0, 1]])
    transform = rigid((8, -5, 12), (120, -119, -70), CENTRE)
    return SeriesRecord("s5", "flair", (), (220, 240, 30), matrix_rows(affine), matrix_rows(transform))


@pytest.fixture
def record(series: SeriesRecord, tmp_path: Path) -> IntakeRecord:
    made = IntakeRecord("P1", tmp_path, (series,), (), "t1gd", {"overlap": 0.9}, 1400.0)
    write_record(made, tmp_path)
    return made


def lesion() -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """A ball with a core, in the atlas."""
    x, y, z = np.indices(SRI24.shape)
    away = np.sqrt((x - 90) ** 2 + (y - 110) ** 2 + (z - 80) ** 2)
    return np.select([away < 9, away < 20], [1, 2], 0).astype(np.uint8)


def test_labels_go_back_and_come_again(series: SeriesRecord) -> None:
    labels = lesion()
    back = labels_back(labels, SRI24.affine, series)
    again = resample(Placed((back > 0).astype(np.float32), series.grid.affine), SRI24, series.matrix) > 0.5
    assert set(np.unique(back)) == {0, 1, 2}
    assert 2 * (again & (labels > 0)).sum() / (again.sum() + (labels > 0).sum()) > 0.93


def test_a_record_is_read_as_it_was_written(record: IntakeRecord, tmp_path: Path) -> None:
    assert read_record(tmp_path) == record
    assert read_record(tmp_path).find("FLAIR").key == "s5"
    with pytest.raises(InputError, match=r"was not used for this patient; there are s5 \(flair\)"):
        record.find("s9")


@pytest.mark.parametrize("damage", ["", "{", '{"format": 9}', '{"format": 1, "series": [{"key": 3}]}'])
def test_a_damaged_record_is_one_line(damage: str, tmp_path: Path) -> None:
    (tmp_path / "intake.json").write_text(damage)
    with pytest.raises(InputError):
        read_record(tmp_path)


def test_back_from_the_command_line(record: IntakeRecord, tmp_path: Path) -> None:
    write_nifti(tmp_path / "P1-seg.nii.gz", lesion(), SRI24.affine)
    result = CliRunner().invoke(app, ["intake", "back", str(tmp_path), "--to", "flair"])
    assert result.exit_code == 0
    assert "on the grid of s5 (flair), 220 x 240 x 30 voxels" in result.output
    assert (tmp_path / "P1-seg-on-s5.nii.gz").is_file()


def test_what_does_not_lie_in_the_atlas_does_not_go_back(record: IntakeRecord, tmp_path: Path) -> None:
    write_nifti(tmp_path / "far.nii.gz", lesion(), np.diag([1.0, 1.0, 1.0, 1.0]))
    with pytest.raises(GeometryError, match="does not lie in the atlas"):
        file_back(tmp_path / "far.nii.gz", record, "s5", tmp_path / "out.nii.gz")
    write_nifti(tmp_path / "twin.nii.gz", lesion().astype(np.float32) + np.float32(0.5), SRI24.affine)
    with pytest.raises(LabelError, match="bring it back with --image"):
        file_back(tmp_path / "twin.nii.gz", record, "s5", tmp_path / "out.nii.gz")


def test_raw_nifti_files_are_series(oblique: RawSeries, tmp_path: Path) -> None:
    write_nifti(tmp_path / "T1_AX_POST_GAD.nii.gz", oblique.array, oblique.affine)
    write_nifti(tmp_path / "seg.nii.gz", oblique.lesion, oblique.affine)
    (tmp_path / "T1_AX_POST_GAD.json").write_text(json.dumps({"EchoTime": 0.01, "RepetitionTime": 0.55}))
    (found,), (left,) = series_from_nifti(tmp_path.iterdir())
    assert (found.tags.echo_time, found.tags.repetition_time) == (10.0, 550.0)
    assert left.reason == "is called as label maps and masks are"
    np.testing.assert_array_equal(np.sort(found.load(), axis=None), np.sort(oblique.array, axis=None))


def test_sources_that_need_intake_are_known(oblique: RawSeries, tmp_path: Path) -> None:
    write_series(oblique, tmp_path / "dicom")
    (tmp_path / "patient").mkdir()
    write_nifti(tmp_path / "patient" / "t1.nii.gz", oblique.array, oblique.affine)
    write_nifti(tmp_path / "patient" / "flair.nii.gz", oblique.array, oblique.affine)
    assert needs_intake(tmp_path / "dicom")
    assert not needs_intake(tmp_path / "patient")
    write_nifti(tmp_path / "patient" / "flair.nii.gz", oblique.array[1:], oblique.affine)
    assert needs_intake(tmp_path / "patient")
    assert not needs_intake(tmp_path / "nowhere")


def test_a_study_without_flair_is_reported_and_the_exit_code_is_4(oblique: RawSeries, tmp_path: Path) -> None:
    write_series(oblique, tmp_path / "in")
    with pytest.raises(MissingChannelError, match="neither FLAIR nor T1Gd"):
        take_in(tmp_path / "in", tmp_path / "out")
    result = CliRunner().invoke(app, ["intake", str(tmp_path / "in"), "--out", str(tmp_path / "out")])
    assert result.exit_code == 4
    assert "CANARY" not in result.output.upper()


def test_nothing_is_one_line(tmp_path: Path) -> None:
    report = intake_sources([tmp_path], tmp_path / "out")
    assert list(report.failed.values()) == [
        f"{tmp_path}: holds neither DICOM images nor NIfTI files; give a patient's folder"
    ]


def test_one_study_given_twice_is_refused_before_any_work(oblique: RawSeries, tmp_path: Path) -> None:
    write_series(oblique, tmp_path / "A")
    shutil.copytree(tmp_path / "A", tmp_path / "B")
    command = ["intake", str(tmp_path / "A"), str(tmp_path / "B"), "--out", str(tmp_path / "out"), "--workers", "2"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == InputError.exit_code
    assert f"{tmp_path / 'A'}#1 and {tmp_path / 'B'}#1: both would become Intake-" in result.output
    assert not list((tmp_path / "out").glob("Intake-*"))


def test_folders_of_one_name_below_a_source_and_in_two_zips_are_different_people(
    oblique: RawSeries, tmp_path: Path
) -> None:
    for name in ("P1", "P2"):
        for folder in ("anat", "more"):
            (tmp_path / "in" / name / folder).mkdir(parents=True)
            write_nifti(tmp_path / "in" / name / folder / "t2.nii.gz", oblique.array, oblique.affine)
        shutil.make_archive(str(tmp_path / name), "zip", tmp_path / "in" / name)
    keys = []
    for source in (tmp_path / "in", tmp_path / "P1.zip", tmp_path / "P2.zip"):
        with opened(source) as files:
            keys += [pseudonym(reading, tmp_path) for reading in read_source(files, source)]
    assert len(keys) == len(set(keys)) == 8


def test_names_inside_a_zip_tell_what_files_outside_would(oblique: RawSeries, tmp_path: Path) -> None:
    for name in ("甲/T1+C (2).nii.gz", "甲/FLAIR/image.nii.gz", "乙/flair.nii.gz", "甲/._T2.nii.gz"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        write_nifti(tmp_path / "in" / name, oblique.array, oblique.affine)
    (tmp_path / "in" / "甲" / "T1+C (2).json").write_text(json.dumps({"EchoTime": 0.01, "RepetitionTime": 0.55}))
    source = Path(shutil.make_archive(str(tmp_path / "sent"), "zip", tmp_path / "in"))
    with zipfile.ZipFile(source, "a") as archive:
        archive.writestr("../../outside/t2.nii.gz", b"")
    with opened(source) as files:
        found = {one.tags.description: one.tags.echo_time for reading in read_source(files, source)
                 for one in reading.series}  # fmt: skip
        assert all(path.is_relative_to(os.path.commonpath(files)) for path in files)
    assert found == {"T1+C _2_": 10.0, "FLAIR image": None, "flair": None}
    assert not (tmp_path.parent / "outside").exists()


@pytest.mark.parametrize("kind", ["dicom", "nifti"])
def test_other_voxels_on_the_same_grid_are_another_input(oblique: RawSeries, kind: str, tmp_path: Path) -> None:
    digests = set()
    for number in (0, 0, 1):
        source = tmp_path / "in"
        shutil.rmtree(source, ignore_errors=True)
        changed = replace(oblique, array=oblique.array + np.int16(number))
        if kind == "dicom":
            write_series(changed, source)
        else:
            source.mkdir()
            write_nifti(source / "t2.nii", changed.array, changed.affine)
        with opened(source) as files:
            digests.add(inputs_digest(read_source(files, source)[0], tmp_path))
    assert len(digests) == 2


def study(folder: Path, **styles: DicomStyle) -> Study:
    return write_study(
        folder,
        seed=7,
        config=PhantomConfig(voxel_mm=2),
        acquisitions=usual_study(7, in_plane_mm=1.5, thickness_mm=3.0),
        styles=styles,
    )


@pytest.mark.slow
def test_a_phantom_study_becomes_a_patient(tmp_path: Path) -> None:
    truth = study(tmp_path / "in", flair=DicomStyle(enhanced=True, header_deg=(0, 20, 0), header_mm=(30, 0, 10)))
    (record,) = intake_sources([tmp_path / "in"], tmp_path / "out").done
    assert record.channels == ("t1", "t1gd", "t2", "flair")
    reference = record.find(record.reference)
    points = grid_points(truth.series["t1gd"].brain, truth.series["t1gd"].affine, step=50)
    for one in record.series:
        if one.channel == "flair":  # its header lies, so only the others' truth is in scanner coordinates
            continue
        wanted = truth.series[one.channel].pose @ np.linalg.inv(truth.series["t1gd"].pose)
        away = one.matrix @ np.linalg.inv(reference.matrix) - wanted
        assert np.linalg.norm(points @ away[:3, :3].T + away[:3, 3], axis=1).mean() < 0.7
    volume = read_patient(find_patients(record.folder)[0])
    assert volume.shape == SRI24.shape
    assert volume.brain.sum() / 1000 == pytest.approx(
        truth.series["t1gd"].brain.sum() * reference.grid.voxel_ml, rel=0.1
    )
    assert "CANARY" not in (record.folder / "intake.json").read_text().upper()
    assert subject_of(record.patient_key) == record.patient_key[:17]
    again = intake_sources([tmp_path / "in"], tmp_path / "out")
    assert [one.patient_key for one in again.unchanged] == [record.patient_key]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_several_patients_at_a_time_go_on_without_the_bad_one(oblique: RawSeries, tmp_path: Path) -> None:
    for name, seed in (("A", 7), ("B", 8)):
        chosen = usual_study(seed, in_plane_mm=1.5, thickness_mm=3.0)
        write_study(
            tmp_path / name,
            seed=seed,
            config=PhantomConfig(voxel_mm=2),
            acquisitions=chosen,
            person=Person(patient_id=name),
        )
    write_series(oblique, tmp_path / "C")
    sources = [str(tmp_path / name) for name in ("A", "B", "C")]
    command = ["intake", *sources, "--out", str(tmp_path / "out"), "--workers", "2", "--json"]
    first, again = (CliRunner().invoke(app, command) for _ in range(2))
    assert (first.exit_code, again.exit_code) == (4, 4)
    done = [one["patient_key"] for one in json.loads(first.stdout)["done"]]
    assert len(set(done)) == 2
    assert sorted(json.loads(again.stdout)["unchanged"]) == sorted(done)
    assert json.loads(again.stdout)["done"] == []
    assert list(json.loads(again.stdout)["failed"]) == [f"{tmp_path / 'C'}#1"]


@pytest.mark.slow
def test_a_header_on_its_side_stops(tmp_path: Path) -> None:
    study(tmp_path / "in", t2=DicomStyle(header_deg=(90, 0, 0)))
    with pytest.raises(DiptychError, match=r"s4 \(T2\): its header is turned|does not come to lie"):
        take_in(tmp_path / "in", tmp_path / "out", patient_key="P1")
    assert (tmp_path / "out" / "P1-failed.png").is_file()


@pytest.mark.slow
def test_the_same_series_for_two_channels_is_refused(tmp_path: Path) -> None:
    truth = study(tmp_path / "in")
    copy = replace(truth.series["t1"], array=truth.series["t1"].array)
    write_series(copy, tmp_path / "in" / "copy", style=DicomStyle(number=30))
    with pytest.raises(DiptychError, match="are the same image"):
        take_in(tmp_path / "in", tmp_path / "out", overrides={"t1gd": "s30"})


@pytest.mark.data
def test_a_real_study_without_t1gd_is_typed(clinical: Path) -> None:
    from diptych.intake.series_typing import choose_series

    typing = choose_series(read_study(clinical / "brainix").series)
    assert set(typing.choices) == {"t1", "t2", "flair"}
    assert any("drawn" in left.reason or "drawing" in left.reason for left in typing.left)


@pytest.mark.slow
@pytest.mark.data
def test_a_real_head_lies_where_others_put_it(clinical: Path, tmp_path: Path) -> None:
    import nibabel as nib

    record = take_in(clinical / "tcga-fg-6692", tmp_path, overrides={"t1": "series-10-T1_AX"})
    mask = nib.load(clinical / "tcga-fg-6692" / "reference-brain-mask-sri24.nii.gz")
    own = np.asarray(nib.load(record.folder / "brain-mask.nii.gz").dataobj) > 0
    theirs = np.asarray(mask.dataobj) > 0
    assert 2 * (own & theirs).sum() / (own.sum() + theirs.sum()) > 0.94
