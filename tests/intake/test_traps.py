"""Everything that goes wrong in real studies, as phantoms written as DICOM: taken in rightly, or one clear refusal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import diptych
from diptych.errors import DiptychError
from diptych.intake import IntakeRecord
from diptych.intake.atlas_space import SRI24
from diptych.intake.pipeline import BRAIN_FILE
from diptych.intake.resampling import Placed, grid_points, resample
from diptych.phantom.phantom_config import PhantomConfig
from diptych.phantom.phantom_dicom import DicomStyle, Study, write_series, write_study
from diptych.phantom.raw_head import Acquisition, RawHead, RawSeries, acquire_series, usual_study
from diptych.volumes.nifti import read_nifti

take_in: Any = diptych.intake
MIDLINE = float(SRI24.corners[:, 0].mean())


def write_coarse(head: RawHead, folder: Path, **styles: DicomStyle) -> None:
    """Series of some centimetres' voxels: enough for what is decided before any image is compared."""
    for number, (channel, style) in enumerate(styles.items(), start=2):
        series = acquire_series(head, Acquisition(channel, in_plane_mm=8, thickness_mm=8))
        write_series(series, folder / channel, style=replace(style, number=number))


@pytest.mark.parametrize(
    ("styles", "said"),
    [
        ({"t1": DicomStyle(), "flair": DicomStyle(burnt_in=True)}, "nor T1Gd.*s3: says that text is burnt"),
        ({"t1": DicomStyle(), "flair": DicomStyle(missing=(7, 8))}, "neither FLAIR nor T1Gd.*s3: lacks 2 slices"),
        ({"t1": DicomStyle(), "t2": DicomStyle()}, "neither FLAIR nor T1Gd, and no model does without both"),
        ({"t2": DicomStyle(), "flair": DicomStyle()}, "neither T1 nor T1Gd, and the skull is stripped on one"),
        ({"t1": DicomStyle(), "flair": DicomStyle(tags=(("ImageType", ["DERIVED", "PRIMARY", "ADC"]),))},
         "neither FLAIR nor T1Gd.*computed or auxiliary"),
    ],
    ids=["burnt-in text", "missing slices", "no FLAIR", "no T1", "a map"],
)  # fmt: skip
def test_what_cannot_be_taken_in_is_one_line(
    head: RawHead, styles: dict[str, DicomStyle], said: str, tmp_path: Path
) -> None:
    write_coarse(head, tmp_path / "in", **styles)
    with pytest.raises(DiptychError, match=said) as refused:
        take_in(tmp_path / "in", tmp_path / "out")
    assert "\n" not in str(refused.value)
    assert "CANARY" not in str(refused.value).upper()


def a_study(folder: Path, seed: int, *, acquisitions: tuple[Acquisition, ...] = (), **styles: DicomStyle) -> Study:
    chosen = acquisitions or usual_study(seed, in_plane_mm=1.2, thickness_mm=3.0)
    return write_study(folder, seed=seed, config=PhantomConfig(voxel_mm=1.5), acquisitions=chosen, styles=styles)


def errors_mm(record: IntakeRecord, truth: Study) -> dict[str, float]:
    """Mean distance over the brain between where a sequence was put and where it lies, seen from the reference."""
    own = truth.series[record.reference]
    points = grid_points(own.brain, own.affine, step=50)
    found = {}
    for one in record.series:
        wanted = truth.series[one.channel].pose @ np.linalg.inv(own.pose)
        away = one.matrix @ np.linalg.inv(record.find(record.reference).matrix) - wanted
        found[one.channel] = float(np.linalg.norm(points @ away[:3, :3].T + away[:3, 3], axis=1).mean())
    return found


def mask_dice(record: IntakeRecord, truth: Study) -> float:
    reference = record.find(record.reference)
    image = read_nifti(record.folder / BRAIN_FILE)
    placed = Placed(image.stored.astype(np.float32), image.affine)
    own = resample(placed, reference.grid, np.linalg.inv(reference.matrix).astype(np.float64)) > 0.5
    brain = truth.series[record.reference].brain
    return float(2 * (own & brain).sum() / (own.sum() + brain.sum()))


