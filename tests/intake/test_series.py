"""Files become volumes: right voxels in the right place, or one clear reason why not."""

from __future__ import annotations

import re
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from diptych.errors import LayoutError, TooLargeError, VolumeError
from diptych.intake.dicom_files import FileLimits, opened, read_frames, read_header
from diptych.intake.series import read_series
from diptych.phantom.phantom_dicom import DicomStyle, Person, write_dicomdir, write_localizer, write_series
from diptych.phantom.raw_head import RawHead, RawSeries, acquire_series
from tests.intake.making_bombs import bombs
from tests.intake.reading import by_dcm2niix, canonical, only_series, read_study


@pytest.mark.parametrize(
    "style",
    [
        DicomStyle(),
        DicomStyle(enhanced=True),
        DicomStyle(syntax="rle"),
        DicomStyle(syntax="jpeg2000", enhanced=True),
        DicomStyle(syntax="deflated"),
        DicomStyle(syntax="implicit", shuffle=False),
    ],
    ids=lambda style: f"{'enhanced' if style.enhanced else 'classic'}-{style.syntax}",
)
def test_voxels_and_affine_come_back(oblique: RawSeries, style: DicomStyle, tmp_path: Path) -> None:
    write_series(oblique, tmp_path, style=style)
    series = only_series(tmp_path)
    voxels, affine = canonical(series.load(), series.affine)
    expected, true_affine = canonical(oblique.array, oblique.affine)
    np.testing.assert_array_equal(voxels, expected)
    np.testing.assert_allclose(affine, true_affine, atol=1e-3)


@pytest.mark.parametrize("plane", ["axial", "coronal"])
def test_equals_dcm2niix(head: RawHead, oblique: RawSeries, plane: str, tmp_path: Path) -> None:
    acquisition = replace(oblique.acquisition, plane=plane, reverse=True, channel="t1")
    write_series(acquire_series(head, acquisition), tmp_path / "in")
    series = only_series(tmp_path / "in")
    voxels, affine = canonical(series.load(), series.affine)
    ((other, other_affine),) = by_dcm2niix(tmp_path / "in", tmp_path / "out")
    np.testing.assert_array_equal(voxels, other)
    np.testing.assert_allclose(affine, other_affine, atol=1e-3)
    assert series.plane == plane


def test_a_tilted_gantry_gives_a_sheared_affine(head: RawHead, oblique: RawSeries, tmp_path: Path) -> None:
    tilted = acquire_series(head, replace(oblique.acquisition, plane="axial", tilt_deg=12))
    write_series(tilted, tmp_path)
    series = only_series(tmp_path)
    assert series.shear_deg == pytest.approx(12, abs=0.1)
    voxels, affine = canonical(series.load(), series.affine)
    expected, true_affine = canonical(tilted.array, tilted.affine)
    np.testing.assert_array_equal(voxels, expected)
    np.testing.assert_allclose(affine, true_affine, atol=0.01)


