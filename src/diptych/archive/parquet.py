"""Exports as Parquet for tables and notebooks: one row per slice, metadata repeated, ids as lists.

Needs pyarrow (extra `parquet`), imported when used.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from diptych.archive.exchange import ExportHeader, export_checksum
from diptych.archive.records import BLOB_COLUMNS, ModelIdentity, VolumeInfo, VolumeRecord, blob_types
from diptych.errors import ArchiveError, InputError, MissingExtraError

__all__ = ["Parquet"]

HEADER_KEY = b"diptych"
_PER_SLICE = {"z_index": "uint16", "position": "float32", "z_mm": "float32", "lesion_area": "float32"}
_PER_VOLUME = ("volume_key", "patient_key", "study_date", "sex", "age", "source", "lesion_source", "input_digest")


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
        metadata = self._open(path).schema_arrow.metadata or {}
        try:
            return ExportHeader.from_json(json.loads(metadata.get(HEADER_KEY, b"null")), path)
        except ValueError:
            raise InputError(f"{path}: its header is damaged; export again") from None

    def read_records(self, path: Path, model: ModelIdentity) -> Iterator[VolumeRecord | str]:
        file = self._open(path)
        for group in range(file.num_row_groups):
            record = self._read_group(file, group, model)
            yield record or f"row group {group} does not match its checksum; copy the file again"

    def _read_group(self, file: Any, group: int, model: ModelIdentity) -> VolumeRecord | None:
        try:
            return _from_columns(file.read_row_group(group).to_pydict(), model)
        except (self.arrow.ArrowException, OSError, KeyError, TypeError, ValueError, AttributeError, ArchiveError):
            return None

    def _open(self, path: Path) -> Any:
        try:
            return self.parquet.ParquetFile(path)
        except (self.arrow.ArrowException, OSError) as error:
            reason = str(error).splitlines()[0]
            raise InputError(f"{path}: cannot be read as Parquet ({reason}); check the file") from None

    def _schema(self, header: ExportHeader) -> Any:
        arrow = self.arrow
        fields = [(name, arrow.float64() if name == "age" else arrow.string()) for name in _PER_VOLUME]
        fields += [("tags", arrow.list_(arrow.string())), ("checksum", arrow.string())]
        fields += [("slice_affine", arrow.list_(arrow.float64()))]
        fields += [(name, arrow.type_for_alias(kind)) for name, kind in _PER_SLICE.items()]
        fields += [(name, arrow.list_(arrow.uint16())) for name in ("normal_ids", "abnormal_ids")]
        return arrow.schema(fields, metadata={HEADER_KEY: json.dumps(header.to_json()).encode()})


def _columns(record: VolumeRecord, model: ModelIdentity) -> dict[str, list[Any]]:
    slices = record.slice_count
    info = record.info.to_json()
    columns = {name: [info[name]] * slices for name in (*_PER_VOLUME, "tags")}
    columns["checksum"] = [export_checksum(record, model)] * slices
    columns["slice_affine"] = [record.slice_affine.ravel().tolist()] * slices
    columns |= {name: getattr(record, name).tolist() for name in _PER_SLICE}
    columns |= {name: getattr(record, name).reshape(slices, -1).tolist() for name in ("normal_ids", "abnormal_ids")}
    return columns


def _from_columns(columns: dict[str, list[Any]], model: ModelIdentity) -> VolumeRecord | None:
    info = VolumeInfo.from_json({**{name: columns[name][0] for name in (*_PER_VOLUME, "tags")}, "files": []})
    arrays = {**columns, "slice_affine": columns["slice_affine"][0]}
    blobs = tuple(
        np.asarray(arrays[name], dtype=kind).tobytes()
        for name, kind in zip(BLOB_COLUMNS, blob_types(model), strict=True)
    )
    record = VolumeRecord.from_blobs(info, blobs, model)
    return record if export_checksum(record, model) == columns["checksum"][0] else None
