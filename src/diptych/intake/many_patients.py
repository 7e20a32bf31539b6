"""Many patients: found below folders, taken in several at a time, resumed where a run was stopped.

A patient who was taken in before from the same series is left alone; one who fails is reported and the others go on.
Knows folders and processes; `pipeline.py` knows what happens to a patient.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from diptych.errors import DiptychError, InputError, LayoutError
from diptych.files import only_writer, remove_unfinished
from diptych.intake.dicom_files import is_dicom, opened
from diptych.intake.intake_record import RECORD, IntakeRecord, read_record
from diptych.intake.pipeline import inputs_digest, intake_reading, pseudonym, read_source
from diptych.intake.raw_nifti import is_nifti
from diptych.processes import run_all
from diptych.progress import Progress, silent
from diptych.volumes.layout import find_patients, one_line

LOOKED_AT = 200
"""Files of a folder that are opened to see what it holds."""


@dataclass(frozen=True)
class IntakeReport:
    """What became of everybody."""

    done: tuple[IntakeRecord, ...] = ()
    unchanged: tuple[IntakeRecord, ...] = ()
    failed: dict[str, str] = field(default_factory=dict)
    """Source or key, and the reason in one line."""

    @property
    def folders(self) -> list[Path]:
        """Where the patients lie now."""
        return sorted(record.folder for record in (*self.done, *self.unchanged))


@dataclass(frozen=True)
class _Job:
    source: Path
    study: int
    out: Path
    overrides: Mapping[str, str]
    key: str

    @property
    def name(self) -> str:
        return f"{one_line(self.source)}#{self.study + 1}"


@dataclass(frozen=True)
class _Outcome:
    job: _Job
    record: IntakeRecord | None = None
    unchanged: bool = False
    problem: str | None = None


def intake_sources(
    sources: Sequence[Path],
    out: Path,
    *,
    overrides: Mapping[str, str] | None = None,
    patient_key: str | None = None,
    workers: int = 1,
    progress: Progress = silent,
) -> IntakeReport:
    """Take in every study below `sources`; the patients' folders are made in `out`."""
    out.mkdir(parents=True, exist_ok=True)
    with only_writer(out):
        remove_unfinished(out)
        jobs, failed = _jobs(sources, out, dict(overrides or {}), patient_key)
        done: list[IntakeRecord] = []
        unchanged: list[IntakeRecord] = []
        if len(jobs) == 1:
            outcomes = iter([_take_in(jobs[0], progress)])
        else:
            outcomes = run_all(_take_in, jobs, workers)
        for number, outcome in enumerate(outcomes, start=1):
            if outcome.record is not None:
                (unchanged if outcome.unchanged else done).append(outcome.record)
            else:
                failed[outcome.job.name] = outcome.problem or "failed"
            if len(jobs) > 1:
                progress(number, len(jobs), outcome.record.patient_key if outcome.record else "failed")
    return IntakeReport(tuple(done), tuple(unchanged), failed)


def _jobs(
    sources: Sequence[Path], out: Path, overrides: Mapping[str, str], patient_key: str | None
) -> tuple[list[_Job], dict[str, str]]:
    """One job per study; a source that cannot be read is a failure of its own."""
    jobs: list[_Job] = []
    failed: dict[str, str] = {}
    for source in sources:
        try:
            with opened(source) as files:
                keys = [patient_key or pseudonym(reading, out) for reading in read_source(files, source)]
        except DiptychError as error:
            failed[one_line(source)] = str(error)
            continue
        jobs += [_Job(source, study, out, overrides, key) for study, key in enumerate(keys)]
    if patient_key is not None and len(jobs) > 1:
        raise InputError(f"key {patient_key}: {len(jobs)} studies were found; a key can be given to one only")
    _check_different(jobs)
    return jobs, failed


def _check_different(jobs: Iterable[_Job]) -> None:
    """Refuse two studies of one key, of which the later would replace the earlier."""
    seen: dict[str, _Job] = {}
    for job in jobs:
        if (other := seen.setdefault(job.key, job)) is not job:
            raise InputError(
                f"{other.name} and {job.name}: both would become {job.key}; give each study once (the folder above "
                "both, where its parts lie in two), and folders of raw NIfTI files names that differ"
            )


def _take_in(job: _Job, progress: Progress = silent) -> _Outcome:
    try:
        with opened(job.source) as files:
            reading = read_source(files, job.source)[job.study]
            before = taken_before(job.out / job.key, inputs_digest(reading, job.out))
            if before is not None and not job.overrides:
                return _Outcome(job, before, unchanged=True)
            record = intake_reading(reading, job.out, overrides=job.overrides, patient_key=job.key, progress=progress)
            return _Outcome(job, record)
    except DiptychError as error:
        return _Outcome(job, problem=str(error))
    except MemoryError:
        return _Outcome(job, problem="not enough memory; use fewer --workers (each takes up to 3 GB)")


def taken_before(folder: Path, digest: str) -> IntakeRecord | None:
    """What an earlier run made of the same series."""
    if not (folder / RECORD).is_file():
        return None
    try:
        record = read_record(folder)
    except InputError:
        return None
    return record if record.inputs == digest else None


def needs_intake(source: Path) -> bool:
    """Whether a source is what a scanner gave: DICOM, a ZIP, or NIfTI files that do not lie on one grid.

    Looks at names, first bytes and headers only.
    """
    if source.is_file():
        return zipfile.is_zipfile(source) or is_dicom(source)
    if not source.is_dir():
        return False
    try:
        patient = find_patients(source)[0]
        return on_own_grids(patient.channels.values())
    except LayoutError as error:
        if "no patient found" not in str(error):  # an archive, doubles: whoever reads it next says what is wrong
            return False
        names = (path for path in source.rglob("*") if path.is_file() and not path.name.startswith("."))
        return any(is_nifti(path) or is_dicom(path) for path in islice(names, LOOKED_AT))


def on_own_grids(paths: Iterable[Path]) -> bool:
    """Whether a patient's NIfTI files lie on grids of their own, as scanners give them."""
    return len({_shape(path) for path in paths} - {()}) > 1


def _shape(path: Path) -> tuple[int, ...]:
    import nibabel as nib

    try:
        return tuple(nib.load(path).shape)
    except Exception:  # whoever reads it next says what is wrong with it
        return ()
