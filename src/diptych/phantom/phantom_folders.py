"""Phantoms on disk as BraTS-2023 folders: many at once, in parallel, resumable, each folder whole or absent.

    KEY/KEY-t1n.nii.gz  -t1c  -t2w  -t2f     the patient
    KEY/KEY-twin-t1n.nii.gz  …               the same brain without the lesion's tissue
    KEY/KEY-seg.nii.gz  KEY-anatomy.nii.gz   labels
    KEY/KEY-t1n-before.nii.gz  …             on request: the brain before the tumour
    KEY/phantom.json                         seed, settings and the lesion's biology

Knows nothing about how phantoms are made.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from diptych.errors import InputError, UsageError
from diptych.files import only_writer, remove_unfinished, replacing_folder, write_json
from diptych.phantom.phantom_config import PhantomConfig
from diptych.phantom.phantom_patient import Phantom, make_phantom, phantom_key
from diptych.processes import run_all
from diptych.progress import Progress, silent
from diptych.volumes import CHANNELS, write_nifti

RECIPE = 1
"""Goes up whenever the same seed would give other voxels, so that old folders are not taken for new ones."""
FILE_NAMES = dict(zip(CHANNELS, ("t1n", "t1c", "t2w", "t2f"), strict=True))
RECORD = "phantom.json"
OLD = ("disease", "glioma")
"""Left out of records, so that folders of before there was a choice are taken for what they are."""


@dataclass(frozen=True)
class WriteReport:
    """What a run did."""

    written: tuple[str, ...]
    unchanged: tuple[str, ...]
    """Patients that were there already, made with the same settings."""
    seconds: float


@dataclass(frozen=True)
class _Job:
    out: Path
    seed: int
    index: int
    config: PhantomConfig
    before: bool

    @property
    def key(self) -> str:
        return phantom_key(self.seed, self.index, disease=self.config.disease)

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "recipe": RECIPE,
            "seed": self.seed,
            "index": self.index,
            "before": self.before,
            "config": {name: value for name, value in asdict(self.config).items() if (name, value) != OLD},
        }


def write_phantoms(
    out: Path | str,
    *,
    patients: int,
    seed: int,
    config: PhantomConfig = PhantomConfig(),
    before: bool = False,
    workers: int = 1,
    progress: Progress = silent,
) -> WriteReport:
    """Make patients 0 to `patients` − 1 of the series `seed` under `out`; those already there are left alone.

    Raises:
        InputError: `out` cannot be written, or holds a patient of the same key made with other settings.
    """
    if patients < 1:
        raise UsageError(f"{patients} patients: ask for at least one")
    started = time.monotonic()
    folder = _make_folder(Path(out))
    jobs = [_Job(folder, seed, index, config, before) for index in range(patients)]
    with only_writer(folder):
        remove_unfinished(folder)
        pending = [job for job in jobs if not _is_there(job)]
        done = len(jobs) - len(pending)
        for key in run_all(_make_and_write, pending, workers):
            done += 1
            progress(done, len(jobs), key)
    written = {job.key for job in pending}
    return WriteReport(
        written=tuple(sorted(written)),
        unchanged=tuple(job.key for job in jobs if job.key not in written),
        seconds=time.monotonic() - started,
    )


def write_phantom(phantom: Phantom, folder: Path, *, before: bool = False) -> None:
    """Write one phantom's images and labels into an existing folder."""
    volume, key = phantom.volume, phantom.volume.patient_key
    assert volume.twin is not None
    assert volume.lesion is not None
    assert volume.anatomy is not None
    write_nifti(folder / f"{key}-seg.nii.gz", volume.lesion, volume.affine)
    write_nifti(folder / f"{key}-anatomy.nii.gz", volume.anatomy, volume.affine)
    for channel, image, twin in zip(volume.channels, volume.array, volume.twin, strict=True):
        name = FILE_NAMES[channel]
        write_nifti(folder / f"{key}-{name}.nii.gz", image.astype(np.int16), volume.affine)
        write_nifti(folder / f"{key}-twin-{name}.nii.gz", twin.astype(np.int16), volume.affine)
    if before:
        for channel, image in zip(volume.channels, phantom.before.array, strict=True):
            path = folder / f"{key}-{FILE_NAMES[channel]}-before.nii.gz"
            write_nifti(path, image.astype(np.int16), volume.affine)


def _make_folder(out: Path) -> Path:
    try:
        out.mkdir(parents=True, exist_ok=True)
        if not os.access(out, os.W_OK):
            raise PermissionError(None, "permission denied")
    except OSError as error:
        raise InputError(f"{out}: cannot be written ({error.strerror}); choose another folder") from None
    return out


def _is_there(job: _Job) -> bool:
    """Whether the patient is finished; folders appear whole, so its record stands for its images."""
    folder = job.out / job.key
    if not folder.exists():
        return False
    try:
        found = json.loads((folder / RECORD).read_text(encoding="utf-8"))["settings"]
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(f"{folder}: is there and is no phantom of ours; choose another folder") from None
    if found != job.settings:
        other = next((name for name, value in job.settings.items() if found.get(name) != value), "settings")
        raise InputError(f"{folder}: was made with another {other}; choose another folder or delete this one")
    return True


def _make_and_write(job: _Job) -> str:
    """Make one patient in a hidden folder beside its place, then move it there in one step."""
    phantom = make_phantom(job.seed, index=job.index, config=job.config)
    lesion = asdict(phantom.plan) if phantom.plan else None
    record = {"settings": job.settings, "lesion": lesion, "note": "synthetic patient, research use only"}
    try:
        with replacing_folder(job.out / job.key) as part:
            write_phantom(phantom, part, before=job.before)
            write_json(part / RECORD, record)
    except OSError as error:
        raise InputError(f"{job.out}: cannot be written ({error.strerror}); choose another folder") from None
    return job.key
