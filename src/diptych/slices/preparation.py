"""From folders of patients to a slice store: in parallel, resumable, and never stopped by one bad patient.

`prepare` is the whole story. A patient whose files have not changed is left alone, so running it again costs little
and finishes what a killed run left undone.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from diptych.description import GLIOMA, Description
from diptych.errors import DiptychError, StoreError
from diptych.files import file_sha256, only_writer
from diptych.processes import run_all
from diptych.progress import Progress, silent
from diptych.slices.preprocess import SliceGeometry, slice_volume
from diptych.slices.slice_store import SliceStore
from diptych.slices.store_record import SourceRecord
from diptych.volumes import CHANNELS, PatientFiles, read_patient, voxel_hash
from diptych.volumes.sources import find_sources


@dataclass(frozen=True)
class PrepareReport:
    """What a run did."""

    written: tuple[str, ...]
    """Patients that are new in the store, or were taken in again because their files or slices had changed."""
    unchanged: tuple[str, ...]
    """Patients that were there already."""
    failed: dict[str, str]
    """Patients that could not be taken in, with the reason."""
    warnings: dict[str, tuple[str, ...]]
    """What was noticed about patients in the store."""
    slices: int
    """Slices in the store."""
    seconds: float


@dataclass(frozen=True)
class _Job:
    """One patient's work: a store that holds no record but this patient's, and the files to read."""

    store: SliceStore
    files: PatientFiles


@dataclass(frozen=True)
class _Outcome:
    patient_key: str
    written: bool = False
    failure: str | None = None


def prepare(
    sources: Sequence[Path | str],
    out: Path | str,
    *,
    geometry: SliceGeometry | None = None,
    channels: Sequence[str] | None = None,
    description: Description = GLIOMA,
    blank: bool = False,
    workers: int = 1,
    progress: Progress = silent,
) -> PrepareReport:
    """Take every patient found in `sources` into the slice store `out`, which is made if it is not there.

    `channels` are by default all that any of the patients has. `description` names the classes and tells how label
    files are read; its channels and geometry do not count. With `blank`, slices that
    show no brain are kept as well, as the paper does.

    Raises:
        LayoutError: a source holds no patient, or two of them claim one key.
        StoreError: `out` has another geometry or other channels, is in use by another run, or cannot be written.
    """
    started = time.monotonic()
    patients = find_sources(sources)
    chosen = tuple(channels or _channels_of(patients))
    store = SliceStore.create(Path(out), geometry or SliceGeometry(), chosen, blank=blank, description=description)
    with only_writer(store.path):
        store.remove_unfinished()
        jobs = [_job(store, files) for files in patients]
        outcomes = []
        for outcome in run_all(_take_in, jobs, workers):
            outcomes.append(outcome)
            progress(len(outcomes), len(jobs), outcome.patient_key)
        failed = {o.patient_key: o.failure for o in outcomes if o.failure is not None}
        store.finish(sources=[str(source) for source in sources], failed=failed)
    return PrepareReport(
        written=tuple(sorted(o.patient_key for o in outcomes if o.written)),
        unchanged=tuple(sorted(o.patient_key for o in outcomes if not o.written and o.failure is None)),
        failed=failed,
        warnings=store.manifest.warnings,
        slices=sum(record.slices for record in store.patients.values()),
        seconds=time.monotonic() - started,
    )


def _channels_of(patients: Sequence[PatientFiles]) -> tuple[str, ...]:
    """Every channel that somebody has; who lacks one of them is then refused by its name."""
    return tuple(name for name in CHANNELS if any(name in files.channels for files in patients))


def _job(store: SliceStore, files: PatientFiles) -> _Job:
    known = {key: record for key, record in store.patients.items() if key == files.patient_key}
    wanted = {name: path for name, path in files.channels.items() if name in store.channels}
    return _Job(SliceStore(store.path, store.manifest, known), replace(files, channels=wanted))


def _take_in(job: _Job) -> _Outcome:
    """Read, slice and store one patient, unless it is in the store as it should be."""
    store, key = job.store, job.files.patient_key
    try:
        sources = {part: SourceRecord(str(path), file_sha256(path)) for part, path in sorted(_parts(job.files).items())}
        if _is_current(store, key, sources):
            return _Outcome(key)
        volume = read_patient(job.files, description=store.description)
        stack = slice_volume(volume, store.geometry, channels=store.channels)
        voxels = voxel_hash(volume)
    except DiptychError as error:
        return _Outcome(key, failure=str(error))
    except Exception as error:  # a file that breaks the reader must not take the other patients with it
        return _Outcome(key, failure=f"{key}: unexpected {type(error).__name__}: {error}")
    store.add(stack, voxel_hash=voxels, sources=sources)
    return _Outcome(key, written=True)


def _parts(files: PatientFiles) -> dict[str, Path]:
    twin = {f"twin-{name}": path for name, path in files.twin.items()}
    labels = {"lesion": files.lesion, "anatomy": files.anatomy}
    return {**files.channels, **twin, **{name: path for name, path in labels.items() if path is not None}}


def _is_current(store: SliceStore, key: str, sources: dict[str, SourceRecord]) -> bool:
    """Whether the store holds this patient whole, made from files with the same bytes."""
    if key not in store.patients:
        return False
    before = {part: source.sha256 for part, source in store.patients[key].sources.items()}
    if before != {part: source.sha256 for part, source in sources.items()}:
        return False
    try:
        store.check_patient(key, verify=True)
    except StoreError:
        return False
    return True
