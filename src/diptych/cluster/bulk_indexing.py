"""Folders of patients into a sharded archive: in this process, or by every core of a Ray cluster.

    shards = Bulk(manifest, model_folder, options)
    shards.index(patients)                      one shard after the other, here
    shards.index_on("auto", patients)           tasks encode, one actor per shard writes

On a cluster a task reads, encodes and decodes one patient and hands the record to the actor that holds the writer's
lock of the patient's shard; only the outcome comes back, so nothing of an image or of a code passes through the process
that asked. As many patients are on their way as there are cores, and one more. What dies is started again by Ray: a
record that was stored already changes nothing when it comes a second time. Knows indexing and Ray; not searching.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from diptych.archive import ArchiveWriter, VolumeInfo, VolumeRecord
from diptych.archive.encoding import NetworkEncoder, identity_of
from diptych.archive.indexing import (
    CheckVolume,
    DecodeLabels,
    IndexOptions,
    IndexReport,
    PatientEncoder,
    holds_whole,
    index_patients,
)
from diptych.archive.metadata import DateShift, MetadataTable
from diptych.archive.pseudonyms import SECRET, ArchiveKeys, archive_secret, read_secret
from diptych.archive.rows import StoredLabels
from diptych.archive.schema import explain
from diptych.cluster.ray_session import encoding_cores, session
from diptych.cluster.shard_manifest import Manifest, new_manifest
from diptych.cluster.shard_worker import Refusal
from diptych.errors import ArchiveError, ArchiveLockedError, DiptychError, InputError
from diptych.files import replacing_folder, write_bytes
from diptych.metrics.label_indexing import volume_decoder
from diptych.model import load_model
from diptych.model.stored_model import StoredModel
from diptych.progress import Progress, silent
from diptych.retrieval.catalogue import prepare_search
from diptych.retrieval.model_reference import volume_check
from diptych.volumes import PatientFiles, subject_of

RETRIES = 3
"""How often a task, or a call to an actor, is started again after its process has died."""
LOCK_SECONDS = 10.0
"""How long the lock of a shard may still be that of a writer that has just died."""


@dataclass(frozen=True)
class Outcome:
    """What became of one patient; all that comes back of it."""

    kind: str
    """`added`, `replaced`, `unchanged`, or `failed`."""
    slices: int = 0
    warnings: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class Work:
    """What tasks need to know of a run; sent to each process once."""

    model: Path
    options: IndexOptions
    table: MetadataTable
    secret: bytes
    shards: tuple[Path, ...]


def make_shards(folder: Path, model: StoredModel, shards: int) -> Manifest:
    """A new sharded archive without a volume."""
    identity = identity_of(model)
    if folder.exists():
        raise ArchiveError(f"{folder}: is there already; leave --shards out, or name a new folder")
    with explain(folder, writing=True), replacing_folder(folder, private=True) as part:
        manifest = new_manifest(part, identity, shards)
        for shard in manifest.shards:
            ArchiveWriter.open(shard.path, model=identity).close()
        manifest.save()
    return new_manifest(folder, identity, shards)


class Bulk:
    """The shards of one manifest, to be filled."""

    def __init__(self, manifest: Manifest, model: Path, options: IndexOptions = IndexOptions()) -> None:
        self.manifest, self.model, self.options = manifest, model.absolute(), options
        manifest.model.require(identity_of(StoredModel.open(self.model)), manifest.folder)

    def index(self, patients: Sequence[PatientFiles], *, progress: Progress = silent) -> IndexReport:
        """One shard after the other in this process."""
        started, total = time.monotonic(), IndexReport()
        self._share_secret()
        keys = self._keys(patients)
        encoder, decode, check = loaded(self.model)
        for number, shard in enumerate(self.manifest.shards):
            own = [files for files, key in zip(patients, keys, strict=True) if self.owner(key) == number]
            done = len(total.added) + len(total.replaced) + len(total.unchanged) + len(total.failed)
            with ArchiveWriter.open(shard.path) as writer:
                report = index_patients(
                    writer,
                    encoder,
                    own,
                    options=self.options,
                    decode=decode,
                    check=check,
                    progress=_counted(progress, done, len(patients)),
                )
                prepare_search(writer, StoredModel.open(self.model), self.model)
            _join(total, report)
        total.seconds = time.monotonic() - started
        return total

    def index_on(self, cluster: str, patients: Sequence[PatientFiles], *, progress: Progress = silent) -> IndexReport:
        """All shards at once, on a Ray cluster."""
        started, report = time.monotonic(), IndexReport()
        self._share_secret()
        keys = self._keys(patients)
        report.renamed = sum(key != files.patient_key for files, key in zip(patients, keys, strict=True))
        with session(cluster) as ray:
            run = _Run(ray, self, limit=encoding_cores(ray) + 1)
            run.open_shards()
            for done, (key, outcome) in enumerate(run.outcomes(patients, keys), start=1):
                _note(report, key, outcome)
                progress(done, len(patients), key)
            run.close_shards()
        report.seconds = time.monotonic() - started
        return report

    @cached_property
    def stored(self) -> Mapping[str, VolumeInfo]:
        """Every volume of every shard as it was when the run began."""
        return {info.volume_key: info for store in self.manifest.stores() for info in store.listing().volumes}

    def owner(self, key: str) -> int:
        return self.manifest.owner(subject_of(key))

    def _keys(self, patients: Sequence[PatientFiles]) -> list[str]:
        chosen = ArchiveKeys.of_archive(self.manifest.folder)
        return [chosen.choose(files.patient_key, self.stored, self.options.keys) for files in patients]

    def _share_secret(self) -> bytes:
        """One secret for all shards: the key of a patient, and so the shard, must not depend on who asks."""
        folders = [self.manifest.folder, *(shard.path for shard in self.manifest.shards)]
        with explain(self.manifest.folder, writing=True):
            known = {read_secret(path / SECRET): path for path in folders if (path / SECRET).exists()}
            if len(known) > 1:
                one, two = list(known.values())[:2]
                raise ArchiveError(
                    f"{two / SECRET}: is another secret than that of {one}, and patients would get two names; merge "
                    "the shards and split them again"
                )
            first = next(iter(known.values()), self.manifest.folder)
            secret = archive_secret(first)
            for path in folders:
                if not (path / SECRET).exists():
                    write_bytes(path / SECRET, (first / SECRET).read_bytes(), private=True)
        return secret

    def work(self) -> Work:
        """For tasks."""
        paths = tuple(shard.path.absolute() for shard in self.manifest.shards)
        options = replace(self.options, metadata=None)
        return Work(self.model, options, MetadataTable(self.options.metadata), self._share_secret(), paths)


class ShardWriterActor:
    """Holds the writer's lock of one shard, and stores what tasks send."""

    def __init__(self, path: Path, model: Path) -> None:
        self.path, self.model = path, model
        self._writer: ArchiveWriter | None = None

    def open(self) -> Refusal | None:
        """Take the lock, or say why not."""
        try:
            self._opened()
        except DiptychError as error:
            return Refusal(type(error).__name__, str(error))
        return None

    def holds(self, old: VolumeInfo) -> bool:
        """Whether the volume is whole, with its copies."""
        return holds_whole(self._opened(), old)

    def store(self, record: VolumeRecord, labels: StoredLabels | None) -> str | Refusal:
        """One transaction; when this returns, the volume survives anything."""
        try:
            return self._opened().add(record, labels)
        except DiptychError as error:
            return Refusal(type(error).__name__, str(error))

    def close(self) -> None:
        """Make the segments that the next search needs, and let go of the lock."""
        writer = self._opened()
        prepare_search(writer, StoredModel.open(self.model), self.model)
        writer.close()
        self._writer = None

    def process(self) -> int:
        """Process id, for tests."""
        return os.getpid()

    def _opened(self) -> ArchiveWriter:
        until = time.monotonic() + LOCK_SECONDS
        while self._writer is None:
            try:
                self._writer = ArchiveWriter.open(self.path)
            except ArchiveLockedError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)
        return self._writer


