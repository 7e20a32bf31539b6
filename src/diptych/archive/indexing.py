"""Folders of patients into an archive: find, read, encode, store; one patient at a time, each one acknowledged.

A patient that cannot be read is reported and the others go on. A run that was stopped, by Ctrl-C or by kill -9, goes
on where it was: patients whose files, metadata and options have not changed are not encoded again.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Literal

from diptych.archive.archive_writer import AddOutcome, ArchiveWriter
from diptych.archive.copies import copy_path, refer_to, roles, write_copies
from diptych.archive.encoding import BATCH_SIZE, Encoder, encode_volume, naming_another_model
from diptych.archive.metadata import DateShift, MetadataTable
from diptych.archive.pseudonyms import ArchiveKeys, Keys
from diptych.archive.records import VolumeInfo, VolumeRecord
from diptych.archive.rows import StoredLabels
from diptych.archive.schema import explain
from diptych.errors import InputError
from diptych.files import file_sha256
from diptych.progress import Progress, silent
from diptych.volumes import PatientFiles, Volume, read_patient, subject_of

DecodeLabels = Callable[[VolumeRecord], StoredLabels | None]
"""A record to the label maps that its codes decode to; None where nothing decodes them."""
CheckVolume = Callable[[Volume], list[str]]
"""What is to be said about a volume before it is encoded, such as that its channels look exchanged."""


@dataclass(frozen=True)
class IndexOptions:
    """How volumes are indexed."""

    pixels: Literal["copy", "reference", "none"] = "copy"
    """Keep de-identified copies of the images, refer to the original files, or keep codes only."""
    source: str | None = None
    """Name of the collection, for filters."""
    tags: tuple[str, ...] = ()
    """Labels given to every volume, for filters."""
    metadata: Path | None = None
    """CSV table with key, study_date, sex, age, source, tags."""
    predict_lesions: bool = False
    """Decode lesion areas from the abnormal codes of volumes without a label map."""
    keys: Keys = "auto"
    """What patients are called: research ids as they are and pseudonyms for other names, pseudonyms, or names."""
    batch_size: int = BATCH_SIZE
    """Slices encoded at a time; any number gives the same ids."""


@dataclass
class IndexReport:
    """What became of each patient, by volume key."""

    added: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    warnings: dict[str, tuple[str, ...]] = field(default_factory=dict)
    renamed: int = 0
    """Patients who are stored under a pseudonym instead of what their files are called."""
    slices: int = 0
    """Slices encoded in this run."""
    seconds: float = 0.0


def index_patients(
    writer: ArchiveWriter,
    encoder: Encoder,
    patients: Sequence[PatientFiles],
    *,
    options: IndexOptions = IndexOptions(),
    decode: DecodeLabels = lambda record: None,
    check: CheckVolume = lambda volume: [],
    progress: Progress = silent,
    acknowledge: Callable[[str], None] = lambda volume_key: None,
) -> IndexReport:
    """Encode and store patients; `acknowledge` is called with each volume key once it is safely on disk.

    `decode` makes the label maps that are stored with each volume, so that no search has to wait for them; `check` says
    what is strange about a volume (`retrieval/model_reference.py`).
    """
    started, report = time.monotonic(), IndexReport()
    with _Indexer(writer, encoder, options, decode, check) as indexer:
        for done, (files, reading) in enumerate(indexer.read_ahead(patients), start=1):
            key = indexer.key_of(files)
            try:
                outcome = indexer.index(files, reading, report)
                getattr(report, outcome).append(key)
                acknowledge(key)
            except InputError as error:
                report.failed[key] = str(error)
            except OSError as error:
                report.failed[key] = f"{error.filename or key}: {error.strerror or error}"
            progress(done, len(patients), key)
        report.renamed = sum(indexer.key_of(files) != files.patient_key for files in patients)
    report.seconds = time.monotonic() - started
    return report


@dataclass(frozen=True, eq=False)
class Reading:
    """One patient, read while the one before was being encoded."""

    info: VolumeInfo
    volume: Volume | None
    """None where the archive seems to hold this very volume already."""
    warnings: tuple[str, ...] = ()


class PatientEncoder:
    """Patients under the same options into records; writes copies of images below `path`, but asks no database.

    Args:
        path: the archive that the records are for.
        encoder: turns slices into ids.
        options: how volumes are indexed.
        check: says what is strange about a volume.
        table: what is known of patients beyond their images.
        shift: moves dates.
    """

    def __init__(
        self,
        path: Path,
        encoder: Encoder,
        options: IndexOptions,
        *,
        check: CheckVolume,
        table: MetadataTable,
        shift: DateShift,
    ) -> None:
        self.path, self.encoder, self.options = path, encoder, options
        self.check, self.table, self.shift = check, table, shift

    def read(self, files: PatientFiles, key: str, old: VolumeInfo | None) -> Reading:
        """Everything that comes before the encoder; the images only if they are not those of `old`."""
        files = files.only(self.encoder.description.channels)
        info = self.describe(files, key)
        if old is not None and old.input_digest == info.input_digest:
            return Reading(info, None)
        with naming_another_model(files.channels, self.encoder.description):
            volume = read_patient(replace(files, twin={}), description=self.encoder.description)
        volume = replace(volume, patient_key=key)
        return Reading(info, volume, (*volume.warnings, *self.check(volume)))

    def encode(self, files: PatientFiles, reading: Reading, copier: ThreadPoolExecutor) -> VolumeRecord:
        """The record of what was read; images are copied meanwhile."""
        volume = reading.volume
        assert volume is not None, "read anyway"
        # a patient that then fails, or a kill, may leave a copy that no row names; `compact` deletes such strays
        copying = copier.submit(write_copies, self.path, volume) if self.options.pixels == "copy" else None
        record = encode_volume(
            volume,
            reading.info,
            self.encoder,
            batch_size=self.options.batch_size,
            predict_lesions=self.options.predict_lesions,
        )
        if copying is not None:
            return replace(record, info=replace(record.info, files=copying.result()))
        if self.options.pixels == "reference":
            own = files.only(self.encoder.description.channels)
            return replace(record, info=replace(record.info, files=refer_to(own)))
        return record

    def describe(self, files: PatientFiles, key: str) -> VolumeInfo:
        """Everything but the codes and the copies, with a digest of all that they depend on."""
        info = VolumeInfo(
            volume_key=key,
            patient_key=subject_of(key),
            source=self.options.source,
            tags=tuple(sorted(set(self.options.tags))),
        )
        names = (files.patient_key, subject_of(files.patient_key))
        info = self.table.describe(info, self.shift, names=names)
        inputs = {
            "files": {role: file_sha256(path) for role, path in roles(files).items()},
            "where": [str(path) for path in roles(files).values()] if self.options.pixels == "reference" else [],
            "info": info.to_json(),
            "options": [self.options.pixels, self.options.predict_lesions],
        }
        digest = blake2b(json.dumps(inputs, sort_keys=True).encode(), digest_size=32).hexdigest()
        return replace(info, input_digest=digest)


def holds_whole(writer: ArchiveWriter, old: VolumeInfo) -> bool:
    """Whether a stored volume has its codes whole and its copies in place."""
    return writer.is_whole(old.volume_key) and all(copy_path(writer.path, f).is_file() for f in old.files)


class _Indexer:
    """One patient after the other under the same options; threads read and copy files while the encoder works."""

    def __init__(
        self,
        writer: ArchiveWriter,
        encoder: Encoder,
        options: IndexOptions,
        decode: DecodeLabels,
        check: CheckVolume,
    ) -> None:
        self.decode = decode
        self.writer = writer
        self.options = options
        table = MetadataTable(options.metadata)
        with explain(writer.path, writing=True):
            shift = DateShift.of_archive(writer.path)
        self.patients = PatientEncoder(writer.path, encoder, options, check=check, table=table, shift=shift)
        self.keys = ArchiveKeys.of_archive(writer.path)
        self.stored = {info.volume_key: info for info in writer.listing().volumes}
        self.reader, self.copier = ThreadPoolExecutor(1), ThreadPoolExecutor(1)

    def __enter__(self) -> _Indexer:
        return self

    def __exit__(self, *error: object) -> None:
        for threads in (self.reader, self.copier):
            threads.shutdown(wait=True, cancel_futures=True)

    def key_of(self, files: PatientFiles) -> str:
        """What a patient is called in the archive."""
        return self.keys.choose(files.patient_key, self.stored, self.options.keys)

    def read_ahead(self, patients: Sequence[PatientFiles]) -> Iterator[tuple[PatientFiles, Future[Reading]]]:
        """Each patient with what was read of it; the next is read meanwhile, and no more, as volumes are large."""
        coming = deque(self.reader.submit(self.read, files) for files in patients[:1])
        for place, files in enumerate(patients):
            reading = coming.popleft()
            wait([reading])
            coming.extend(self.reader.submit(self.read, after) for after in patients[place + 1 : place + 2])
            yield files, reading

    def read(self, files: PatientFiles) -> Reading:
        """Asks no database, which belongs to another thread."""
        key = self.key_of(files)
        return self.patients.read(files, key, self.stored.get(key))

    def index(self, files: PatientFiles, future: Future[Reading], report: IndexReport) -> AddOutcome:
        reading = future.result()
        key = reading.info.volume_key
        if reading.volume is None and holds_whole(self.writer, self.stored[key]):
            return "unchanged"
        if reading.volume is None:
            reading = self.patients.read(files, key, None)
        if reading.warnings:
            report.warnings[key] = reading.warnings
        record = self.patients.encode(files, reading, self.copier)
        report.slices += record.slice_count
        return self.writer.add(record, self.decode(record))
