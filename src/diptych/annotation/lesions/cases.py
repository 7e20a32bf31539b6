"""Patients as training needs them: working image and labels, prepared once and kept beside the run.

    RUN/cases/KEY.safetensors     image float16 [4, x, y, z], labels uint8 [x, y, z]; metadata: voxel hash, spacing

A crop reads only its own part of the file, so memory stays flat whatever the number of patients. Knows no network.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from diptych.annotation.lesions.grid import brain_box, working_image, working_labels
from diptych.errors import DiptychError, LabelError, VolumeError
from diptych.progress import Progress, silent
from diptych.volumes import CHANNELS, PatientFiles, Volume, read_patient, voxel_hash
from diptych.volumes.rawhead import raw_head_warning

__all__ = ["Case", "prepare_cases", "read_stripped"]

Prepared = tuple[dict[str, "Case"], dict[str, str]]


@dataclass(frozen=True)
class Case:
    """One prepared patient on disk."""

    patient_key: str
    path: Path

    @cached_property
    def about(self) -> dict[str, str]:
        """Voxel hash, spacing and where the labels came from."""
        with safe_open(self.path, "np") as file:
            return dict(file.metadata() or {})

    @property
    def labels(self) -> NDArray[np.uint8]:
        """Lesion labels, `[x, y, z]`, read anew each time."""
        with safe_open(self.path, "np") as file:
            labels: NDArray[np.uint8] = file.get_tensor("labels")
        return labels

    def image(self, place: tuple[slice, slice, slice] | None = None) -> NDArray[np.float32]:
        """Z-scores, `[4, x, y, z]`, or the part of them at `place`."""
        with safe_open(self.path, "np") as file:
            whole = file.get_slice("image")
            part = whole[:] if place is None else whole[:, place[0], place[1], place[2]]
        image: NDArray[np.float32] = part.astype(np.float32)
        return image


def read_stripped(files: PatientFiles) -> Volume:
    """Read a patient with all four channels; a head whose skull is still there is refused."""
    volume = read_patient(files, required=CHANNELS)
    if raw_head := raw_head_warning(volume.array, volume.spacing):
        raise VolumeError(f"{files.patient_key}: {raw_head}")
    return volume


def prepare_cases(
    patients: list[PatientFiles], folder: Path, *, spacing_mm: float, progress: Progress = silent
) -> Prepared:
    """Prepare every patient that can be trained on; returns the cases, and the others with the reason."""
    folder.mkdir(parents=True, exist_ok=True)
    cases: dict[str, Case] = {}
    failed: dict[str, str] = {}
    for done, files in enumerate(patients, start=1):
        case = Case(files.patient_key, folder / f"{files.patient_key}.safetensors")
        try:
            if not _is_prepared(case, spacing_mm):
                _prepare(files, case.path, spacing_mm)
            cases[files.patient_key] = case
        except DiptychError as error:
            failed[files.patient_key] = str(error)
        progress(done, len(patients), files.patient_key)
    return cases, failed


def _prepare(files: PatientFiles, path: Path, spacing_mm: float) -> None:
    volume = read_stripped(files)
    if volume.lesion is None:
        raise LabelError(f"{files.patient_key}: has no lesion labels to learn from; add {files.patient_key}-seg.nii.gz")
    if not volume.lesion.any():
        raise LabelError(f"{files.lesion}: holds background only, a single class; leave this patient out of training")
    box = brain_box(volume, spacing_mm)
    labels = working_labels(volume.lesion, box)
    if not labels.any():
        raise LabelError(f"{files.lesion}: no lesion is left at {spacing_mm:g} mm; leave this patient out of training")
    arrays: dict[str, NDArray[Any]] = {"image": working_image(volume, box).astype(np.float16), "labels": labels}
    metadata = {"voxels": voxel_hash(volume), "spacing_mm": f"{spacing_mm:g}"}
    _write_whole(path, lambda part: save_file(arrays, part, metadata))


def _is_prepared(case: Case, spacing_mm: float) -> bool:
    try:
        return case.about.get("spacing_mm") == f"{spacing_mm:g}"
    except (OSError, SafetensorError):
        return False


def _write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a hidden file, then move it into place."""
    part = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        write(part)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
