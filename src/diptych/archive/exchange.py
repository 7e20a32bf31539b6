"""Export an archive to one file and import it again: JSON lines (`.jsonl`) or Parquet (`.parquet`).

JSON lines hold a header, then one volume per line with its arrays in base64. Parquet is for tables and notebooks: one
row per slice, metadata repeated, ids as lists.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from diptych.archive.archive_store import ArchiveStore
from diptych.archive.archive_writer import ArchiveWriter
from diptych.archive.records import (
    BLOB_COLUMNS,
    ModelIdentity,
    VolumeInfo,
    VolumeRecord,
    blob_types,
    codes_checksum,
    record_checksum,
)
from diptych.archive.schema import explain
from diptych.errors import ArchiveError, InputError, MissingExtraError, UsageError
from diptych.files import open_regular, parse_json, replacing, require_regular
from diptych.progress import Progress, silent

EXPORT_FORMAT = "diptych-archive-export"
EXPORT_VERSION = 1
NOTE = "Research use only, not a medical device. Codes are patient data: a decoder turns them back into images."


@dataclass(frozen=True)
class ExportHeader:
    """The first thing in an export."""

    model: ModelIdentity
    volumes: int

    def to_json(self) -> dict[str, Any]:
        about = {"model": self.model.to_json(), "volumes": self.volumes}
        return {"format": EXPORT_FORMAT, "version": EXPORT_VERSION, "note": NOTE, **about}

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
            model = ModelIdentity.from_json(values["model"])
            model.check()
            return cls(model, int(values["volumes"]))
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, UsageError):
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


def export_archive(archive: ArchiveStore, path: Path, *, progress: Progress = silent) -> ExportReport:
    """Write all volumes, ordered by key, to a private file that appears whole or not at all."""
    file_format = _format_of(path)
    stored, problems = archive.records()

    def records() -> Iterator[VolumeRecord]:
        for done, record in enumerate(stored, start=1):
            yield replace(record, info=replace(record.info, files=()))
            progress(done, len(stored), record.info.volume_key)

    with explain(path), replacing(path, private=True) as part:
        file_format.write(part, ExportHeader(archive.model, len(stored)), records())
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
        return JsonLines()
    if path.suffix == ".parquet":
        return Parquet()
    raise UsageError(f"{path}: exports end in .jsonl or .parquet; choose such a name")


MAX_LINE = 1 << 28
"""Bytes of one volume; a longer line is no export of ours."""
MAX_ROWS = 1 << 16
"""Slices of one volume: numbers of slices have 16 bits."""
CHANGED = "does not match its checksum; copy the file again"
_ODD = (OSError, KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError)
"""What a line or row group raises that is not what an export holds."""


class JsonLines:
    """Writes and reads `.jsonl` exports."""

    def write(self, path: Path, header: ExportHeader, records: Iterator[VolumeRecord]) -> None:
        with open(path, "w", encoding="utf-8") as file:
            file.write(json.dumps(header.to_json()) + "\n")
            for record in records:
                file.write(json.dumps(_to_json(record, header.model)) + "\n")

    def read_header(self, path: Path) -> ExportHeader:
        return ExportHeader.from_json(_parse(next(_lines(path), b"")), path)

    def read_records(self, path: Path, model: ModelIdentity) -> Iterator[VolumeRecord | str]:
        lines = _lines(path)
        next(lines, None)
        for number, line in enumerate(lines, start=2):
            found = _from_json(_parse(line), model)
            yield found if isinstance(found, VolumeRecord) else f"line {number} {found}"


def _to_json(record: VolumeRecord, model: ModelIdentity) -> dict[str, object]:
    blobs = zip(BLOB_COLUMNS, record.blobs(model), strict=True)
    return {
        "info": record.info.to_json(),
        "arrays": {name: base64.b64encode(blob).decode() for name, blob in blobs},
        "checksum": export_checksum(record, model),
    }


def _from_json(values: object, model: ModelIdentity) -> VolumeRecord | str:
    """The volume, or what is wrong with it."""
    try:
        if not isinstance(values, dict):
            return CHANGED
        info = VolumeInfo.from_json({**values["info"], "files": []})
        blobs = tuple(base64.b64decode(values["arrays"][name], validate=True) for name in BLOB_COLUMNS)
        record = VolumeRecord.from_blobs(info, blobs, model)
        return record if export_checksum(record, model) == values["checksum"] else CHANGED
    except ArchiveError as error:
        return f"is refused: {error}"
    except _ODD:
        return CHANGED


def _parse(line: bytes) -> object:
    try:
        value: object = parse_json(line)
        return value
    except ValueError:
        return None


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with open_regular(path) as file:
            while line := file.readline(MAX_LINE):
                yield line
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the name") from None


HEADER_KEY = b"diptych"
_PER_SLICE = {"z_index": "uint16", "position": "float32", "z_mm": "float32", "lesion_area": "float32"}
_PER_VOLUME = ("volume_key", "patient_key", "study_date", "sex", "age", "source", "lesion_source", "input_digest")
_WORDS = (*_PER_VOLUME, "tags", "checksum", "slice_affine")
"""The same in every row: only the first is read."""
_NUMBERS = (*_PER_SLICE, "normal_ids", "abnormal_ids")


class Parquet:
    """Writes and reads `.parquet` exports; a row group is a volume."""

    def __init__(self) -> None:
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            raise MissingExtraError(
                "Parquet needs pyarrow: run pip install 'diptych[parquet]', or use .jsonl"
            ) from None
        self.arrow = pyarrow
        self.parquet = pyarrow.parquet

    def write(self, path: Path, header: ExportHeader, records: Iterator[VolumeRecord]) -> None:
        schema = self._schema(header)
        with self.parquet.ParquetWriter(path, schema) as writer:
            for record in records:
                writer.write_table(self.arrow.table(_columns(record, header.model), schema=schema))

    def read_header(self, path: Path) -> ExportHeader:
        try:
            metadata = self._open(path).schema_arrow.metadata or {}
            return ExportHeader.from_json(parse_json(metadata.get(HEADER_KEY, b"null")), path)
        except (ValueError, self.arrow.ArrowException):  # names of columns that are no UTF-8 among them
            raise InputError(f"{path}: its header is damaged; export again") from None

    def read_records(self, path: Path, model: ModelIdentity) -> Iterator[VolumeRecord | str]:
        file = self._open(path)
        for group in range(file.num_row_groups):
            found = self._read_group(file, group, model)
            yield found if isinstance(found, VolumeRecord) else f"row group {group} {found}"

    def _read_group(self, file: Any, group: int, model: ModelIdentity) -> VolumeRecord | str:
        try:
            if not _fits(file.metadata.row_group(group), model):
                return "is larger than a volume can be; export again"
            first = next(file.iter_batches(batch_size=1, row_groups=[group], columns=list(_WORDS))).to_pydict()
            numbers = file.read_row_group(group, columns=list(_NUMBERS)).to_pydict()
            return _from_columns({**first, **numbers}, model)
        except ArchiveError as error:
            return f"is refused: {error}"
        except (self.arrow.ArrowException, *_ODD):
            return CHANGED

    def _open(self, path: Path) -> Any:
        try:
            require_regular(path)
            return self.parquet.ParquetFile(path)
        except (self.arrow.ArrowException, OSError, ValueError) as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise InputError(f"{path}: cannot be read as Parquet ({reason}); check the file") from None

    def _schema(self, header: ExportHeader) -> Any:
        arrow = self.arrow
        fields = [(name, arrow.float64() if name == "age" else arrow.string()) for name in _PER_VOLUME]
        fields += [("tags", arrow.list_(arrow.string())), ("checksum", arrow.string())]
        fields += [("slice_affine", arrow.list_(arrow.float64()))]
        fields += [(name, arrow.type_for_alias(kind)) for name, kind in _PER_SLICE.items()]
        fields += [(name, arrow.list_(arrow.uint16())) for name in ("normal_ids", "abnormal_ids")]
        return arrow.schema(fields, metadata={HEADER_KEY: json.dumps(header.to_json()).encode()})


def _fits(group: Any, model: ModelIdentity) -> bool:
    """Whether a row group unfolds to no more than a volume can hold; some kilobytes may stand for gigabytes."""
    columns = [group.column(place) for place in range(group.num_columns)]
    numbers = [one for one in columns if one.path_in_schema.partition(".")[0] in _NUMBERS]
    plain = all(one.physical_type in ("INT32", "FLOAT") for one in numbers)
    few = all(0 < one.num_values <= group.num_rows * model.cells for one in numbers)
    return (
        0 < group.num_rows <= MAX_ROWS
        and plain
        and few
        and sum(one.total_uncompressed_size for one in columns) <= MAX_LINE
    )


def _columns(record: VolumeRecord, model: ModelIdentity) -> dict[str, list[Any]]:
    slices = record.slice_count
    info = record.info.to_json()
    columns = {name: [info[name]] * slices for name in (*_PER_VOLUME, "tags")}
    columns["checksum"] = [export_checksum(record, model)] * slices
    columns["slice_affine"] = [record.slice_affine.ravel().tolist()] * slices
    columns |= {name: getattr(record, name).tolist() for name in _PER_SLICE}
    columns |= {name: getattr(record, name).reshape(slices, -1).tolist() for name in ("normal_ids", "abnormal_ids")}
    return columns


def _from_columns(columns: dict[str, list[Any]], model: ModelIdentity) -> VolumeRecord | str:
    info = VolumeInfo.from_json({**{name: columns[name][0] for name in (*_PER_VOLUME, "tags")}, "files": []})
    arrays = {**columns, "slice_affine": columns["slice_affine"][0]}
    blobs = tuple(
        np.asarray(arrays[name], dtype=kind).tobytes()
        for name, kind in zip(BLOB_COLUMNS, blob_types(model), strict=True)
    )
    record = VolumeRecord.from_blobs(info, blobs, model)
    return record if export_checksum(record, model) == columns["checksum"][0] else CHANGED
