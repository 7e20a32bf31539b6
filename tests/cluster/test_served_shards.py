"""`diptych serve SHARDED` from outside: the same answers over HTTP, and a shard that is away is said, never hidden."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx
import psutil
import pytest

from diptych.cluster.resharding import split_archive
from tests.cluster.making import ONE_RAY, make_whole, save_with_tables
from tests.retrieval.making import tiny_network

pytestmark = [ONE_RAY, pytest.mark.e2e, pytest.mark.timeout(280)]
TOKEN = "a-token-for-the-shards"
ASKED = {"subject": {"volume": "V00", "z": 4}, "metric": "euclidean", "top": 8}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, network = tmp_path_factory.mktemp("served"), tiny_network()
    save_with_tables(network, folder / "model")
    make_whole(folder / "one", network, labels=True)
    split_archive(folder / "one", folder / "many", shards=2)
    return folder


@contextmanager
def served(archive: Path, *options: object) -> Iterator[tuple[httpx.Client, psutil.Process]]:
    """`diptych serve` as a process of its own, and somebody who may ask it."""
    given = (archive, "--model", archive.parent / "model", "--port", 0, *options)
    command = [sys.executable, "-m", "diptych", "serve", *map(str, given)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "DIPTYCH_TOKEN": TOKEN}
    with (
        open(archive.parent / f"{archive.name}.log", "w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment) as process,
    ):
        own = psutil.Process(process.pid)
        try:
            assert process.stdout is not None
            address = next(word for word in process.stdout.readline().split() if word.startswith("http"))
            headers = {"Authorization": f"Bearer {TOKEN}"}
            with httpx.Client(base_url=f"{address}api/v1", headers=headers, timeout=60) as client:
                yield client, own
            process.terminate()
            process.wait(timeout=60)
        finally:
            for left in [*own.children(recursive=True), own] if process.poll() is None else []:
                left.kill()


def search(client: httpx.Client) -> dict[str, Any]:
    answer = client.post("/search", json=ASKED)
    assert answer.status_code == 200, answer.text
    return {name: answer.json()[name] for name in ("version", "metric", "matches", "missing")}


def actors(service: psutil.Process) -> list[psutil.Process]:
    """Processes that hold shards; Ray names them after what they do."""
    found = []
    for child in service.children(recursive=True):
        try:
            found += [child] if child.cmdline()[:1] and child.cmdline()[0].startswith("ray::ShardActor") else []
        except psutil.NoSuchProcess:
            continue
    return found


def wait_until_whole(client: httpx.Client) -> dict[str, Any]:
    until = time.monotonic() + 90
    while (answer := search(client))["missing"] and time.monotonic() < until:
        time.sleep(0.2)
    return answer


@pytest.mark.slow
def test_shards_are_served_as_one_archive_is(folder: Path) -> None:
    with served(folder / "one") as (client, _):
        expected = search(client)
        patients = client.post("/similar-patients", json={"subject": {"volume": "V03"}, "by": "lesion"})
    with served(folder / "many") as (client, _):
        assert search(client) == expected
        found = client.post("/similar-patients", json={"subject": {"volume": "V03"}, "by": "lesion"})
        assert (found.status_code, found.json().get("matches")) == (
            patients.status_code,
            patients.json().get("matches"),
        )
        assert client.get("/archive").json()["volumes"] == 22


@pytest.mark.slow
def test_a_killed_shard_is_named_until_it_is_back(folder: Path) -> None:
    with served(folder / "many", "--cluster", "auto") as (client, service):
        expected = search(client)
        assert expected["missing"] == []
        os.kill(actors(service)[0].pid, signal.SIGKILL)
        partial = search(client)
        assert "did not answer" in partial["missing"][0]
        assert "slices" in partial["missing"][0]
        assert wait_until_whole(client) == expected


@pytest.mark.slow
def test_a_rolling_restart_drops_nothing_with_two_replicas(folder: Path) -> None:
    with served(folder / "many", "--cluster", "auto", "--replicas", 2) as (client, service):
        expected, over, wrong = search(client), Event(), list[Any]()

        def ask() -> None:
            while not over.is_set():
                answer = search(client)
                wrong.extend([] if answer == expected else [answer["missing"]])

        asking = Thread(target=ask)
        asking.start()
        for worker in actors(service):
            os.kill(worker.pid, signal.SIGKILL)
            until = time.monotonic() + 60
            while len(actors(service)) < 4 and time.monotonic() < until:
                time.sleep(0.2)
            time.sleep(3)  # it has a name before it has opened its shard
        over.set()
        asking.join(timeout=60)
        assert not asking.is_alive()
        assert wrong == []
