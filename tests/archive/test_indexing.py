"""From files to an archive: what is stored, what is skipped, what is reported, and what must not come along."""

from __future__ import annotations

import gzip
import shutil
from dataclasses import replace
from pathlib import Path

import nibabel
import numpy as np
import pytest

from diptych.archive import ArchiveStore, ArchiveWriter
from diptych.archive.copies import patient_files
from diptych.archive.encoding import NetworkEncoder, cut_slices, encode_volume
from diptych.archive.indexing import IndexOptions, IndexReport, index_patients
from diptych.archive.integrity import verify_archive
from diptych.archive.metadata import DateShift
from diptych.archive.records import VolumeInfo
from diptych.config import ModelConfig
from diptych.errors import ArchiveError, ArchiveMismatchError, InputError, LayoutError
from diptych.model import FeatureDecomposingNetwork
from diptych.slices.preprocess import FILL
from diptych.volumes import read_patient
from diptych.volumes.sources import find_sources
from tests.archive.patients import CHANNEL_FILES, FakeEncoder, write_patient

CANARY = "CANARY^PATIENT"


def run_index(source: Path, archive: Path, options: IndexOptions = IndexOptions()) -> IndexReport:
    encoder = FakeEncoder()
    with ArchiveWriter.open(archive, model=encoder.identity) as writer:
        return index_patients(writer, encoder, find_sources([source]), options=options)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for number in range(3):
        write_patient(tmp_path / "source", f"BraTS-GLI-0000{number}-000", seed=number, lesion=number != 1)
    return tmp_path / "source"


def test_patients_are_stored_with_their_geometry_and_lesion_area(source: Path, tmp_path: Path) -> None:
    report = run_index(source, tmp_path / "A")
    record = ArchiveStore.open(tmp_path / "A").record("BraTS-GLI-00002-000")
    labels = np.asarray(nibabel.load(next(source.glob("*2-000/*seg*"))).dataobj)
    voxels = np.count_nonzero(labels, axis=(0, 1))[record.z_index]
    assert report.added == [f"BraTS-GLI-0000{n}-000" for n in range(3)]
    assert record.info.patient_key == "BraTS-GLI-00002"
    assert record.info.lesion_source == "labels"
    np.testing.assert_allclose(record.lesion_area, voxels * 16.0, atol=16 * 6)
    np.testing.assert_array_equal(record.lesion_area > 0, voxels > 0)


def test_without_labels_the_area_is_unknown_or_predicted(source: Path, tmp_path: Path) -> None:
    run_index(source, tmp_path / "A")
    run_index(source, tmp_path / "B", IndexOptions(predict_lesions=True))
    unknown = ArchiveStore.open(tmp_path / "A").record("BraTS-GLI-00001-000")
    predicted = ArchiveStore.open(tmp_path / "B").record("BraTS-GLI-00001-000")
    assert np.isnan(unknown.lesion_area).all()
    assert unknown.info.lesion_source == "unknown"
    assert np.isfinite(predicted.lesion_area).all()
    assert predicted.info.lesion_source == "predicted"


def test_indexing_again_changes_nothing_and_encodes_nothing(source: Path, tmp_path: Path) -> None:
    run_index(source, tmp_path / "A")
    before = ArchiveStore.open(tmp_path / "A").version
    report = run_index(source, tmp_path / "A")
    assert (len(report.unchanged), report.slices) == (3, 0)
    assert ArchiveStore.open(tmp_path / "A").version == before


def test_changed_images_replace_the_volume_and_its_copies(source: Path, tmp_path: Path) -> None:
    run_index(source, tmp_path / "A")
    shutil.rmtree(source / "BraTS-GLI-00001-000")
    write_patient(source, "BraTS-GLI-00001-000", seed=77)
    report = run_index(source, tmp_path / "A")
    assert (report.replaced, len(report.unchanged)) == (["BraTS-GLI-00001-000"], 2)
    assert len(list((tmp_path / "A" / "volumes").iterdir())) == 3


