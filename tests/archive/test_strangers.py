"""An archive or an export may come from anyone: nothing in it leads out of its folder, and one bad volume is alone."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from diptych.archive import ArchiveStore, ArchiveWriter, PixelFile, VolumeInfo, VolumeRecord
from diptych.archive.backup import restore
from diptych.archive.copies import copy_path, patient_files
from diptych.archive.exchange import export_archive, import_archive, read_export_model
from diptych.archive.indexing import index_patients
from diptych.archive.schema import explain
from diptych.cluster.shard_manifest import read_manifest
from diptych.errors import ArchiveError, InputError, ModelError
from diptych.model.stored_model import StoredModel
from diptych.server.users import Users
from diptych.volumes.sources import find_sources
from tests.archive.patients import FakeEncoder, write_patient
from tests.archive.samples import MODEL, make_archive, make_record

HASH = "0" * 64


def made_by_a_stranger(path: Path, record: VolumeRecord, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive with a good volume and one that no writer of ours would have stored, its checksums right."""
    with monkeypatch.context() as unchecked, ArchiveWriter.open(path, model=MODEL) as writer:
        unchecked.setattr(VolumeInfo, "check", lambda self: None)
        unchecked.setattr(VolumeRecord, "check", lambda self, model: None)
        writer.add(make_record(1))
        writer.add(record)
    return path


def with_info(**changes: Any) -> VolumeRecord:
    record = make_record(0)
    return replace(record, info=replace(record.info, **changes))


WAYS_OUT = ("../../victim/t1.nii.gz", "volumes/../../victim/t1.nii.gz", "volumes/a/../../t1.nii.gz", "t1.nii.gz")


@pytest.mark.parametrize("name", WAYS_OUT)
def test_a_name_that_leads_out_deletes_and_reads_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    victim = tmp_path / "victim" / "t1.nii.gz"
    victim.parent.mkdir()
    victim.write_text("precious")
    record = with_info(files=(PixelFile("t1", name, HASH),))
    archive = made_by_a_stranger(tmp_path / "A", record, monkeypatch)
    store = ArchiveStore.open(archive)
    assert [info.volume_key for info in store.listing().volumes] == ["P-001"]
    assert "outside the archive" in store.listing().problems[0]
    with ArchiveWriter.open(archive) as writer:
        writer.remove("P-000")
        writer.compact()
    with pytest.raises(ArchiveError, match="outside the archive"):
        copy_path(archive, record.info.files[0])
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("link", ["volumes", "volumes/abc", "volumes/abc/t1.nii.gz"])
def test_a_link_out_of_the_archive_is_not_followed(tmp_path: Path, link: str) -> None:
    outside = tmp_path / "outside"
    (outside / "abc").mkdir(parents=True)
    for file in (outside / "t1.nii.gz", outside / "abc" / "t1.nii.gz"):
        file.write_text("precious")
    place = tmp_path / "A" / link
    place.parent.mkdir(parents=True)
    place.symlink_to(outside / "t1.nii.gz" if link.endswith("gz") else outside)
    info = VolumeInfo("P", "P", files=(PixelFile("t1", "volumes/abc/t1.nii.gz", HASH),))
    with pytest.raises(ArchiveError, match="is a link"):
        patient_files(tmp_path / "A", info)
    assert (outside / "abc" / "t1.nii.gz").exists()


HOSTILE: dict[str, dict[str, Any]] = {
    "half a character": {"tags": ("\ud800",)},
    "terminal escape": {"source": "\x1b[2Jgone"},
    "a megabyte": {"source": "x" * 1_000_000},
    "fifty thousand tags": {"tags": tuple(f"{n:06d}" for n in range(50_000))},
    "age": {"age": float("nan")},
    "role": {"files": (PixelFile("../t1", "volumes/a/t1.nii.gz", HASH),)},
}


@pytest.mark.parametrize("what", HOSTILE)
def test_one_bad_volume_is_left_out_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    archive = made_by_a_stranger(tmp_path / "A", with_info(**HOSTILE[what]), monkeypatch)
    codes = ArchiveStore.open(archive).codes()
    assert [info.volume_key for info in codes.volumes] == ["P-001"]
    assert all(len(problem) < 400 and problem.isprintable() for problem in codes.problems)


ARRAYS: dict[str, dict[str, Any]] = {
    "affine of NaN": {"slice_affine": np.full((4, 4), np.nan)},
    "affine of nothing": {"slice_affine": np.zeros((4, 4))},
    "pixels of 100 m": {"slice_affine": np.diag([1e5, 1.0, 1.0, 1.0])},
    "height": {"z_mm": np.full(12, np.inf, dtype=np.float32)},
    "area": {"lesion_area": np.full(12, -1, dtype=np.float32)},
    "slices": {"position": np.zeros(11, dtype=np.float32)},
    "codes": {"abnormal_ids": np.full((12, *MODEL.grid), 255, dtype=np.uint16)},
}


