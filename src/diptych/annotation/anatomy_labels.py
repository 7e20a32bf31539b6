"""The six anatomy labels for patients that have none: in parallel, resumable, and never stopped by one bad patient.

`annotate_anatomy` is the whole story. For each patient it writes, beside the images or under another folder:

    KEY-anatomy.nii.gz     the labels; absent when the registration failed
    KEY-anatomy.png        a contact sheet to look at
    KEY-anatomy.json       quality figures, verdict, and the checksums by which a later run knows that this one is done

Labels are moved into place last, so a killed run leaves nothing that passes as finished. Labels that came from
elsewhere, or were corrected by hand since, are left alone unless `replace` is set.
"""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from diptych.annotation.label_record import AnatomyRecord, read_record, write_labels, write_record
from diptych.annotation.places import Place, find_places, make_folder, write_output
from diptych.annotation.quality import Quality, judge
from diptych.annotation.registration import Effort, Placed, load_template, register, require_ants
from diptych.drawing.sheet import draw_contact_sheet
from diptych.errors import DiptychError, MissingChannelError, VolumeError
from diptych.files import file_sha256
from diptych.processes import run_all
from diptych.progress import Progress, silent
from diptych.volumes import PatientFiles, Volume, read_patient
from diptych.volumes.rawhead import raw_head_warning

SMALLEST_BRAIN_ML = 400.0
POOR_T1 = 0.13
"""Interquartile range over median of the T1 signal deep in the brain, below which other channels help to steer; one
patient in ten of BraTS 2023 lies below."""
DEEP_MM = 8.0
SHEET_SLICES = 8


@dataclass(frozen=True)
class AnatomyReport:
    """What a run did."""

    written: dict[str, Quality]
    """Patients labelled now, with the quality of their labels."""
    unchanged: tuple[str, ...]
    """Patients that had labels already."""
    failed: dict[str, str]
    """Patients without labels, with the reason."""
    seconds: float

    @property
    def to_check(self) -> dict[str, Quality]:
        """Labelled patients that a person should look at."""
        return {key: quality for key, quality in self.written.items() if quality.verdict == "check"}


@dataclass(frozen=True)
class _Job:
    place: Place
    effort: Effort
    replace: bool


@dataclass(frozen=True)
class _Outcome:
    patient_key: str
    quality: Quality | None = None
    failure: str | None = None


def annotate_anatomy(
    sources: Sequence[Path | str],
    *,
    out: Path | str | None = None,
    effort: Effort = Effort(),
    replace: bool = False,
    workers: int = 1,
    progress: Progress = silent,
) -> AnatomyReport:
    """Label every patient found in `sources`.

    Raises:
        LayoutError: a source holds no patient.
        MissingExtraError: the package ants is not installed.
        InputError: `out` cannot be written.
    """
    started = time.monotonic()
    require_ants()
    jobs = [_Job(place, effort, replace) for place in find_places(sources, out)]
    outcomes = []
    for outcome in run_all(_annotate, jobs, workers):
        outcomes.append(outcome)
        progress(len(outcomes), len(jobs), outcome.patient_key)
    outcomes.sort(key=lambda outcome: outcome.patient_key)
    return AnatomyReport(
        written={o.patient_key: o.quality for o in outcomes if o.quality is not None and o.failure is None},
        unchanged=tuple(o.patient_key for o in outcomes if o.quality is None and o.failure is None),
        failed={o.patient_key: o.failure for o in outcomes if o.failure is not None},
        seconds=time.monotonic() - started,
    )


def label_anatomy(volume: Volume, *, effort: Effort = Effort()) -> tuple[NDArray[np.uint8], Quality]:
    """The six labels of one patient, `[X, Y, Z]`, and how far to believe them.

    Raises:
        VolumeError: not a skull-stripped brain, too little of it, or no registration found.
        MissingChannelError: there is no T1.
    """
    _check(volume)
    lesion = np.zeros(volume.shape, dtype=np.bool_) if volume.lesion is None else volume.lesion > 0
    registered = register(_steering(volume, lesion), lesion, load_template(), effort=effort)
    labels = np.where(volume.brain, registered.labels, 0).astype(np.uint8)
    return labels, judge(registered, labels, float(np.prod(volume.spacing)) / 1000.0)


def _annotate(job: _Job) -> _Outcome:
    """Label one patient, unless that is done already."""
    place = job.place
    key = place.files.patient_key
    try:
        settings = {name: list(levels) for name, levels in asdict(job.effort).items()}  # as JSON gives them back
        inputs = _hashes(place.files)
        if not job.replace and (earlier := _earlier(place, settings, inputs)):
            return earlier
        volume = read_patient(replace(place.files, anatomy=None, twin={}))
        labels, quality = label_anatomy(volume, effort=job.effort)
        _write(place, volume, labels, quality, settings=settings, inputs=inputs)
        return _Outcome(key, quality, _failure(quality, place.sheet))
    except DiptychError as error:
        return _Outcome(key, failure=str(error))
    except Exception as error:  # one patient must not take the others with it
        return _Outcome(key, failure=f"unexpected {type(error).__name__}: {' '.join(str(error).split())}")


