"""`Incoming`: what comes through the door, and how it gets into the archive: de-identify, keep, take in, index.

    ARCHIVE-pacs/ledger.sqlite                        what became of every study
    ARCHIVE-pacs/incoming/STUDY/SERIES/INSTANCE.dcm   de-identified, under pseudonyms, until its study is in the archive
    ARCHIVE-intake/KEY/                               what intake made of it, with the way back to the scanner's grid

An instance of the hospital is never written to a disk: it is de-identified in memory and appears whole or not at all.
A kill at any point leaves a study that is either in the archive or begun again. Knows no protocol.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

from diptych.errors import ArchiveLockedError, DiptychError, InputError, PacsError
from diptych.files import only_writer, remove_unfinished, replacing, write_text
from diptych.intake.dicom_files import lenient, opened, read_header
from diptych.pacs.deidentify import NotTaken, deidentify
from diptych.pacs.ledger import Ledger
from diptych.pacs.servers import PacsConfig
from diptych.pacs.vault import Vault
from diptych.progress import Progress, silent
from diptych.volumes.layout import one_line

if TYPE_CHECKING:
    from diptych.intake.series import Reading

METADATA = ".metadata.csv"


class TakeIn(Protocol):
    """Makes a patient's folder of a study; `intake` unless a test has something quicker."""

    def __call__(self, source: Path, out: Path, key: str, progress: Progress) -> tuple[Path, dict[str, str]]:
        """The patient's folder, and keys of series with the names of the folders they came in."""


@dataclass(frozen=True)
class Outcome:
    """What became of a study."""

    study: str
    state: str
    """As in the ledger."""
    volume_key: str = ""
    reason: str = ""


def work_folders(archive: Path) -> tuple[Path, Path]:
    """Where an archive's ledger and what intake made lie: beside it."""
    archive = archive.absolute()
    return archive.with_name(f"{archive.name}-pacs"), archive.with_name(f"{archive.name}-intake")


