"""Anatomy labels that another program made (FreeSurfer, SynthSeg, …) become the six labels of a patient.

    FROM/KEY.nii.gz, FROM/KEY<anything>.nii.gz     one file per patient in a folder
    FROM/KEY/<anything>aseg….nii.gz                or in a folder per patient: the file whose name has aseg, synthseg,
                                                   parc or labels in it, or the only file there
    FROM                                           or one file, for one patient

The file may have another grid than the patient's images: both are placed by their affines, and each of the patient's
voxels takes the label that fills most of it. Knows nothing about registration.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from diptych.annotation.label_mapping import FREESURFER, LabelMapping
from diptych.annotation.label_record import AnatomyRecord, write_labels
from diptych.annotation.places import Place, find_places, make_folder
from diptych.annotation.registration import Placed, read_placed
from diptych.errors import DiptychError, GeometryError, LabelError, LayoutError
from diptych.files import file_sha256
from diptych.progress import Progress, silent
from diptych.volumes import ANATOMY_LABELS, read_patient
from diptych.volumes.layout import one_line

TELLING = re.compile(r"aseg|synthseg|parc|label", re.IGNORECASE)
SMALLEST_COVER = 0.5
"""Share of the labelled volume that must lie inside the patient's brain."""


@dataclass(frozen=True)
class ImportReport:
    """What a run did."""

    written: dict[str, dict[str, float]]
    """Patient to millilitres of each label."""
    unchanged: tuple[str, ...]
    """Patients that had labels already."""
    failed: dict[str, str]
    seconds: float


def import_labels(
    sources: Sequence[Path | str],
    origin: Path,
    *,
    mapping: LabelMapping = FREESURFER,
    out: Path | str | None = None,
    replace: bool = False,
    progress: Progress = silent,
) -> ImportReport:
    """Give every patient in `sources` the labels that `origin` holds for it; a bad one does not stop the others."""
    started = time.monotonic()
    places = find_places(sources, out)
    if origin.is_file() and len(places) > 1:
        raise LayoutError(
            f"{one_line(origin)}: one file, but {len(places)} patients; give a folder with a file for each"
        )
    written: dict[str, dict[str, float]] = {}
    unchanged, failed = [], {}
    for done, place in enumerate(places, start=1):
        key = place.files.patient_key
        if place.labels.exists() and not replace:
            unchanged.append(key)
        else:
            try:
                written[key] = _take_over(place, _labels_of(origin, key), mapping)
            except DiptychError as error:
                failed[key] = str(error)
        progress(done, len(places), key)
    return ImportReport(written, tuple(unchanged), failed, time.monotonic() - started)


def to_grid(labels: Placed, shape: tuple[int, ...], affine: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Labels on another grid; each voxel takes the label that fills most of it. Equal grids change nothing."""
    there = np.linalg.inv(labels.affine) @ affine  # index of the new grid to index of the old one
    if labels.array.shape == tuple(shape) and np.allclose(there, np.eye(4), atol=1e-3):
        return labels.array.astype(np.uint8)
    sizes = np.linalg.norm(there[:3, :3], axis=0)
    sigma = [0.0 if size <= 1.0 else 0.3 * size for size in sizes]
    best = np.zeros(shape, dtype=np.float32)
    chosen = np.zeros(shape, dtype=np.uint8)
    for label in ANATOMY_LABELS:
        share = ndimage.gaussian_filter((labels.array == label).astype(np.float32), sigma)
        share = ndimage.affine_transform(
            share, there[:3, :3], there[:3, 3], output_shape=shape, order=1, cval=float(label == 0)
        )
        chosen[share > best] = label
        best = np.maximum(best, share)
    return chosen


def _take_over(place: Place, path: Path, mapping: LabelMapping) -> dict[str, float]:
    volume = read_patient(replace(place.files, anatomy=None, lesion=None, twin={}))
    ids = read_placed(path)
    if not np.array_equal(ids.array, np.rint(ids.array)) or ids.array.min() < 0:
        raise LabelError(f"{one_line(path)}: holds values that are not whole numbers from 0; give a label map")
    six = mapping.apply(ids.array.astype(np.int32), source=one_line(path))
    labels = to_grid(Placed(six.astype(np.float32), ids.affine), volume.shape, volume.affine)
    _check(path, labels, volume.brain)
    labels = np.where(volume.brain, labels, 0).astype(np.uint8)
    record = AnatomyRecord(
        patient_key=volume.patient_key,
        origin=path.name,
        inputs={"labels": file_sha256(path)},
        settings={},
        labels_sha256=None,
        quality=None,
    )
    make_folder(place.folder)
    write_labels(place, labels, record)
    counts = np.bincount(labels.reshape(-1), minlength=len(ANATOMY_LABELS))
    voxel_ml = float(np.prod(volume.spacing)) / 1000.0
    return {name: round(float(counts[value]) * voxel_ml, 2) for value, name in ANATOMY_LABELS.items() if value}


def _check(path: Path, labels: NDArray[np.uint8], brain: NDArray[np.bool_]) -> None:
    """Refuse labels that do not lie on this brain, or of which a side is missing altogether."""
    labelled = labels > 0
    inside = int(np.count_nonzero(labelled & brain)) / max(int(np.count_nonzero(labelled)), 1)
    if inside < SMALLEST_COVER:
        raise GeometryError(
            f"{one_line(path)}: only {inside:.0%} of its labels lie on the patient's brain; "
            "give labels made from this patient's images, in their space"
        )
    present = set(np.unique(labels[brain]).tolist())
    if not {1, 2} <= present:
        named = ", ".join(ANATOMY_LABELS[value] for value in sorted(present - {0})) or "nothing"
        raise LabelError(
            f"{one_line(path)}: only {named} is labelled; both halves of the cerebrum are needed: check the mapping"
        )


def _labels_of(origin: Path, key: str) -> Path:
    """The one file that `origin` holds for a patient."""
    if origin.is_file():
        return _readable(origin)
    if not origin.is_dir():
        raise LayoutError(f"{one_line(origin)}: is not there; give the file or folder with the labels")
    own = origin / key
    if own.is_dir():
        images = [path for path in sorted(own.iterdir()) if _is_image(path)]
        candidates = [path for path in images if TELLING.search(path.name)] or images
    else:
        follows = re.compile(re.escape(key) + r"(?![A-Za-z0-9]).*", re.IGNORECASE)
        candidates = [path for path in sorted(origin.iterdir()) if _is_image(path) and follows.fullmatch(path.name)]
    if len(candidates) != 1:
        found = ", ".join(one_line(path.name) for path in candidates[:4]) or "none"
        raise LayoutError(
            f"{one_line(origin)}: needs one label file for {key}, found {found}; name it {key}.nii.gz or "
            f"{key}/aseg.nii.gz"
        )
    return _readable(candidates[0])


def _is_image(path: Path) -> bool:
    return path.name.lower().endswith((".nii", ".nii.gz", ".mgz"))


def _readable(path: Path) -> Path:
    if path.name.lower().endswith(".mgz"):
        raise LayoutError(f"{one_line(path)}: FreeSurfer's own format; convert it: mri_convert {path.name} aseg.nii.gz")
    return path
