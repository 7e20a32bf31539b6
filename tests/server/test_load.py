"""Many at a time: caches make things once, jobs wait their turn, and a search never waits for a decomposition."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from diptych.archive.encoding import NetworkEncoder
from diptych.errors import UsageError
from diptych.progress import Progress
from diptych.retrieval import Archive
from diptych.server.cache import Cache
from diptych.server.jobs import Jobs
from diptych.server.prefetch import around
from diptych.server.problems import Problem
from diptych.server.service import Service
from diptych.server.settings import ServerSettings
from tests.archive.patients import write_patient
from tests.server.conftest import API, finish, upload

SEARCH = {"subject": {"volume": "Case-1", "z": 4}}


def test_a_search_does_not_wait_for_a_decomposition(
    client: httpx.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    going, let_go = threading.Event(), threading.Event()
    encode = NetworkEncoder.encode

    def slow(self: NetworkEncoder, images: NDArray[np.float32]) -> Any:
        going.set()
        let_go.wait(30)
        return encode(self, images)

    monkeypatch.setattr(NetworkEncoder, "encode", slow)
    job = upload(client, write_patient(tmp_path, "Slow-1")).json()["job"]
    assert going.wait(30)
    assert client.post(f"{API}/search", json=SEARCH).status_code == 200
    assert client.get(f"{API}/jobs/{job}").json()["state"] == "running"
    let_go.set()
    assert finish(client, job)["state"] == "done"


def test_many_clients_get_the_same_answer(client: httpx.Client) -> None:
    def ask(_: int) -> Any:
        return client.post(f"{API}/search", json=SEARCH).json()["matches"]

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(ask, range(64)))
    assert all(answer == answers[0] for answer in answers)


def test_a_cache_makes_each_thing_once_and_forgets_the_oldest() -> None:
    made: list[int] = []
    cache: Cache[int] = Cache(3, lambda _: 1)

    def make(number: int) -> int:
        made.append(number)
        time.sleep(0.05)
        return number

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: cache.get(1, lambda: make(1)), range(8))) == {1}
    assert made == [1]
    for number in (2, 3, 4):
        cache.get(number, lambda number=number: make(number))  # type: ignore[misc]
    assert (1 in cache, 2 in cache) == (False, True)


def test_a_failure_is_not_kept() -> None:
    cache: Cache[int] = Cache(3, lambda _: 1)
    with pytest.raises(ZeroDivisionError):
        cache.get(1, lambda: 1 // 0)
    assert cache.get(1, lambda: 7) == 7


def test_jobs_tell_how_they_ended_and_queues_are_bounded() -> None:
    jobs, let_go = Jobs(waiting=2), threading.Event()

    def wait(progress: Progress) -> None:
        progress(1, 2, "half")
        let_go.wait(10)

    first = jobs.submit("export", "slow", wait)
    while first.message != "half":
        time.sleep(0.01)

    def refuse(_: object) -> None:
        raise UsageError("no")

    failing = jobs.submit("export", "failing", refuse)
    cancelled = jobs.submit("export", "cancelled", lambda progress: None)
    with pytest.raises(Problem):
        jobs.submit("export", "too many", lambda progress: None)
    cancelled.cancelled.set()
    let_go.set()
    while not cancelled.over:
        time.sleep(0.01)
    assert [job.state for job in (first, failing, cancelled)] == ["done", "failed", "failed"]
    assert [job.error for job in (first, failing, cancelled)] == [None, "no", "cancelled"]


def test_a_job_that_takes_too_long_is_stopped_at_its_next_report() -> None:
    def endless(progress: Progress) -> None:
        for step in range(10_000):
            time.sleep(0.01)
            progress(step, 10_000, "on and on")

    job = Jobs(waiting=2).submit("decompose", "decompose", endless, seconds=0.05)
    while not job.over:
        time.sleep(0.01)
    assert job.error == "decompose: took longer than 0.05 seconds and was stopped; send less at a time"


def test_neighbours_are_decoded_while_a_reader_looks(archive_path: Path, model: Path) -> None:
    service = Service(Archive.open(archive_path, model=model), ServerSettings())
    try:
        case = service.case("volumes", "Case-1")
        assert around(case, 4) == [5, 3, 6, 2, 7, 1]
        service.ahead.note(case, 4)
        for _ in range(200):
            if all((case.tag, z) in service.cases._views for z in around(case, 4)):
                break
            time.sleep(0.05)
        assert (case.tag, 1) in service.cases._views
    finally:
        service.close()