@pytest.mark.parametrize("what", ARRAYS)
def test_arrays_that_cannot_be_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    archive = made_by_a_stranger(tmp_path / "A", replace(make_record(0), **ARRAYS[what]), monkeypatch)
    codes = ArchiveStore.open(archive).codes()
    assert ([info.volume_key for info in codes.volumes], len(codes.problems)) == (["P-001"], 1)


def test_an_import_refuses_line_by_line_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_by_a_stranger(tmp_path / "A", with_info(source="\x1b[2J"), monkeypatch)
    with monkeypatch.context() as unchecked:
        unchecked.setattr(VolumeInfo, "check", lambda self: None)
        export_archive(ArchiveStore.open(tmp_path / "A"), tmp_path / "e.jsonl")
    with ArchiveWriter.open(tmp_path / "B", model=MODEL) as writer:
        report = import_archive(writer, tmp_path / "e.jsonl")
    assert report.added == ["P-001"]
    assert "source" in report.problems[0]


@pytest.mark.parametrize(
    "model", [{}, {"grid": [1e308, 2]}, {"grid": [3]}, {"grid": [99999, 99999]}, {"grid": "ab"}, {"normal_codes": -1}]
)
def test_an_odd_header_is_one_line(tmp_path: Path, model: dict[str, Any]) -> None:
    good = {"fingerprint": "a" * 64, "grid": [3, 5], "normal_codes": 300, "abnormal_codes": 40}
    header = {
        "format": "diptych-archive-export",
        "version": 1,
        "volumes": 1,
        "model": {**good, **model} if model else {},
    }
    (tmp_path / "e.jsonl").write_text(json.dumps(header))
    with pytest.raises(InputError, match="first line is damaged"):
        read_export_model(tmp_path / "e.jsonl")


def test_kilobytes_that_unfold_to_gigabytes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diptych.archive.exchange.MAX_ROWS", 30)
    make_archive(tmp_path / "A", 1)
    export_archive(ArchiveStore.open(tmp_path / "A"), tmp_path / "good.parquet")
    row = pq.read_table(tmp_path / "good.parquet").slice(0, 1)
    repeated = row.take(pa.array(np.zeros(40, dtype=np.int64)))
    ids = pa.array([np.zeros(1000, dtype=np.uint16)])
    long = row.set_column(row.column_names.index("normal_ids"), row.schema.field("normal_ids"), ids)
    for bomb in (repeated, long):
        pq.write_table(bomb, tmp_path / "bomb.parquet")
        with ArchiveWriter.open(tmp_path / "B", model=MODEL) as writer, monkeypatch.context() as watched:
            watched.setattr(pq.ParquetFile, "read_row_group", lambda *_, **__: pytest.fail("it was unfolded"))
            report = import_archive(writer, tmp_path / "bomb.parquet")
        assert "larger than a volume can be" in report.problems[0]


@pytest.mark.parametrize("name", ["config.json", "cluster.json", "backup.json", "users.json"])
def test_what_is_nested_too_deep_is_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("[" * 100_000)
    read: dict[str, Callable[[], object]] = {
        "config.json": lambda: StoredModel.open(tmp_path),
        "cluster.json": lambda: read_manifest(tmp_path),
        "backup.json": lambda: restore(tmp_path, tmp_path / "out"),
        "users.json": lambda: Users(tmp_path / name).all(),
    }
    with pytest.raises((ArchiveError, InputError, ModelError), match="nested too deep"):
        read[name]()


def test_a_pipe_named_like_an_image_stops_nobody(tmp_path: Path) -> None:
    write_patient(tmp_path / "in", "P1")
    pipe = write_patient(tmp_path / "in", "P2") / "P2-t1c.nii.gz"
    pipe.unlink()
    os.mkfifo(pipe)
    os.mkfifo(tmp_path / "pipe.jsonl")
    encoder = FakeEncoder()
    with ArchiveWriter.open(tmp_path / "A", model=encoder.identity) as writer:
        report = index_patients(writer, encoder, find_sources([tmp_path / "in"]))
    assert report.added == ["P1"]
    assert "not a regular file" in report.failed["P2"]
    with pytest.raises(InputError, match="not a regular file"):
        read_export_model(tmp_path / "pipe.jsonl")


def test_no_memory_is_not_told_as_damage(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="memory ran out"), explain(make_archive(tmp_path / "A", 1)):
        raise MemoryError
