"""What becomes of an upload: read, encode, keep as a case; and, when asked, add to the archive.

Knows uploads, jobs and the encoder. Runs in a job's thread; everything it says of a file uses the client's names.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diptych.archive import ArchiveWriter, ModelIdentity, VolumeInfo
from diptych.archive.copies import write_copies
from diptych.archive.encoding import Encoder, encode_volume
from diptych.archive.records import CodeIdArray
from diptych.description import Description
from diptych.errors import DiptychError
from diptych.progress import Progress
from diptych.server.cases import Case, content_tag
from diptych.server.jobs import Cancelled
from diptych.server.problems import Problem
from diptych.server.service import Service
from diptych.server.uploads import Upload, assign
from diptych.slices import SliceGeometry
from diptych.volumes import CHANNELS, PatientFiles, find_patients, read_patient, subject_of

BATCH = 4
"""Slices between two reports: about a second's work."""
READING = 4
"""Steps that reading the files counts for."""


class ReportingEncoder:
    """An encoder that says how far it has come; also where a cancelled job stops."""

    def __init__(self, encoder: Encoder, progress: Progress, total: int) -> None:
        self.encoder = encoder
        self.progress = progress
        self.total = total
        self.done = READING

    @property
    def identity(self) -> ModelIdentity:
        return self.encoder.identity

    @property
    def geometry(self) -> SliceGeometry:
        return self.encoder.geometry

    @property
    def description(self) -> Description:
        return self.encoder.description

    def encode(self, images: NDArray[np.float32]) -> tuple[CodeIdArray, CodeIdArray]:
        ids = self.encoder.encode(images)
        self._step(len(images), "encoding slices")
        return ids

    def lesion_pixels(self, abnormal_ids: CodeIdArray) -> NDArray[np.int64]:
        pixels = self.encoder.lesion_pixels(abnormal_ids)
        self._step(len(abnormal_ids), "measuring lesions")
        return pixels

    def _step(self, count: int, note: str) -> None:
        self.done = min(self.done + count, self.total - 1)
        self.progress(self.done, self.total, note)


def begin_decomposing(service: Service, upload: Upload) -> None:
    """Queue the work, unless a channel is missing; whatever ran before for this upload is stopped."""
    if upload.job is not None:
        upload.job.cancelled.set()
    upload.case, upload.job = None, None
    if missing_channels(service, upload):
        return
    upload.job = service.jobs.submit(
        "decompose",
        "decompose",
        lambda progress: decompose(service, upload, progress),
        seconds=service.settings.decode_seconds,
    )


def missing_channels(service: Service, upload: Upload) -> list[str]:
    """Channels that the model needs and no file has; what a study holds is found out by intake."""
    if upload.study is not None:
        return []
    there = [role for role in upload.roles.values() if role is not None]
    return list(service.library.current.description.needed(there))


def place_the_rest(service: Service, upload: Upload) -> None:
    """One channel is missing and one file has no role: that file is what was asked for."""
    there = [role for role in upload.roles.values() if role is not None]
    missing = service.library.current.description.missing(there)
    unplaced = [file.name for file in upload.files if upload.roles.get(file.name) is None]
    if len(missing) == 1 and len(unplaced) == 1:
        assign(upload, {unplaced[0]: missing[0]})


def decompose(service: Service, upload: Upload, progress: Progress) -> None:
    """Read and encode an upload; it becomes a case like any other."""
    progress(0, 1, "reading files")
    try:
        files, said = _files(service, upload, progress)
        about = service.library.current.description
        volume = read_patient(files, limits=service.settings.volume_limits, description=about)
        steps = READING + 2 * volume.shape[2]
        progress(READING, steps, "reading files")
        encoder = ReportingEncoder(service.library.current.encoder, progress, steps)
        key = service.library.current.key_of(upload.patient_key)
        info = VolumeInfo(key, subject_of(key), input_digest=upload.id)
        record = encode_volume(replace(volume, lesion=None), info, encoder, batch_size=BATCH, predict_lesions=True)
        copies = write_copies(upload.folder, replace(volume, patient_key=upload.id))
        progress(steps, steps, "done")
    except (OSError, DiptychError) as error:
        if upload.deleted or isinstance(error, Cancelled):
            raise Cancelled("the upload was deleted or changed") from None
        raise type(error)(upload.without_paths(str(error))) from None
    record = replace(record, info=replace(record.info, files=copies))
    upload.case = Case(
        route=f"uploads/{upload.id}",
        record=record,
        folder=upload.folder,
        files={file.role: file for file in copies},
        tag=content_tag(record),
        warnings=(*said, *volume.warnings, *service.library.current.check(volume)),
    )


def _files(service: Service, upload: Upload, progress: Progress) -> tuple[PatientFiles, tuple[str, ...]]:
    """The upload's files ready to be read, and what intake had to say where it is a study or raw heads."""
    files = upload.patient_files(service.library.channels)
    from diptych.intake.dicom_files import FileLimits
    from diptych.intake.many_patients import on_own_grids
    from diptych.intake.pipeline import intake_patient

    if upload.study is None and not on_own_grids(files.channels.values()):
        return files, ()
    shutil.rmtree(upload.folder / "intake", ignore_errors=True)
    record = intake_patient(
        upload.study or _apart(upload, files),
        upload.folder / "intake",
        overrides=None
        if upload.study
        else {channel: channel if channel in files.channels else "none" for channel in CHANNELS},
        patient_key="upload",
        limits=FileLimits(max_files=service.settings.max_study_files, max_total_bytes=service.settings.max_unpacked),
        scratch=upload.folder,  # goes with the upload, and with a service that was killed
        progress=progress,
    )
    (found,) = find_patients(record.folder)
    return found.only(tuple(service.library.channels)), record.warnings


def _apart(upload: Upload, files: PatientFiles) -> Path:
    """The channels' files in a folder of their own, called by what they are."""
    folder = upload.folder / "raw"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    for channel, path in files.channels.items():
        (folder / f"{channel}{path.name.lstrip('0123456789')}").hardlink_to(path)
    return folder


def add_to_archive(
    service: Service, upload: Upload, volume_key: str, progress: Progress, *, replacing: bool = False
) -> None:
    """Store an upload as a volume of the archive, with its images, as indexing would have."""
    case = upload.case
    if case is None:
        raise Problem(409, "the upload is not decomposed yet")
    archive = service.library.current
    progress(0, 3, "reading images")
    record, volume = case.record, service.cases.read(case)
    info = VolumeInfo(volume_key, subject_of(volume_key), input_digest=case.tag, lesion_source="predicted")
    known = service.cases.stack(case).lesion
    if known is not None:
        rows, columns = case.pixel_spacing
        pixels = np.count_nonzero(known, axis=(1, 2))
        record = replace(record, lesion_area=(pixels * rows * columns).astype(np.float32))
        info = replace(info, lesion_source="labels")
    progress(1, 3, "copying images")
    with ArchiveWriter.open(archive.store.folder_of(info), model=archive.store.model) as writer:
        if not replacing and any(
            one.volume_key == volume_key for one in writer.listing().volumes
        ):  # only now is it sure
            raise Problem(409, f"volume {volume_key}: the archive has one of that key; choose another, or replace it")
        copies = write_copies(writer.path, replace(volume, patient_key=volume_key))
        writer.add(replace(record, info=replace(info, files=copies)))
    progress(2, 3, "opening the new version")
    service.library.refresh()
    progress(3, 3, "stored")
