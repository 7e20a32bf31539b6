"""`diptych serve` from outside: it starts, answers, and ends well; what cannot be is said in one line."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
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


@pytest.mark.e2e
def test_it_serves_until_interrupted(archive_path: Path, model: Path) -> None:
    command = [sys.executable, "-m", "diptych", "serve", str(archive_path), "--model", str(model), "--port", "0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
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
