"""Limits that hold: idle and slow connections, slow and refused uploads, two who want one key, folders of the dead."""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from diptych.archive import ArchiveWriter
from diptych.errors import ArchiveError
from diptych.model import FeatureDecomposingNetwork
from diptych.retrieval import Archive
from diptych.server.answer_exports import _cell
from diptych.server.service import FOLDER, Service
from diptych.server.settings import ServerSettings
from tests.archive.patients import write_patient
from tests.server.conftest import API, finish, make_archive, serving, upload


@pytest.fixture(scope="module")
def hasty(archive_path: Path, model: Path) -> Iterator[httpx.Client]:
    """A service of little patience."""
    short = {"header_seconds": 0.5, "body_seconds": 0.5, "max_connections": 20, "max_uploads": 1000}
    with serving(Archive.open(archive_path, model=model), **short) as client:
        yield client


def connect(client: httpx.Client) -> socket.socket:
    return socket.create_connection((client.base_url.host, client.base_url.port or 0), timeout=20)


def test_idle_connections_shut_nobody_out(hasty: httpx.Client) -> None:
    idle = [connect(hasty) for _ in range(60)]
    with httpx.Client(base_url=hasty.base_url, timeout=20) as newcomer:
        assert newcomer.get(f"{API}/health").status_code == 200
    for one in idle:
        one.close()


def test_a_header_that_never_ends_is_cut_off(hasty: httpx.Client) -> None:
    with connect(hasty) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        for _ in range(200):
            try:
                slow.sendall(b"X-A: b\r\n")
            except ConnectionError:
                return
            time.sleep(0.05)
    pytest.fail("still open")


def test_a_slow_body_is_refused(hasty: httpx.Client) -> None:
    with connect(hasty) as slow:
        slow.sendall(b"POST /api/v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{")
        assert b" 408 " in slow.recv(200)


def test_one_user_cannot_keep_others_from_uploading(archive_path: Path, model: Path) -> None:
    service = Service(Archive.open(archive_path, model=model), ServerSettings(audit=False))
    try:
        with service.receive("a"), service.receive("a"):
            with pytest.raises(Exception, match="other uploads"), service.receive("a"):
                pass
            with service.receive("b"):
                pass
        assert service.receiving.total() == 0
    finally:
        service.close()


def test_a_refused_upload_leaves_nothing(
    archive_path: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "services").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "services"))  # of this service alone
    with serving(Archive.open(archive_path, model=model)) as client:
        answer = upload(client, write_patient(tmp_path, "Wrong-1"), channels='{"nobody.nii.gz": "t1"}')
        assert answer.status_code == 422
        assert list((tmp_path / "services").glob(f"{FOLDER}*"))
        assert list((tmp_path / "services").glob(f"{FOLDER}*/uploads/*")) == []


def test_two_who_want_one_key_get_it_once(
    tmp_path: Path, network: FeatureDecomposingNetwork, model: Path, patients: Path
) -> None:
    path = make_archive(tmp_path / "own", network, patients)
    with serving(Archive.open(path, model=model)) as client:
        ids = [upload(client, write_patient(tmp_path, f"New-{n}", seed=n)).json() for n in (7, 8)]
        for one in ids:
            finish(client, one["job"])
        jobs = [client.post(f"{API}/uploads/{one['id']}/archive", json={"volume_key": "K"}).json()["id"] for one in ids]
        assert sorted(finish(client, job)["state"] for job in jobs) == ["done", "failed"]


def test_searches_go_on_when_the_file_fails(
    tmp_path: Path, network: FeatureDecomposingNetwork, model: Path, patients: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = Archive.open(make_archive(tmp_path / "own", network, patients), model=model)
    monkeypatch.setattr("diptych.server.live_archive.CHECK_EVERY", 0.0)
    with serving(archive) as client:
        asked = {"subject": {"volume": "Case-1", "z": 4}}
        assert client.post(f"{API}/search", json=asked).status_code == 200

        def fail(_: Archive) -> Archive:
            raise ArchiveError("the disk failed")

        monkeypatch.setattr(Archive, "refreshed", fail)
        assert client.post(f"{API}/search", json=asked).status_code == 200
        told = client.get("/health").json()
        assert (told["status"], "the disk failed" in told["problems"][0]) == ("degraded", True)


def test_exports_of_a_removed_patient_go(
    tmp_path: Path, network: FeatureDecomposingNetwork, model: Path, patients: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_archive(tmp_path / "own", network, patients)
    monkeypatch.setattr("diptych.server.service.TIDY_SECONDS", 0.05)
    monkeypatch.setattr("diptych.server.live_archive.CHECK_EVERY", 0.0)
    service = Service(Archive.open(path, model=model), ServerSettings(audit=False))
    service.start()
    try:
        (service.folder / "exports").mkdir()
        with ArchiveWriter.open(path) as writer:
            writer.remove("Case-1")
        for _ in range(400):
            if not (service.folder / "exports").exists():
                break
            time.sleep(0.05)
        assert not (service.folder / "exports").exists()
    finally:
        service.close()


@pytest.mark.parametrize("text", ["=1+1", "\n=1+1", "\r\n@x", " +1", "\t-1"])
def test_no_cell_is_a_formula(text: str) -> None:
    assert str(_cell(text)).startswith("'")