def test_echoes_of_one_series_are_two_volumes(oblique: RawSeries, tmp_path: Path) -> None:
    write_series(oblique, tmp_path, style=DicomStyle(number=4, echoes=2))
    first, second = read_study(tmp_path).series
    assert (first.key, second.key) == ("s4a", "s4b")
    assert (first.tags.echo_time, second.tags.echo_time) == (100.0, 200.0)
    np.testing.assert_array_equal(second.load(), first.load() // 2)


def test_doubled_slices_are_dropped_and_said(oblique: RawSeries, tmp_path: Path) -> None:
    write_series(oblique, tmp_path, style=DicomStyle(doubled=(3, 9)))
    series = only_series(tmp_path)
    assert series.shape[2] == oblique.array.shape[2]
    assert series.remarks == ("2 doubled images dropped",)


@pytest.mark.parametrize(
    ("style", "said"),
    [
        (DicomStyle(missing=(7, 8)), "lacks 2 slices (after slice"),
        (DicomStyle(shifted=(5, 2.0)), "uneven slices"),
        (DicomStyle(tags=(("Modality", "CT"),)), "is no MR image but CT"),
    ],
)
def test_what_is_no_volume_is_left_with_its_reason(
    oblique: RawSeries, style: DicomStyle, said: str, tmp_path: Path
) -> None:
    write_series(oblique, tmp_path, style=style)
    reading = read_study(tmp_path)
    assert not reading.series
    assert said in reading.left[0].reason


def test_a_localizer_is_left(oblique: RawSeries, tmp_path: Path) -> None:
    write_localizer(oblique, tmp_path, style=DicomStyle())
    reading = read_study(tmp_path)
    assert not reading.series
    assert {left.reason for left in reading.left} == {
        "has 3 slices of one orientation, too few for a volume (localizer?)"
    }


@pytest.mark.parametrize("disguise", ["plain", "wrong length", "long header", "no preamble"])
def test_a_file_that_unfolds_without_end_is_refused(disguise: str, tmp_path: Path) -> None:
    (tmp_path / "a.dcm").write_bytes(bombs(4_000_000)[disguise])
    assert (tmp_path / "a.dcm").stat().st_size < 20_000
    with pytest.raises(TooLargeError, match="unfolds to more than 1000000 bytes"):
        read_header(tmp_path / "a.dcm", limits=FileLimits(max_file_bytes=1_000_000))


def test_a_cd_and_a_zip_hold_the_same_study(oblique: RawSeries, tmp_path: Path) -> None:
    write_series(oblique, tmp_path / "in")
    cd = write_dicomdir(tmp_path / "in", tmp_path / "cd")
    packed = Path(shutil.make_archive(str(tmp_path / "study"), "zip", tmp_path / "in"))
    expected = only_series(tmp_path / "in")
    assert read_study(cd).left == read_study(cd.parent).left == ()  # the index is no image
    np.testing.assert_array_equal(only_series(cd).load(), expected.load())
    with opened(packed) as files:
        (reading,) = read_series(files)
        np.testing.assert_array_equal(reading.series[0].load(), expected.load())


def test_a_zip_cannot_write_elsewhere_nor_grow_without_end(tmp_path: Path) -> None:
    bad = tmp_path / "bad.zip"
    with zipfile.ZipFile(bad, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../../escaped.dcm", b"\0" * 3_000_000)
    with opened(bad) as files:
        (path,) = files
        assert re.search(r"/diptych-zip-[^/]+/_/_/escaped\.dcm$", str(path))
    assert not (tmp_path.parent / "escaped.dcm").exists()
    with (
        pytest.raises(TooLargeError, match=r"bad\.zip: unpacks to more"),
        opened(bad, limits=FileLimits(max_total_bytes=2**20)),
    ):
        pass


def test_a_missing_source_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(LayoutError, match="is not there"), opened(tmp_path / "nowhere"):
        pass


def test_two_patients_are_two_readings_without_their_names(oblique: RawSeries, tmp_path: Path) -> None:
    write_series(oblique, tmp_path / "a", person=Person())
    write_series(oblique, tmp_path / "b", person=Person(name="Canary^Other", patient_id="CANARY-2"))
    with opened(tmp_path) as files:
        readings = read_series(files)
    assert len({reading.patient for reading in readings}) == 2
    assert "CANARY" not in repr(readings).upper()


def test_a_compressed_image_larger_than_its_header_is_refused(oblique: RawSeries, tmp_path: Path) -> None:
    import pydicom

    path = write_series(oblique, tmp_path, style=DicomStyle(syntax="jpeg2000"))[0]
    dataset = pydicom.dcmread(path)
    dataset.Rows = 4
    dataset.save_as(path)
    with pytest.raises(VolumeError, match="hides in a file that says"):
        read_frames(path, 1)


@pytest.mark.data
def test_a_real_study_equals_dcm2niix(clinical: Path, tmp_path: Path) -> None:
    others = by_dcm2niix(clinical / "brainix", tmp_path / "out")
    for series in read_study(clinical / "brainix").series:
        voxels, affine = canonical(series.load(), series.affine)
        assert any(
            np.array_equal(voxels, other) and np.allclose(affine, other_affine, atol=1e-3)
            for other, other_affine in others
        )
