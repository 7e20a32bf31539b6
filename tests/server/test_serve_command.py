"""`diptych serve` from outside: it starts, answers, and ends well; what cannot be is said in one line."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.retrieval.running import run


def one_line(*arguments: object) -> str:
    done = run("serve", *arguments)
    assert done.exit_code in (2, 3, 6)
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_others_need_a_token(archive_path: Path, model: Path) -> None:
    assert "a token is needed" in one_line(archive_path, "--model", model, "--host", "0.0.0.0")
    assert "in the clear" in one_line(archive_path, "--host", "0.0.0.0", "--token", "x" * 20)
    assert "give both" in one_line(archive_path, "--tls-cert", "c.pem")
    assert "give an address" in one_line(archive_path, "--proxy", "proxy.example")


def test_a_short_token_is_refused(archive_path: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("short\n")
    assert "at least 16" in one_line(archive_path, "--token-file", tmp_path / "token")
    assert "cannot be read" in one_line(archive_path, "--token-file", tmp_path / "none")
    assert "give one of them" in one_line(archive_path, "--token", "x" * 20, "--token-file", tmp_path / "token")


def test_a_port_in_use_is_one_line(archive_path: Path, model: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"port {port}: something else uses it" in one_line(archive_path, "--model", model, "--port", port)


def test_no_archive_is_one_line(tmp_path: Path) -> None:
    assert "is no archive" in one_line(tmp_path)


@contextmanager
def running(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """`diptych serve` as a process of its own."""
    command = [sys.executable, "-m", "diptych", "serve", *map(str, arguments)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.e2e
def test_a_unix_socket_is_the_owners_alone(archive_path: Path, model: Path, tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as left:  # by a service that was killed
        left.bind(str(path))
    with running(archive_path, "--model", model, "--socket", path) as process:
        assert process.stdout is not None
        assert f"unix:{path}" in process.stdout.readline()
        assert path.stat().st_mode & 0o777 == 0o600
        transport = httpx.HTTPTransport(uds=str(path))
        with httpx.Client(transport=transport, base_url="http://localhost", timeout=30) as client:
            assert client.get("/api/v1/session").json()["user"] == "owner"
            for name in ("X-Forwarded-User", "X-Forwarded-For", "Via"):  # passed on by a proxy: not the owner
                assert client.get("/api/v1/session", headers={name: "anna"}).status_code == 401
        process.terminate()
        process.communicate(timeout=30)
    assert process.returncode == 0
    assert not path.exists()


def test_what_is_no_socket_is_not_taken_away(archive_path: Path, model: Path, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("mine")
    assert "something is there already" in one_line(archive_path, "--model", model, "--socket", tmp_path / "kept")
    assert "cannot listen" in one_line(archive_path, "--model", model, "--socket", tmp_path / ("long" * 40))
    assert (tmp_path / "kept").read_text() == "mine"


@pytest.mark.slow
@pytest.mark.e2e
def test_sigterm_finishes_requests_that_are_under_way(archive_path: Path, model: Path) -> None:
    """Six senders who need eight seconds each; the signal comes in the second."""
    with running(archive_path, "--model", model, "--port", "0", "--token", "x" * 20) as process:
        assert process.stdout is not None
        address = next(word for word in process.stdout.readline().split() if word.startswith("http"))
        body = json.dumps({"token": "x" * 20}).encode()

        def slowly() -> Iterator[bytes]:
            for place in range(8):
                yield body[place : place + 1 if place < 7 else None]
                time.sleep(1)

        def send(_: int) -> int:
            headers = {"Content-Type": "application/json", "Content-Length": str(len(body))}
            return httpx.post(f"{address}api/v1/session", content=slowly(), headers=headers, timeout=60).status_code

        with ThreadPoolExecutor(6) as pool:
            answers = pool.map(send, range(6))
            time.sleep(2)
            process.terminate()
            assert list(answers) == [204] * 6
        process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.mark.e2e
def test_it_serves_until_interrupted(archive_path: Path, model: Path) -> None:
    with running(archive_path, "--model", model, "--port", "0") as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        address = next(word for word in said.split() if word.startswith("http"))
        key = process.stdout.readline().split("#key=")[1].split()[0]
        assert httpx.get(f"{address}api/v1/health", timeout=30).json()["status"] == "ok"
        assert httpx.get(f"{address}api/v1/archive", timeout=30).status_code == 401
        assert httpx.post(f"{address}api/v1/session", json={"token": key}, timeout=30).status_code == 204
        process.send_signal(signal.SIGINT)
        _, log = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "GET /api/v1/health 200" in log
    assert "Traceback" not in log
