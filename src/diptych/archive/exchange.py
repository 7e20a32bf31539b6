"""Export an archive to one file and import it again: JSON lines (`.jsonl`) or Parquet (`.parquet`).

Codes and metadata go out; images, references to them and the secret of the date shift stay. Every volume carries its
checksum, the file says how many there are, and an import takes only volumes that match. Both formats are written and
read by their own small module through the same three things: `ExportHeader`, records out, records or problems in.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from diptych.archive.records import ModelIdentity, VolumeRecord, codes_checksum, record_checksum
from diptych.archive.schema import explain
from diptych.archive.store import Archive
from diptych.archive.writer import ArchiveWriter
from diptych.errors import InputError, UsageError
from diptych.progress import Progress, silent

__all__ = ["ExportHeader", "ExportReport", "ImportReport", "export_archive", "import_archive", "read_export_model"]

EXPORT_FORMAT = "diptych-archive-export"
EXPORT_VERSION = 1
NOTE = "Research use only, not a medical device. Codes are patient data: a decoder turns them back into images."


@dataclass(frozen=True)
class ExportHeader:
    """The first thing in an export."""

    model: ModelIdentity
    volumes: int

    def to_json(self) -> dict[str, Any]:
        return {"format": EXPORT_FORMAT, "version": EXPORT_VERSION, "note": NOTE, **asdict(self)}

    @classmethod
    def from_json(cls, values: Any, path: Path) -> ExportHeader:
        if not isinstance(values, dict) or values.get("format") != EXPORT_FORMAT:
            raise InputError(f"{path}: is no export of an archive; make one with 'diptych archive export'")
        if values.get("version") != EXPORT_VERSION:
            raise InputError(
                f"{path}: has export version {values.get('version')!r}, this Diptych reads {EXPORT_VERSION}; "
                "import it with the Diptych that wrote it"
            )
        try:
            model = ModelIdentity(**{**values["model"], "grid": tuple(values["model"]["grid"])})
            return cls(model, int(values["volumes"]))
        except (KeyError, TypeError, ValueError):
            raise InputError(f"{path}: its first line is damaged; export again") from None


@dataclass(frozen=True)
class ExportReport:
    volumes: int
    problems: tuple[str, ...]
    """Damaged volumes that were left out."""


@dataclass
class ImportReport:
    """What became of the volumes of an export, by volume key."""

    added: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


class ExportFile(Protocol):
    """What a format module offers."""

    def write(self, path: Path, header: ExportHeader, records: Iterator[VolumeRecord]) -> None: ...

    def read_header(self, path: Path) -> ExportHeader: ...

    def read_records(self, path: Path, model: ModelIdentity) -> Iterator[VolumeRecord | str]:
        """Records that match their checksum, and a sentence for each that does not."""


def export_archive(archive: Archive, path: Path, *, progress: Progress = silent) -> ExportReport:
    """Write all volumes, ordered by key, to a private file that appears whole or not at all."""
    file_format = _format_of(path)
    stored, problems = archive.records()

    def records() -> Iterator[VolumeRecord]:
        for done, record in enumerate(stored, start=1):
            yield replace(record, info=replace(record.info, files=()))
            progress(done, len(stored), record.info.volume_key)

    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with explain(path):
            os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            file_format.write(partial, ExportHeader(archive.model, len(stored)), records())
            os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return ExportReport(len(stored), problems)


def read_export_model(path: Path) -> ModelIdentity:
    """The model an export was made with: an archive to import into must be of the same."""
    return _format_of(path).read_header(path).model


def import_archive(writer: ArchiveWriter, path: Path, *, progress: Progress = silent) -> ImportReport:
    """Add the volumes of an export, each in its own transaction; images already stored for a volume stay."""
    file_format = _format_of(path)
    header = file_format.read_header(path)
    writer.model.require(header.model, writer.path)
    stored = {info.volume_key: info for info in writer.listing().volumes}
    report, found = ImportReport(), 0
    for record in file_format.read_records(path, writer.model):
        found += 1
        if isinstance(record, str):
            report.problems.append(f"{path}: {record}")
            continue
        key = record.info.volume_key
        if key in stored and stored[key].input_digest == record.info.input_digest:
            record = replace(record, info=replace(record.info, files=stored[key].files))
        getattr(report, writer.add(record)).append(key)
        progress(found, header.volumes, key)
    if found != header.volumes:
        report.problems.append(f"{path}: holds {found} volumes, {header.volumes} were exported; copy it again")
    return report


def export_checksum(record: VolumeRecord, model: ModelIdentity) -> str:
    """What an export notes beside each volume."""
    codes = codes_checksum(record.blobs(model))
    return record_checksum(record.info, record.slice_count, codes, model).hex()


def _format_of(path: Path) -> ExportFile:
    if path.suffix == ".jsonl":
        from diptych.archive.jsonl import JsonLines

        return JsonLines()
    if path.suffix == ".parquet":
        from diptych.archive.parquet import Parquet

        return Parquet()
    raise UsageError(f"{path}: exports end in .jsonl or .parquet; choose such a name")