def test_a_lost_copy_is_written_again(source: Path, tmp_path: Path) -> None:
    run_index(source, tmp_path / "A")
    lost = next((tmp_path / "A" / "volumes").glob("*/t1.nii.gz"))
    lost.unlink()
    assert "is gone" in verify_archive(ArchiveStore.open(tmp_path / "A")).problems[0]
    run_index(source, tmp_path / "A")
    assert verify_archive(ArchiveStore.open(tmp_path / "A")).problems == ()


def test_a_bad_patient_is_reported_and_the_others_are_indexed(source: Path, tmp_path: Path) -> None:
    bad = next(source.glob("*1-000/*t2w*"))
    bad.write_bytes(bad.read_bytes()[:200])
    report = run_index(source, tmp_path / "A")
    assert len(report.added) == 2
    assert str(bad) in report.failed["BraTS-GLI-00001-000"]


def test_the_same_patient_in_two_sources_is_refused(source: Path, tmp_path: Path) -> None:
    shutil.copytree(source, tmp_path / "again")
    with pytest.raises(LayoutError, match="is also in"):
        find_sources([source, tmp_path / "again"])


def test_nothing_of_a_header_or_file_name_comes_along(tmp_path: Path) -> None:
    """Every free field of the NIfTI header, an extension and the file's own name carry the canary."""
    folder = write_patient(tmp_path / CANARY, "P1")
    for path in folder.glob("*.nii.gz"):
        image = nibabel.load(path)
        for field, size in (("descrip", 80), ("aux_file", 24), ("intent_name", 16), ("db_name", 18)):
            image.header[field] = CANARY.encode()[:size]
        extension = nibabel.nifti1.Nifti1Extension("comment", CANARY.encode())
        image.header.extensions.append(extension)
        nibabel.save(image, path)
    run_index(tmp_path / CANARY, tmp_path / "A")
    held = [file.read_bytes() for file in (tmp_path / "A").rglob("*") if file.is_file()]
    held += [gzip.decompress(content) for content in held if content[:2] == b"\x1f\x8b"]
    assert len(held) > 10
    assert not [content for content in held if CANARY.encode()[:10] in content]
    assert not [path for path in (tmp_path / "A").rglob("*") if "CANARY" in path.relative_to(tmp_path / "A").as_posix()]


def test_copies_hold_the_same_voxels_in_the_same_place(source: Path, tmp_path: Path) -> None:
    run_index(source, tmp_path / "A")
    info = ArchiveStore.open(tmp_path / "A").listing().volumes[0]
    copied = read_patient(patient_files(tmp_path / "A", info))
    original = read_patient(find_sources([source])[0])
    np.testing.assert_array_equal(copied.array, original.array)
    np.testing.assert_allclose(copied.affine, original.affine)


def test_copies_are_private(source: Path, tmp_path: Path) -> None:
    run_index(source, tmp_path / "A")
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "A" / "volumes").rglob("*")}
    assert modes == {0o700, 0o600}


def test_references_name_the_original_files(source: Path, tmp_path: Path) -> None:
    run_index(source, tmp_path / "A", IndexOptions(pixels="reference"))
    info = ArchiveStore.open(tmp_path / "A").listing().volumes[0]
    assert {Path(file.path).parent for file in info.files} == {source / info.volume_key}
    assert not (tmp_path / "A" / "volumes").exists()
    assert verify_archive(ArchiveStore.open(tmp_path / "A"), encoder=FakeEncoder()).encoded_again == 3


