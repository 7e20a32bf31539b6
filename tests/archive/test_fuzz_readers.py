"""Readers of what strangers send, fed with mutations of seeds we made: refused in one line, never a crash or a hang.

A few hundred mutations by default. `DIPTYCH_FUZZ_SECONDS=600 pytest -m slow tests/archive/test_fuzz_readers.py` goes on
for that long on each reader. Seeds are made here, from our own writers, so that none need be kept as files.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from diptych.archive import ArchiveStore, ArchiveWriter, VolumeInfo
from diptych.archive.audit import AuditEvent, AuditLog
from diptych.archive.backup import back_up, restore
from diptych.archive.exchange import export_archive, import_archive, read_export_model
from diptych.archive.filters import parse_filter
from diptych.errors import DiptychError
from diptych.metrics.model_file import Companion
from diptych.server.users import Users
from tests.archive.samples import MODEL, make_archive

SECONDS = float(os.environ.get("DIPTYCH_FUZZ_SECONDS", "60"))
ODD = (b"\x00", b"\xff", b"../", b'"', b"\\ud800", b"1e999", b"NaN", b"{", b"[" * 50, b"-1", b"9" * 30, b"'", b"\n")
KIND = Companion("x.safetensors", "diptych-x", "1", "an x", "diptych fit-x")
Reader = Callable[[Path, bytes], object]


def mutate(seed: bytes, rng: np.random.Generator) -> bytes:
    """Flip, cut, double or put in something odd, once to four times."""
    data = bytearray(seed)
    for _ in range(rng.integers(1, 5)):
        place, what = int(rng.integers(len(data) + 1)), rng.integers(5)
        if what == 0 and place < len(data):
            data[place] ^= 1 << int(rng.integers(8))
        elif what == 1:
            del data[place : place + int(rng.integers(1, 40))]
        elif what == 2:
            data[place:place] = data[max(0, place - 30) : place]
        elif what == 3:
            data[place:place] = ODD[rng.integers(len(ODD))]
        else:
            del data[place:]
    return bytes(data)


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """One good input for each reader."""
    folder = tmp_path_factory.mktemp("seeds")
    archive = make_archive(folder / "A", 1, slices=2)
    export_archive(ArchiveStore.open(archive), folder / "e.jsonl")
    export_archive(ArchiveStore.open(archive), folder / "e.parquet")
    back_up(archive, folder / "b")
    KIND.write(folder, {"a": np.ones((4, 4), np.float32)}, fingerprint="f" * 64)
    Users(folder / "users.json").add("anna", ["search"], days=9)
    AuditLog(folder).append(AuditEvent("view", "anna", {"volumes": ["P"]}))
    return {
        "jsonl": (folder / "e.jsonl").read_bytes(),
        "parquet": (folder / "e.parquet").read_bytes(),
        "companion": (folder / KIND.file).read_bytes(),
        "filter": b"sex = 'F' and (age > 60.5 or not tag in ('a', 'b''c')) and source is not null",
        "users": (folder / "users.json").read_bytes(),
        "audit": (folder / "audit" / "audit-000001.jsonl").read_bytes(),
        "backup": (folder / "b" / "backup.json").read_bytes(),
    }


def read_export(path: Path, data: bytes, suffix: str) -> None:
    file = path / f"e{suffix}"
    file.write_bytes(data)
    model = read_export_model(file)
    if model == MODEL:
        with ArchiveWriter.open(path / "into", model=model) as writer:
            import_archive(writer, file)
        ArchiveStore.open(path / "into").codes()


def read_companion(path: Path, data: bytes) -> None:
    (path / KIND.file).write_bytes(data)
    KIND.read(path, fingerprint="f" * 64)


def read_filter(path: Path, data: bytes) -> None:
    parse_filter(data.decode(errors="replace")).keep([VolumeInfo("A", "A", sex="F", age=70.0, tags=("a",))])


def read_users(path: Path, data: bytes) -> None:
    (path / "users.json").write_bytes(data)
    Users(path / "users.json").identify("diptych_00_x")


def read_audit(path: Path, data: bytes) -> None:
    (path / "audit").mkdir(exist_ok=True)
    (path / "audit" / "audit-000001.jsonl").write_bytes(data)
    AuditLog(path).verify()


def read_backup(path: Path, data: bytes) -> None:
    (path / "b").mkdir(exist_ok=True)
    (path / "b" / "backup.json").write_bytes(data)
    restore(path / "b", path / "again")


READERS: dict[str, Reader] = {
    "jsonl": lambda path, data: read_export(path, data, ".jsonl"),
    "parquet": lambda path, data: read_export(path, data, ".parquet"),
    "companion": read_companion,
    "filter": read_filter,
    "users": read_users,
    "audit": read_audit,
    "backup": read_backup,
}


def feed(reader: Reader, seed: bytes, path: Path, rng: np.random.Generator) -> None:
    """One mutation; only an error of ours, in one line, may come out."""
    data, said = mutate(seed, rng), ""
    try:
        reader(path, data)
    except DiptychError as error:
        said = str(error)
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error}; input {data[:400]!r}") from error
    assert "\n" not in said
    assert len(said) < 2000


@pytest.mark.parametrize("name", READERS)
def test_mutations_are_refused_or_read(name: str, seeds: dict[str, bytes], tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    for _ in range(40):
        feed(READERS[name], seeds[name], tmp_path, rng)


FOUND: dict[str, Callable[[bytes], bytes]] = {
    "filter": lambda seed: b"sex = 'F' 'two\nlines'",
    "parquet": lambda seed: seed.replace(b"volume_key", b"\xf3olume_key"),
}
"""What longer runs found, made from the same seeds."""


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_is_refused_in_one_line(name: str, seeds: dict[str, bytes], tmp_path: Path) -> None:
    with pytest.raises(DiptychError) as refusal:
        READERS[name](tmp_path, FOUND[name](seeds[name]))
    assert "\n" not in str(refusal.value)


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 120)
@pytest.mark.parametrize("name", READERS)
def test_mutations_for_long(
    name: str, seeds: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng, until, tried = np.random.default_rng(int(time.time())), time.monotonic() + SECONDS, 0
    while time.monotonic() < until:
        feed(READERS[name], seeds[name], tmp_path, rng)
        tried += 1
    with capsys.disabled():
        print(f" {tried} inputs")


def test_a_seed_itself_is_read(seeds: dict[str, bytes], tmp_path: Path) -> None:
    for name, reader in READERS.items():
        if name != "backup":  # its files are elsewhere
            reader(tmp_path, seeds[name])
    assert len(ArchiveStore.open(tmp_path / "into").listing().volumes) == 1
    assert json.loads(seeds["backup"])["format"] == "diptych-backup"
