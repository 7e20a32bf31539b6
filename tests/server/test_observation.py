"""What the service tells about itself, and what it never tells: health, figures, the audit log, and a canary."""

from __future__ import annotations

import gzip
import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from diptych.archive.audit import AuditLog
from diptych.model import FeatureDecomposingNetwork
from diptych.retrieval import Archive
from tests.archive.patients import write_patient
from tests.server.conftest import API, finish, make_archive, serving, upload

TOKEN = "correct-horse-battery-staple"
RIGHT = {"Authorization": f"Bearer {TOKEN}"}
CANARY = "ZZCANARYJANEDOE"
SEARCH = {"subject": {"volume": "Case-1", "z": 4}}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory, network: FeatureDecomposingNetwork, patients: Path) -> Path:
    return make_archive(tmp_path_factory.mktemp("watched") / "A", network, patients)


@pytest.fixture(scope="module")
def watched(own: Path, model: Path) -> Iterator[httpx.Client]:
    """A service with a token and an audit log."""
    with serving(Archive.open(own, model=model), token=TOKEN, audit=True) as client:
        yield client


def events(own: Path, event: str) -> list[dict[str, object]]:
    log = AuditLog(own)
    assert log.verify().problems == ()
    return [one for one in log.read() if one["event"] == event]


def wait_for(own: Path, event: str, count: int) -> list[dict[str, object]]:
    for _ in range(200):
        if len(found := events(own, event)) >= count:
            return found
        time.sleep(0.02)
    return found


def test_health_and_ready_are_for_everybody_and_figures_are_not(watched: httpx.Client) -> None:
    assert watched.get("/health").json() == {"status": "ok", "problems": []}
    assert watched.get("/ready").status_code in (200, 503)
    assert watched.get("/metrics").status_code == 401
    watched.post(f"{API}/search", json=SEARCH, headers=RIGHT)
    text = watched.get("/metrics", headers=RIGHT).text
    assert 'diptych_requests_total{operation="search",status="2xx"}' in text
    assert 'diptych_cache_limit_bytes{cache="pictures"} 134217728' in text
    assert text.endswith("# EOF\n")
    assert "Case-1" not in text


def test_who_did_what_is_written_down(watched: httpx.Client, own: Path) -> None:
    watched.post(f"{API}/session", json={"token": "wrong, wrong"})
    watched.get(f"{API}/volumes/Case-2/slices/4/image.png", headers=RIGHT)
    watched.get(f"{API}/volumes/Case-2/slices/5/image.png", headers=RIGHT)
    watched.post(f"{API}/search", json=SEARCH, headers=RIGHT)
    views = wait_for(own, "view", 1)
    assert [(one["who"], one["what"]["volumes"]) for one in views] == [("token", ["Case-2"])]  # type: ignore[index]
    assert wait_for(own, "search", 1)[-1]["what"]["volumes"] == ["Case-1"]  # type: ignore[index]
    assert wait_for(own, "sign in", 1)[0]["outcome"] == "refused"
    assert wait_for(own, "start", 1)


def test_a_canary_is_found_nowhere(
    watched: httpx.Client, own: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A patient's name in file names, headers, queries and wrong tokens reaches no log, archive or export."""
    folder = write_patient(tmp_path, CANARY, seed=3)
    for path in folder.iterdir():
        raw = bytearray(gzip.decompress(path.read_bytes()))
        raw[148 : 148 + len(CANARY)] = CANARY.encode()
        path.write_bytes(gzip.compress(bytes(raw)))
    with caplog.at_level(logging.DEBUG):
        watched.headers.update(RIGHT)
        watched.get(f"{API}/volumes", params={"text": CANARY})
        watched.get(f"{API}/volumes/{CANARY}")
        watched.get(f"/{CANARY}")
        watched.get(f"{API}/archive", headers={"Authorization": f"Bearer {CANARY}"})
        sent = upload(watched, folder).json()
        finish(watched, sent["job"])
        job = watched.post(f"{API}/uploads/{sent['id']}/archive", json={}).json()
        assert finish(watched, job["id"])["state"] == "done"
        exported = watched.post(f"{API}/export", json={"search": SEARCH, "format": "csv"}).text
        watched.delete(f"{API}/uploads/{sent['id']}")
        watched.headers.pop("Authorization")
    logged = "\n".join(one.getMessage() for one in caplog.records if one.name.startswith("diptych"))
    assert "uploads" in logged
    assert CANARY not in logged
    assert CANARY not in exported
    wait_for(own, "delete", 1)
    for file in [path for path in own.rglob("*") if path.is_file()]:
        content = file.read_bytes()
        assert CANARY.encode() not in (gzip.decompress(content) if file.suffix == ".gz" else content), file


def test_the_log_can_be_json(own: Path, model: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.INFO, "diptych.server"),
        serving(Archive.open(own, model=model), json_log=True) as client,
    ):
        client.get(f"{API}/volumes/Case-1")
    lines = [json.loads(one.message) for one in caplog.records if one.message.startswith("{")]
    assert lines[-1]["route"] == "/api/v1/volumes/{key}"