def side(series: RawSeries, record: IntakeRecord) -> tuple[float, float]:
    """How far right the lesion lies of the midline: in the phantom's own frame, and in the atlas."""
    lesion, brain = (grid_points(mask, series.affine).mean(axis=0) for mask in (series.lesion > 0, series.brain))
    own = np.linalg.inv(series.pose)[:3, :3] @ (lesion - brain)
    there = np.linalg.inv(record.find(series.acquisition.channel).matrix) @ np.append(lesion, 1.0)
    return float(own[0]), float(there[0] - MIDLINE)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_study_with_every_trap_at_once(tmp_path: Path) -> None:
    """Sagittal, coronal, oblique, reversed, anisotropic, tilted, enhanced, compressed, doubled, several echoes."""
    t1, t1gd, t2, flair = usual_study(31, in_plane_mm=1.2, thickness_mm=3.0)
    truth = a_study(
        tmp_path / "in",
        31,
        acquisitions=(
            replace(t1, reverse=True, thickness_mm=1.2),
            replace(t1gd, oblique_deg=(9.0, -6.0, 12.0)),
            replace(t2, tilt_deg=10.0, thickness_mm=4.0, spacing_mm=5.0, reverse=True),
            flair,
        ),
        t1=DicomStyle(enhanced=True, syntax="jpeg2000"),
        t1gd=DicomStyle(syntax="rle", doubled=(3, 9)),
        t2=DicomStyle(echoes=2),
        flair=DicomStyle(enhanced=True),
    )
    record = take_in(tmp_path / "in", tmp_path / "out")
    assert record.channels == ("t1", "t1gd", "t2", "flair")
    assert max(errors_mm(record, truth).values()) < 0.5
    assert mask_dice(record, truth) > 0.95
    own, there = side(truth.series["t1gd"], record)
    assert abs(own) > 5
    assert own * there > 0
    assert any("doubled images dropped" in warning for warning in record.warnings)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_cropped_flair_without_t1gd_loses_planes_and_says_so(tmp_path: Path) -> None:
    t1, _, t2, flair = usual_study(32, in_plane_mm=1.2, thickness_mm=3.0)
    cropped = replace(flair, plane="axial", cover=(0.4, 1.0))
    truth = a_study(tmp_path / "in", 32, acquisitions=(t1, t2, cropped))
    record = take_in(tmp_path / "in", tmp_path / "out")
    assert record.reference == "t1"
    assert max(errors_mm(record, truth).values()) < 0.5
    assert len(record.dropped_planes) > 5
    assert "NOTHING ABOUT ENHANCEMENT CAN BE SAID" in " ".join(record.warnings)
    assert "where FLAIR covers less than 90% of the brain" in " ".join(record.warnings)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_t1gd_of_a_part_of_the_head_is_laid_on_the_whole_t1(tmp_path: Path) -> None:
    t1, t1gd, t2, _ = usual_study(34, in_plane_mm=1.2, thickness_mm=3.0)
    part = replace(t1gd, plane="axial", cover=(0.45, 0.9))
    truth = a_study(tmp_path / "in", 34, acquisitions=(t1, part, t2))
    record = take_in(tmp_path / "in", tmp_path / "out")
    assert record.reference == "t1"
    assert max(errors_mm(record, truth).values()) < 0.5
    assert record.dropped_planes
    said = " ".join(record.warnings)
    assert "HOW FAR OEDEMA REACHES CANNOT BE SAID" in said
    assert "send a series that covers more than s3 (T1Gd)" in said


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_left_and_right_exchanged_is_refused(tmp_path: Path) -> None:
    truth = a_study(tmp_path / "in", 33, t2=DicomStyle(number=40))
    swapped = replace(truth.series["t2"], array=np.ascontiguousarray(truth.series["t2"].array[::-1]))
    for path in (tmp_path / "in" / "series004").iterdir():
        path.unlink()
    write_series(swapped, tmp_path / "in" / "series004", style=DicomStyle(number=40))
    with pytest.raises(DiptychError, match=r"s40 \(T2\): mirrored it shares .* left and right are exchanged"):
        take_in(tmp_path / "in", tmp_path / "out", patient_key="P1")
    assert (tmp_path / "out" / "P1-failed.png").is_file()