class Incoming:
    """The door of one archive."""

    def __init__(
        self,
        archive: Path,
        config: PacsConfig,
        *,
        model: Path | str | None = None,
        take_in: TakeIn | None = None,
    ) -> None:
        self.archive = archive
        self.config = config
        self.model = model
        self.take_in = take_in or intake_folder
        self.folder, self.patients = work_folders(archive)
        self.ledger = Ledger(self.folder)
        self.vault = Vault(config.vault)
        self.names = self.vault.pseudonyms
        self._lock = Lock()

    def take(self, dataset: Any, server: str) -> str:
        """Keep one instance; its study's pseudonym comes back. On the disk when this returns.

        What is no MR image, or has text in its pixels, is counted and stays outside.
        """
        try:
            with lenient():
                one = deidentify(dataset, self.names, server=server, characteristics=self.config.keep_characteristics)
        except NotTaken as reason:
            study = self.names.study(str(dataset.get("StudyInstanceUID", "")))
            self.ledger.set_aside(study, self.names.series(str(dataset.get("SeriesInstanceUID", ""))), str(reason))
            return study
        home = self.vault.quarantine if one.burnt_in else self.folder / "incoming"
        folder = home / one.study / one.series
        self.vault.note(one.person, one.study, one.series, one.original, one.series_uid)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing(folder / f"{one.instance}.dcm", private=True) as part, lenient():
            one.dataset.save_as(part, enforce_file_format=True)
        if one.burnt_in:
            self.ledger.set_aside(one.study, one.series, "text may be burnt into its pixels: in the vault's quarantine")
        return one.study

    def holds(self, study_uid: str, series_uid: str, instance_uid: str) -> bool:
        """Whether an instance is here already, from an earlier attempt."""
        study, series, instance = (
            self.names.study(study_uid), self.names.series(series_uid), self.names.instance(instance_uid)
        )  # fmt: skip
        homes = (self.folder / "incoming", self.vault.quarantine)
        return any((home / study / series / f"{instance}.dcm").is_file() for home in homes)

    def study_folder(self, study: str) -> Path:
        return self.folder / "incoming" / study

    def admit(self, study: str, *, keep: bool = False, progress: Progress = silent) -> Outcome:
        """Take in and index a study that is whole; every end is in the ledger when this returns."""
        folder = self.study_folder(study)
        try:
            key, series = self._admit(study, folder, progress)
        except (ArchiveLockedError, PacsError, OSError, MemoryError) as error:
            return self.wait(study, error)
        except DiptychError as error:
            self.ledger.failed(study, str(error), state="refused")
            self._drop(folder, keep)
            return Outcome(study, "refused", reason=str(error))
        self.ledger.done(study, key, series)
        self._drop(folder, keep)
        return Outcome(study, "done", key)

    def wait(self, study: str, error: BaseException) -> Outcome:
        """Note that something around a study failed; it comes again."""
        reason = _words(error)
        self.ledger.failed(study, reason, state="waiting")
        return Outcome(study, "waiting", reason=reason)

    def _admit(self, study: str, folder: Path, progress: Progress) -> tuple[str, dict[str, str]]:
        files = sorted(folder.glob("*/*.dcm")) if folder.is_dir() else []
        if not files:
            raise InputError("holds no MR image that could be taken in")
        remove_unfinished(folder)
        header = read_header(files[0])
        key = self.names.volume_key(str(header.PatientID), study)
        write_text(folder / METADATA, _metadata(key, header))
        with self._lock:
            self.patients.mkdir(parents=True, exist_ok=True)
            with only_writer(self.patients):
                patient, series = self.take_in(folder, self.patients, key, progress)
            self._index(patient, key, folder / METADATA)
        return key, series

    def _index(self, patient: Path, key: str, metadata: Path) -> None:
        """One transaction: the study is in the archive, or it is not."""
        from diptych.archive import ArchiveWriter
        from diptych.archive.indexing import IndexOptions, index_patients
        from diptych.retrieval.catalogue import prepare_search
        from diptych.retrieval.model_reference import volume_check
        from diptych.volumes.sources import find_sources

        network, model, encoder, decode = self._model
        options = IndexOptions(source="pacs", metadata=metadata, predict_lesions=True)
        check = volume_check(model, fingerprint=network.fingerprint)
        with ArchiveWriter.open(self.archive, model=encoder.identity) as writer:
            report = index_patients(
                writer, encoder, find_sources([patient]), options=options, decode=decode, check=check
            )
            if report.failed:
                raise InputError(next(iter(report.failed.values())))
            prepare_search(writer, network, model)

    @cached_property
    def _model(self) -> tuple[Any, Path, Any, Callable[..., Any]]:
        """The network and what goes with it, loaded once."""
        from diptych.archive import ArchiveStore
        from diptych.archive.encoding import NetworkEncoder
        from diptych.archive.schema import DATABASE
        from diptych.metrics.label_indexing import volume_decoder
        from diptych.model import load_model
        from diptych.model.shipped import named_model, shipped_model, shipped_model_of

        chosen = self.model
        if chosen is None and (self.archive / DATABASE).exists():
            chosen = shipped_model_of(ArchiveStore.open(self.archive).model.fingerprint)
        folder = named_model(chosen or shipped_model())
        network = load_model(folder)
        return network, folder, NetworkEncoder(network), volume_decoder(network, folder)

    def _drop(self, folder: Path, keep: bool) -> None:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def intake_folder(source: Path, out: Path, key: str, progress: Progress) -> tuple[Path, dict[str, str]]:
    """Intake proper, unless an earlier attempt had finished it for the same series."""
    from diptych.intake.many_patients import taken_before
    from diptych.intake.pipeline import inputs_digest, intake_reading, read_source

    remove_unfinished(out)
    with opened(source) as files:
        readings = read_source(files, source)
        if len(readings) != 1:
            raise InputError(f"holds images of {len(readings)} patients or studies; correct it in the PACS")
        record = taken_before(out / key, inputs_digest(readings[0], out))
        if record is None:
            record = intake_reading(readings[0], out, patient_key=key, progress=progress)
        return record.folder, series_folders(readings[0])


def series_folders(reading: Reading) -> dict[str, str]:
    """Keys of series with the names of the folders they came in: pseudonyms of series."""
    return {one.key: one.names[0] for one in reading.series if one.names}


def _metadata(key: str, header: Any) -> str:
    """Sex, age and date as the archive's own table has them; the date is moved once more there."""
    day, age = str(header.get("StudyDate") or ""), str(header.get("PatientAge") or "")
    iso = f"{day[:4]}-{day[4:6]}-{day[6:8]}" if len(day) == 8 else ""
    years = str(int(age[:3])) if age.endswith("Y") else ""
    return f"key,study_date,sex,age\n{key},{iso},{header.get('PatientSex') or ''},{years}\n"


def _words(error: BaseException) -> str:
    """A failure in one line, with the way out where the machine is the reason."""
    if isinstance(error, MemoryError):
        return "not enough memory; free some (a study needs about 3 GB)"
    if isinstance(error, OSError):
        full = error.errno in (28, 122)
        where = os.path.basename(str(error.filename or "")) or "a file"
        return (
            f"{'the disk is full' if full else error.strerror or str(error)} ({one_line(where)[:60]}); free some space"
        )
    return str(error)
