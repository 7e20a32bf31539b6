"""An export read back is the archive; a spoilt one is reported, never taken."""

from __future__ import annotations

import builtins
import json
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from diptych.archive import ArchiveStore, ArchiveWriter, ModelIdentity
from diptych.archive.exchange import export_archive, import_archive, read_export_model
from diptych.errors import ArchiveMismatchError, InputError, MissingExtraError, UsageError
from tests.archive.samples import MODEL, make_archive, make_record

NAMES = ("export.jsonl", "export.parquet")


@pytest.mark.parametrize("name", NAMES)
def test_export_and_import_give_the_same_archive(tmp_path: Path, name: str) -> None:
    original = ArchiveStore.open(make_archive(tmp_path / "A"))
    export_archive(original, tmp_path / name)
    with ArchiveWriter.open(tmp_path / "B", model=read_export_model(tmp_path / name)) as writer:
        report = import_archive(writer, tmp_path / name)
        assert (len(report.added), report.problems) == (5, [])
        assert writer.version == original.version
        assert len(import_archive(writer, tmp_path / name).unchanged) == 5


@pytest.mark.parametrize("name", NAMES)
def test_unknown_values_survive(tmp_path: Path, name: str) -> None:
    record = make_record(0)
    bare = replace(record.info, sex=None, age=None, study_date=None, source=None, lesion_source="unknown")
    record = replace(record, info=bare, lesion_area=np.full(12, np.nan, dtype=np.float32))
    with ArchiveWriter.open(tmp_path / "A", model=MODEL) as writer:
        writer.add(record)
        export_archive(writer, tmp_path / name)
    with ArchiveWriter.open(tmp_path / "B", model=MODEL) as writer:
        import_archive(writer, tmp_path / name)
        assert writer.record("P-000").info == bare


@pytest.mark.parametrize("name", NAMES)
def test_an_export_is_private_and_the_same_every_time(tmp_path: Path, name: str) -> None:
    archive = ArchiveStore.open(make_archive(tmp_path / "A"))
    export_archive(archive, tmp_path / name)
    first = (tmp_path / name).read_bytes()
    export_archive(archive, tmp_path / name)
    assert (tmp_path / name).read_bytes() == first
    assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


@pytest.mark.parametrize("name", NAMES)
def test_any_flipped_byte_is_reported_or_harmless(tmp_path: Path, name: str) -> None:
    original = ArchiveStore.open(make_archive(tmp_path / "A", volumes=3))
    export_archive(original, tmp_path / name)
    content = (tmp_path / name).read_bytes()
    rng = np.random.default_rng(0)
    spoilt = tmp_path / f"spoilt{(tmp_path / name).suffix}"
    for trial, offset in enumerate(rng.integers(len(content), size=40).tolist()):
        changed = bytearray(content)
        changed[offset] ^= int(rng.integers(1, 256))
        spoilt.write_bytes(changed)
        with ArchiveWriter.open(tmp_path / f"B{trial}", model=MODEL) as writer:
            try:
                report = import_archive(writer, spoilt)
            except (InputError, ArchiveMismatchError):
                continue
            assert report.problems or writer.version == original.version
            for record in writer.records()[0]:
                assert np.array_equal(record.normal_ids, original.record(record.info.volume_key).normal_ids)


def test_a_cut_export_is_reported(tmp_path: Path) -> None:
    export_archive(ArchiveStore.open(make_archive(tmp_path / "A")), tmp_path / "x.jsonl")
    lines = (tmp_path / "x.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "x.jsonl").write_text("".join(lines[:3]))
    with ArchiveWriter.open(tmp_path / "B", model=MODEL) as writer:
        assert "holds 2 volumes, 5 were exported" in import_archive(writer, tmp_path / "x.jsonl").problems[0]


def test_an_export_of_another_model_is_refused(tmp_path: Path) -> None:
    export_archive(ArchiveStore.open(make_archive(tmp_path / "A")), tmp_path / "x.jsonl")
    other = ModelIdentity("b" * 64, MODEL.grid, 300, 40)
    with ArchiveWriter.open(tmp_path / "B", model=other) as writer, pytest.raises(ArchiveMismatchError):
        import_archive(writer, tmp_path / "x.jsonl")


@pytest.mark.parametrize("content", ["", "{}", "[1]", "no json", json.dumps({"format": "diptych-archive-export"})])
def test_what_is_no_export_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "x.jsonl").write_text(content)
    (tmp_path / "x.parquet").write_text(content)
    for name in ("x.jsonl", "x.parquet", "missing.jsonl", "missing.parquet"):
        with pytest.raises(InputError, match=r"export|check"):
            read_export_model(tmp_path / name)


def test_another_ending_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\.jsonl or \.parquet"):
        export_archive(ArchiveStore.open(make_archive(tmp_path / "A")), tmp_path / "x.csv")


def test_without_pyarrow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: object, **options: object) -> object:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *rest, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(MissingExtraError, match=r"diptych\[parquet\]"):
        read_export_model(tmp_path / "x.parquet")