def test_verify_finds_ids_that_the_model_would_not_give(source: Path, tmp_path: Path) -> None:
    run_index(source, tmp_path / "A")
    with ArchiveWriter.open(tmp_path / "A") as writer:
        record = writer.record("BraTS-GLI-00001-000")
        ids = record.normal_ids.copy()
        ids[2, 0, 3] = (int(ids[2, 0, 3]) + 1) % 300
        writer.add(replace(record, normal_ids=ids))
    problems = verify_archive(ArchiveStore.open(tmp_path / "A"), encoder=FakeEncoder()).problems
    assert len(problems) == 1
    assert "BraTS-GLI-00001-000: 1 of" in problems[0]


def test_verify_with_another_model_is_refused(source: Path, tmp_path: Path) -> None:
    run_index(source, tmp_path / "A")
    other = FakeEncoder()
    other.identity = replace(other.identity, fingerprint="0" * 64)
    with pytest.raises(ArchiveMismatchError):
        verify_archive(ArchiveStore.open(tmp_path / "A"), encoder=other)


def test_a_table_adds_metadata_and_shifts_dates(source: Path, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text(
        "key,sex,age,study_date,tags\nBraTS-GLI-00001,F,61.5,2010-03-04,a;b\nBraTS-GLI-00002-000,,,2010-03-04,\n"
    )
    run_index(source, tmp_path / "A", IndexOptions(metadata=table, tags=("c",), source="here"))
    _, one, two = ArchiveStore.open(tmp_path / "A").listing().volumes
    assert (one.sex, one.age, one.tags, one.source) == ("F", 61.5, ("a", "b", "c"), "here")
    assert (two.sex, two.age, two.tags) == (None, None, ("c",))
    assert one.study_date not in (None, "2010-03-04")
    assert one.study_date is not None
    assert abs(np.datetime64(one.study_date) - np.datetime64("2010-03-04")) <= np.timedelta64(365, "D")


def test_the_date_shift_keeps_intervals_and_differs_between_archives(tmp_path: Path) -> None:
    shift = DateShift.of_archive(tmp_path)
    days = [np.datetime64(shift.apply(day, "P1")) for day in ("2010-03-04", "2010-03-14")]
    assert days[1] - days[0] == np.timedelta64(10, "D")
    assert DateShift.of_archive(tmp_path).apply("2010-03-04", "P1") == str(days[0])
    others = {DateShift(bytes([n]) * 32).apply("2010-03-04", "P1") for n in range(20)}
    assert len(others) > 10


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,sex\nP,F\n", "column 'name' is not known"),
        ("sex\nF\n", "no column 'key'"),
        ("key,sex\nP,F\nP,M\n", "line 3 repeats key 'P'"),
        ("key,sex\nP,F,3\n", "more values than columns"),
    ],
)
def test_a_bad_table_is_refused(source: Path, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "table.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        run_index(source, tmp_path / "A", IndexOptions(metadata=tmp_path / "table.csv"))


def test_a_bad_value_in_a_table_fails_that_patient_only(source: Path, tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("key,sex\nBraTS-GLI-00001,female\n")
    report = run_index(source, tmp_path / "A", IndexOptions(metadata=tmp_path / "table.csv"))
    assert (len(report.added), list(report.failed)) == (2, ["BraTS-GLI-00001-000"])


def test_a_network_gives_the_same_ids_for_any_batch_size(source: Path) -> None:
    config = ModelConfig(image_size=(32, 64), latent_size=(4, 8), widths=(8, 8, 16, 16), codebook_size=32, code_width=8)
    encoder = NetworkEncoder(FeatureDecomposingNetwork(config))
    volume = read_patient(find_sources([source])[0])
    records = [encode_volume(volume, VolumeInfo("A", "A"), encoder, batch_size=size) for size in (1, 8, 64)]
    assert records[0].normal_ids.shape[1:] == (4, 8)
    for record in records[1:]:
        np.testing.assert_array_equal(record.normal_ids, records[0].normal_ids)
        np.testing.assert_array_equal(record.abnormal_ids, records[0].abnormal_ids)


def test_a_network_predicts_areas_from_codes_alone(source: Path) -> None:
    config = ModelConfig(image_size=(32, 64), latent_size=(4, 8), widths=(8, 8, 16, 16), codebook_size=32, code_width=8)
    encoder = NetworkEncoder(FeatureDecomposingNetwork(config))
    pixels = encoder.lesion_pixels(np.zeros((3, 4, 8), dtype=np.uint8))
    assert pixels.shape == (3,)
    assert len(CHANNEL_FILES) == len(encoder.description.channels)


@pytest.mark.data
def test_real_patients_are_indexed_verified_and_found_again(brats: Path, tmp_path: Path) -> None:
    encoder = NetworkEncoder(FeatureDecomposingNetwork(ModelConfig()))
    patients = find_sources([brats / "patients"])[:2]
    with ArchiveWriter.open(tmp_path / "A", model=encoder.identity) as writer:
        report = index_patients(writer, encoder, patients)
        assert (len(report.added), report.failed) == (2, {})
        verified = verify_archive(writer, encoder=encoder, sample=2)
    assert (verified.encoded_again, verified.problems) == (2, ())
    volume = read_patient(patients[0])
    for size in (1, 64):
        again = encode_volume(volume, VolumeInfo("A", "A"), encoder, batch_size=size)
        stored = ArchiveStore.open(tmp_path / "A").record(patients[0].patient_key)
        np.testing.assert_array_equal(again.normal_ids, stored.normal_ids)


def test_a_folder_of_patients_does_not_become_an_archive(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="is a folder of something else, not an archive"):
        run_index(source, source)
    assert not (source / "archive.sqlite").exists()
    (tmp_path / "empty").mkdir()
    assert len(run_index(source, tmp_path / "empty").added) == 3


def test_archives_among_patients_are_not_read_as_patients(source: Path, tmp_path: Path) -> None:
    run_index(source, source / "archive")
    assert len(find_sources([source])) == 3
    with pytest.raises(LayoutError, match="is an archive, not a folder of patients"):
        find_sources([source / "archive"])


def test_what_is_strange_for_the_model_is_said(source: Path, tmp_path: Path) -> None:
    noticed = "The channels t2 and flair look exchanged; check which file is which."
    encoder = FakeEncoder()
    with ArchiveWriter.open(tmp_path / "A", model=encoder.identity) as writer:
        report = index_patients(writer, encoder, find_sources([source]), check=lambda volume: [noticed])
    assert report.warnings
    assert all(noticed in said for said in report.warnings.values())


def test_a_model_that_can_do_without_channels_says_what_was_missing(source: Path, tmp_path: Path) -> None:
    next(source.glob("*2-000/*t2w*")).unlink()
    for name in ("t1c", "t2f"):
        next(source.glob(f"*1-000/*{name}*")).unlink()
    encoder = FakeEncoder()
    encoder.description = replace(encoder.description, enough=("t1gd", "flair"))
    with ArchiveWriter.open(tmp_path / "A", model=encoder.identity) as writer:
        report = index_patients(writer, encoder, find_sources([source]))
    store = ArchiveStore.open(tmp_path / "A")
    assert report.added == ["BraTS-GLI-00000-000", "BraTS-GLI-00002-000"]
    assert "t2 missing: read without" in report.warnings["BraTS-GLI-00002-000"][-1]
    assert "has neither t1gd nor flair; one of them is needed" in report.failed["BraTS-GLI-00001-000"]
    assert store.record("BraTS-GLI-00000-000").info.missing == ()
    record = store.record("BraTS-GLI-00002-000")
    assert record.info.missing == ("t2",)
    assert {file.role for file in record.info.files} == {"t1", "t1gd", "flair", "lesion"}
    assert verify_archive(store, encoder=encoder).encoded_again == 2
    images = cut_slices(read_patient(patient_files(store.path, record.info)), encoder).images
    assert images.shape[1] == 4
    assert (images[:, 2] == FILL).all()
    assert (images[:, 3] > FILL).any()