class _Run:
    """One run on a cluster."""

    def __init__(self, ray: Any, bulk: Bulk, *, limit: int) -> None:
        self.ray, self.bulk, self.limit = ray, bulk, limit
        # no share of a core: what is restarted while every core encodes must find room at once
        actor = ray.remote(ShardWriterActor).options(
            num_cpus=0, max_restarts=-1, max_task_retries=RETRIES, scheduling_strategy="SPREAD"
        )
        self.writers = [actor.remote(shard.path.absolute(), bulk.model) for shard in bulk.manifest.shards]
        self.task = ray.remote(encode_patient).options(num_cpus=1, max_retries=RETRIES, scheduling_strategy="SPREAD")
        self.work = ray.put(bulk.work())

    def open_shards(self) -> None:
        """Take every lock before anything is encoded."""
        for refused in self.ray.get([writer.open.remote() for writer in self.writers]):
            if refused is not None:
                raise refused.error()

    def close_shards(self) -> None:
        self.ray.get([writer.close.remote() for writer in self.writers])

    def outcomes(self, patients: Sequence[PatientFiles], keys: Sequence[str]) -> Iterator[tuple[str, Outcome]]:
        """Each patient's key with what became of it, in the order in which they are done."""
        waiting: dict[Any, str] = {}
        for files, key in zip(patients, keys, strict=True):
            if len(waiting) >= self.limit:
                yield self._next(waiting)
            number = self.bulk.owner(key)
            ref = self.task.remote(
                self.work, _absolute(files), key, number, self.bulk.stored.get(key), self.writers[number]
            )
            waiting[ref] = key
        while waiting:
            yield self._next(waiting)

    def _next(self, waiting: dict[Any, str]) -> tuple[str, Outcome]:
        (ref,), _ = self.ray.wait(list(waiting), num_returns=1)
        key = waiting.pop(ref)
        try:
            outcome: Outcome = self.ray.get(ref)
        except self.ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except self.ray.exceptions.RayError as error:
            return key, Outcome(
                "failed", reason=f"its worker died {RETRIES + 1} times ({_first_line(error)}); run again"
            )
        if outcome.kind == "unchanged" and key not in self.bulk.stored:
            outcome = replace(outcome, kind="added")  # by a task of this run that died before it could say so
        return key, outcome


