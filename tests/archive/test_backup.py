"""A backup is one version, whole, while others write; and only a whole one is restored."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from diptych.archive import ArchiveStore, ArchiveWriter
from diptych.archive.audit import AuditEvent, AuditLog
from diptych.archive.backup import back_up, restore
from diptych.archive.indexing import index_patients
from diptych.archive.integrity import verify_archive
from diptych.errors import ArchiveError
from diptych.volumes.sources import find_sources
from tests.archive.patients import FakeEncoder, write_patient
from tests.archive.samples import make_archive, make_record
from tests.retrieval.running import run


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two patients with images."""
    folder, encoder = tmp_path_factory.mktemp("backup"), FakeEncoder()
    for key in ("A", "B"):
        write_patient(folder / "in", key)
    with ArchiveWriter.open(folder / "archive", model=encoder.identity) as writer:
        index_patients(writer, encoder, find_sources([folder / "in"]))
    AuditLog(folder / "archive").append(AuditEvent("change", "test"))
    return folder / "archive"


def test_there_and_back(archive: Path, tmp_path: Path) -> None:
    assert "2 volumes" in run("archive", "backup", archive, tmp_path / "b").stdout
    assert "2 volumes" in run("archive", "restore", tmp_path / "b", tmp_path / "again").stdout
    again = ArchiveStore.open(tmp_path / "again")
    assert again.version == ArchiveStore.open(archive).version
    assert verify_archive(again).problems == ()
    assert AuditLog(tmp_path / "again").verify().problems == ()
    assert "is there already" in run("archive", "backup", archive, tmp_path / "b").stderr
    assert "is there already" in run("archive", "restore", tmp_path / "b", tmp_path / "again").stderr


@pytest.mark.parametrize("spoil", ["flip", "cut", "gone", "link", "name"])
def test_a_spoilt_backup_touches_nothing(archive: Path, tmp_path: Path, spoil: str) -> None:
    back_up(archive, tmp_path / "b")
    image = next((tmp_path / "b" / "volumes").glob("*/t1.nii.gz"))
    content = image.read_bytes()
    if spoil == "flip":
        image.write_bytes(content[:99] + bytes([content[99] ^ 1]) + content[100:])
    elif spoil == "cut":
        image.write_bytes(content[:-1])
    elif spoil == "name":
        record = json.loads((tmp_path / "b" / "backup.json").read_text())
        record["files"]["../evil"] = "0" * 64
        (tmp_path / "b" / "backup.json").write_text(json.dumps(record))
    else:
        image.unlink()
        if spoil == "link":
            (tmp_path / "same").write_bytes(content)
            image.symlink_to(tmp_path / "same")
    with pytest.raises(ArchiveError):
        restore(tmp_path / "b", tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_a_writer_may_go_on_meanwhile(tmp_path: Path) -> None:
    path = make_archive(tmp_path / "A", 3)
    stop = threading.Event()

    def write() -> None:
        number = 3
        while not stop.is_set() and number < 200:
            with ArchiveWriter.open(path) as writer:
                writer.add(make_record(number))
            number += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for number in range(3):
            back_up(path, tmp_path / f"b{number}")
    finally:
        stop.set()
        thread.join()
    for number in range(3):
        restore(tmp_path / f"b{number}", tmp_path / f"r{number}")
        assert ArchiveStore.open(tmp_path / f"r{number}").codes().problems == ()
