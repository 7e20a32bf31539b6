"""Patients as training needs them: working image and labels, prepared once and kept beside the run.

    RUN/cases/KEY.safetensors     image float16 [C, x, y, z], labels uint8 [x, y, z]; metadata: voxel hash, spacing

A crop reads only its own part of the file, so memory stays flat whatever the number of patients. Knows no network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from diptych.annotation.lesions.grid import brain_box, working_image, working_labels
from diptych.description import Description
from diptych.errors import DiptychError, LabelError, UsageError, VolumeError
from diptych.files import replacing
from diptych.progress import Progress, silent
from diptych.slices.splits import read_keys
from diptych.volumes import PatientFiles, Volume, find_patients, read_patient, voxel_hash
from diptych.volumes.people import group_people
from diptych.volumes.rawhead import raw_head_warning

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
        """Z-scores, `[C, x, y, z]`, or the part of them at `place`."""
        with safe_open(self.path, "np") as file:
            whole = file.get_slice("image")
            part = whole[:] if place is None else whole[:, place[0], place[1], place[2]]
        image: NDArray[np.float32] = part.astype(np.float32)
        return image


def read_stripped(files: PatientFiles, about: Description) -> Volume:
    """Read a patient with all channels that are named; a head whose skull is still there is refused."""
    volume = read_patient(files, description=about)
    if raw_head := raw_head_warning(volume.array, volume.spacing):
        raise VolumeError(f"{files.patient_key}: {raw_head}")
    return volume


def prepare_cases(
    patients: list[PatientFiles],
    folder: Path,
    *,
    about: Description,
    spacing_mm: float,
    progress: Progress = silent,
) -> Prepared:
    """Prepare every patient that can be trained on; returns the cases, and the others with the reason."""
    folder.mkdir(parents=True, exist_ok=True)
    cases: dict[str, Case] = {}
    failed: dict[str, str] = {}
    for done, files in enumerate(patients, start=1):
        case = Case(files.patient_key, folder / f"{files.patient_key}.safetensors")
        try:
            if not _is_prepared(case, spacing_mm):
                _prepare(files, case.path, about, spacing_mm)
            cases[files.patient_key] = case
        except DiptychError as error:
            failed[files.patient_key] = str(error)
        progress(done, len(patients), files.patient_key)
    return cases, failed


def _prepare(files: PatientFiles, path: Path, about: Description, spacing_mm: float) -> None:
    volume = read_stripped(files, about)
    if volume.lesion is None:
        raise LabelError(f"{files.patient_key}: has no lesion labels to learn from; add {files.patient_key}-seg.nii.gz")
    if not volume.lesion.any():
        raise LabelError(f"{files.lesion}: holds background only, a single class; leave this patient out of training")
    box = brain_box(volume, spacing_mm)
    labels = working_labels(volume.lesion, box, classes=len(about.lesion) + 1)
    if not labels.any():
        raise LabelError(f"{files.lesion}: no lesion is left at {spacing_mm:g} mm; leave this patient out of training")
    arrays: dict[str, NDArray[Any]] = {"image": working_image(volume, box).astype(np.float16), "labels": labels}
    metadata = {"voxels": voxel_hash(volume), "spacing_mm": f"{spacing_mm:g}"}
    with replacing(path) as part:
        save_file(arrays, part, metadata)


def _is_prepared(case: Case, spacing_mm: float) -> bool:
    try:
        return case.about.get("spacing_mm") == f"{spacing_mm:g}"
    except (OSError, SafetensorError):
        return False


def chosen_patients(source: Path, keys: Path | None = None) -> list[PatientFiles]:
    """Patients found in `source`, in the order of their keys; with a list, those on it and no others."""
    patients = find_patients(source)
    if keys is None:
        return patients
    wanted, found = set(read_keys(keys)), {files.patient_key for files in patients}
    if missing := sorted(wanted - found):
        raise UsageError(f"{keys}: patient {missing[0]} is not in {source}; correct the list or the folder")
    return [files for files in patients if files.patient_key in wanted]


def deal_folds(voxel_hashes: Mapping[str, str], folds: int, *, seed: int) -> list[tuple[str, ...]]:
    """Deal patient keys into `folds` groups of nearly equal size, in an order set by `seed`.

    Args:
        voxel_hashes: Patient key to the hash of the patient's voxels.

    >>> deal_folds({"a": "1", "b": "2", "c": "3", "d": "1"}, 2, seed=0)
    [('a', 'd'), ('b', 'c')]
    """
    if folds < 2:
        raise UsageError(f"--folds {folds}: cross-validation needs at least 2")
    people = group_people(sorted(voxel_hashes), voxel_hashes)
    if len(people) < folds:
        raise UsageError(
            f"{len(people)} labelled patients that can be used, but {folds} folds: each fold holds out at least one; "
            "add patients, or ask for fewer --folds"
        )
    order = np.random.default_rng(seed).permutation(len(people)).tolist()
    order.sort(key=lambda number: -len(people[number]))  # stable: equal groups stay shuffled
    dealt: list[list[str]] = [[] for _ in range(folds)]
    for number in order:
        min(dealt, key=len).extend(people[number])
    return [tuple(sorted(keys)) for keys in dealt]