def _check(volume: Volume) -> None:
    if "t1" not in volume.channels:
        raise MissingChannelError(
            f"{volume.patient_key}: has no T1, which the template is compared with; add KEY-t1n.nii.gz, "
            "or take labels from elsewhere with 'diptych annotate import'"
        )
    if warning := raw_head_warning(volume.array, volume.spacing):
        raise VolumeError(f"{volume.patient_key}: {warning[0].lower()}{warning[1:].rstrip('.')}")
    brain_ml = np.count_nonzero(volume.array[0]) * float(np.prod(volume.spacing)) / 1000.0
    if brain_ml < SMALLEST_BRAIN_ML:
        raise VolumeError(
            f"{volume.patient_key}: {brain_ml:.0f} ml of brain, at least {SMALLEST_BRAIN_ML:.0f} are needed; "
            "give the whole brain, in millimetres"
        )


def _steering(volume: Volume, lesion: NDArray[np.bool_]) -> list[Placed]:
    """T1, and T1Gd and T2 with it where T1 shows little difference between tissues."""
    names = ["t1"]
    if _contrast(volume, lesion) < POOR_T1:
        names += [name for name in ("t1gd", "t2") if name in volume.channels]
    return [Placed(volume.array[volume.channels.index(name)], volume.affine) for name in names]


def _contrast(volume: Volume, lesion: NDArray[np.bool_]) -> float:
    """Interquartile range over median of T1, away from the brain's surface and from the lesion."""
    signal = volume.array[volume.channels.index("t1")]
    depth = ndimage.distance_transform_edt((signal > 0) & ~lesion, sampling=volume.spacing)
    deep = signal[depth > DEEP_MM]
    if not deep.size:
        return 0.0
    low, middle, high = np.percentile(deep, (25, 50, 75))
    return float((high - low) / max(middle, 1e-6))


def _hashes(files: PatientFiles) -> dict[str, str]:
    parts = dict(files.channels) if files.lesion is None else {**files.channels, "lesion": files.lesion}
    return {part: file_sha256(path) for part, path in parts.items()}


def _earlier(place: Place, settings: dict[str, Any], inputs: dict[str, str]) -> _Outcome | None:
    """What an earlier run, or a person, left for this patient; None when there is work to do."""
    key, record = place.files.patient_key, read_record(place.record)
    same = record is not None and record.inputs == inputs and record.settings == settings
    if place.labels.exists():
        return _Outcome(key) if same or not _is_ours(place) else None
    if same and record is not None and record.quality is not None and record.labels_sha256 is None:
        return _Outcome(key, failure=_refusal(record.quality["remarks"], place.sheet))
    return None


def _write(
    place: Place,
    volume: Volume,
    labels: NDArray[np.uint8],
    quality: Quality,
    *,
    settings: dict[str, Any],
    inputs: dict[str, str],
) -> None:
    """Write the contact sheet, the record and, unless they are wrong, the labels."""
    make_folder(place.folder)
    write_output(place.sheet, _picture(replace(volume, anatomy=labels)))
    record = AnatomyRecord(
        patient_key=volume.patient_key,
        origin="registration",
        inputs=inputs,
        settings=settings,
        labels_sha256=None,
        quality=quality.to_json(),
    )
    if quality.verdict != "failed":
        write_labels(place, labels, record)
    else:
        if _is_ours(place):
            place.labels.unlink()
        write_record(place.record, record)


def _is_ours(place: Place) -> bool:
    """Whether the labels that are there were written by a run and not touched since."""
    record = read_record(place.record)
    return record is not None and place.labels.exists() and record.labels_sha256 == file_sha256(place.labels)


def _picture(volume: Volume) -> bytes:
    """T1, lesion and anatomy as PNG."""
    t1 = volume.channels.index("t1")
    shown = replace(volume, channels=("t1",), array=volume.array[t1 : t1 + 1], twin=None)
    buffer = io.BytesIO()
    draw_contact_sheet([shown], slices=SHEET_SLICES).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def _failure(quality: Quality, sheet: Path) -> str | None:
    return _refusal(quality.remarks, sheet) if quality.verdict == "failed" else None


def _refusal(remarks: Sequence[str], sheet: Path) -> str:
    return f"registration failed: {' '.join(remarks)} No labels were written; look at {sheet}"