def encode_patient(
    work: Work, files: PatientFiles, key: str, number: int, old: VolumeInfo | None, writer: Any
) -> Outcome:
    """Read, encode, decode, and have it stored: what a task does."""
    import ray

    encoder, decode, check = loaded(work.model)
    patients = PatientEncoder(
        work.shards[number],
        encoder,
        work.options,
        check=check,
        table=work.table,
        shift=DateShift(work.secret),
    )
    try:
        reading = patients.read(files, key, old)
        if reading.volume is None:
            if ray.get(writer.holds.remote(old)):
                return Outcome("unchanged")
            reading = patients.read(files, key, None)
        with ThreadPoolExecutor(1) as copier:
            record = patients.encode(files, reading, copier)
        stored = ray.get(writer.store.remote(record, decode(record)))
    except (InputError, ArchiveError) as error:
        return Outcome("failed", reason=str(error))
    except OSError as error:
        return Outcome("failed", reason=f"{error.filename or key}: {error.strerror or error}")
    except ray.exceptions.RayActorError as error:
        return Outcome("failed", reason=f"the writer of its shard died ({_first_line(error)}); run again")
    if isinstance(stored, Refusal):
        return Outcome("failed", reason=stored.message)
    return Outcome(stored, record.slice_count, reading.warnings)


@lru_cache(maxsize=1)
def loaded(model: Path) -> tuple[NetworkEncoder, DecodeLabels, CheckVolume]:
    """The model of a process: loaded once, whatever number of patients it encodes."""
    network = load_model(model)
    check = volume_check(model, fingerprint=network.fingerprint)
    return NetworkEncoder(network), volume_decoder(network, model), check


def _absolute(files: PatientFiles) -> PatientFiles:
    """Paths that mean the same in any process."""
    return replace(
        files,
        channels={name: path.absolute() for name, path in files.channels.items()},
        lesion=files.lesion.absolute() if files.lesion else None,
        anatomy=files.anatomy.absolute() if files.anatomy else None,
    )


def _note(report: IndexReport, key: str, outcome: Outcome) -> None:
    if outcome.kind == "failed":
        report.failed[key] = outcome.reason
    else:
        getattr(report, outcome.kind).append(key)
    if outcome.warnings:
        report.warnings[key] = outcome.warnings
    report.slices += outcome.slices


def _join(total: IndexReport, part: IndexReport) -> None:
    for name in ("added", "replaced", "unchanged"):
        getattr(total, name).extend(getattr(part, name))
    total.failed |= part.failed
    total.warnings |= part.warnings
    total.renamed += part.renamed
    total.slices += part.slices


def _counted(progress: Progress, before: int, everybody: int) -> Progress:
    def counted(done: int, total: int, note: str = "") -> None:
        progress(before + done, everybody, note)

    return counted


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
