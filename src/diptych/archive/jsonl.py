"""Exports as JSON lines: a header line, then one volume per line with its arrays in base64.

Needs nothing but Python; a line is complete or it is reported.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

from diptych.archive.exchange import ExportHeader, export_checksum
from diptych.archive.records import BLOB_COLUMNS, ModelIdentity, VolumeInfo, VolumeRecord
from diptych.errors import ArchiveError, InputError

__all__ = ["JsonLines"]

MAX_LINE = 1 << 28
"""Bytes of one volume; a longer line is no export of ours."""


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
            yield _from_json(_parse(line), model) or f"line {number} does not match its checksum; copy the file again"


def _to_json(record: VolumeRecord, model: ModelIdentity) -> dict[str, object]:
    blobs = zip(BLOB_COLUMNS, record.blobs(model), strict=True)
    return {
        "info": record.info.to_json(),
        "arrays": {name: base64.b64encode(blob).decode() for name, blob in blobs},
        "checksum": export_checksum(record, model),
    }


def _from_json(values: object, model: ModelIdentity) -> VolumeRecord | None:
    try:
        if not isinstance(values, dict):
            return None
        info = VolumeInfo.from_json({**values["info"], "files": []})
        blobs = tuple(base64.b64decode(values["arrays"][name], validate=True) for name in BLOB_COLUMNS)
        record = VolumeRecord.from_blobs(info, blobs, model)
        return record if export_checksum(record, model) == values["checksum"] else None
    except (KeyError, TypeError, ValueError, AttributeError, ArchiveError):
        return None


def _parse(line: bytes) -> object:
    try:
        value: object = json.loads(line)
        return value
    except (ValueError, RecursionError):
        return None


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with open(path, "rb") as file:
            while line := file.readline(MAX_LINE):
                yield line
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the name") from None
