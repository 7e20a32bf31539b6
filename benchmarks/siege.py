"""A service that is attacked and used at once, and one that is used for long: p99 as a ratio, memory over time.

    python benchmarks/siege.py ARCHIVE --model MODEL --seconds 60

Prints honest p50 and p99 in peace and under siege (idle connections, headers and bodies that never end, a flood of
wrong tokens, bodies that are too large), how many honest requests failed, and the service's memory in thirds of the
time. Attackers and honest clients share one address, as they would on one machine.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import psutil

from diptych.server.users import Users

API = "api/v1"


@dataclass(frozen=True)
class Served:
    """A service and a way into it."""

    address: str
    pid: int
    token: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


@dataclass(frozen=True)
class Use:
    """What honest clients saw."""

    seconds: tuple[float, ...]
    failures: tuple[str, ...]
    memory: tuple[int, ...]
    """Bytes of the service, sampled over the time."""

    def p(self, share: float) -> float:
        return float(np.quantile(self.seconds, share)) if self.seconds else float("nan")

    def memory_of_third(self, third: int) -> float:
        """The most memory in a third of the time, in MB."""
        parts = np.array_split(np.array(self.memory), 3)
        return float(parts[third].max()) / 1e6


@contextmanager
def service(archive: Path, model: Path | None) -> Iterator[Served]:
    """`diptych serve` as a process of its own, and a user for the honest clients."""
    users = Users.of_archive(archive)
    token = users.add("siege", ["search", "read"], days=1)
    command = [sys.executable, "-m", "diptych", "serve", str(archive), "--port", "0"]
    command += [] if model is None else ["--model", str(model)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        address = next(word for word in process.stdout.readline().split() if word.startswith("http"))
        try:
            wait_until_ready(address)
            yield Served(address, process.pid, token)
        finally:
            process.terminate()
            users.revoke("siege")


def wait_until_ready(address: str) -> None:
    for _ in range(600):
        with suppress(httpx.HTTPError):
            if httpx.get(f"{address}ready", timeout=5).status_code == 200:
                return
        time.sleep(0.2)


def use(served: Served, *, seconds: float, clients: int) -> Use:
    """Honest clients search and look at pictures for a while."""
    listed = httpx.get(f"{served.address}{API}/volumes", headers=served.headers, timeout=60).json()["items"]
    took: list[float] = []
    failures: list[str] = []
    until = time.monotonic() + seconds

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        with httpx.Client(base_url=served.address, headers=served.headers, timeout=60) as client:
            while time.monotonic() < until:
                volume = listed[rng.integers(len(listed))]
                subject = {"volume": volume["volume_key"], "z": volume["representative_z"]}
                started = time.perf_counter()
                if rng.random() < 0.5:
                    answer = client.post(f"{API}/search", json={"subject": subject, "by": "both"})
                else:
                    key = f"{API}/volumes/{subject['volume']}/slices/{subject['z']}/image.png"
                    answer = client.get(key, params={"size": int(rng.integers(64, 512))})
                took.append(time.perf_counter() - started)
                if answer.status_code != 200:
                    failures.append(f"{answer.status_code} {answer.text[:100]}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(clients)]
    for thread in threads:
        thread.start()
    process, memory = psutil.Process(served.pid), []
    while time.monotonic() < until:
        memory.append(process.memory_info().rss)
        time.sleep(0.2)
    for thread in threads:
        thread.join()
    return Use(tuple(took), tuple(failures), tuple(memory))


@contextmanager
def siege(served: Served) -> Iterator[None]:
    """Everything that attackers without a token can do, until the block ends."""
    over, address = threading.Event(), served.address
    host, port = httpx.URL(address).host, httpx.URL(address).port or 80

    def repeat(attack: Callable[[], None], pause: float) -> None:
        while not over.is_set():
            with suppress(OSError, httpx.HTTPError):
                attack()
            over.wait(pause)

    def idle() -> None:
        held = [socket.create_connection((host, port), timeout=5) for _ in range(100)]
        over.wait(1)
        for one in held:
            one.close()

    def endless_header() -> None:
        with socket.create_connection((host, port), timeout=5) as one:
            one.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
            while not over.wait(0.2):
                one.sendall(b"X-A: b\r\n")

    def endless_body() -> None:
        with socket.create_connection((host, port), timeout=5) as one:
            one.sendall(b"POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\n")
            while not over.wait(0.2):
                one.sendall(b" ")

    def guess() -> None:
        httpx.get(f"{address}{API}/archive", headers={"Authorization": "Bearer wrong"}, timeout=5)

    def too_large() -> None:
        httpx.post(f"{address}{API}/session", content=b"x" * (3 << 20), timeout=5)

    attacks = [(idle, 0.5), (idle, 0.5), (endless_header, 0.5), (endless_body, 0.5), (guess, 0.05), (too_large, 0.5)]
    threads = [threading.Thread(target=repeat, args=attack, daemon=True) for attack in attacks]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=4)
    options = parser.parse_args()
    with service(options.archive, options.model) as served:
        peace = use(served, seconds=options.seconds, clients=options.clients)
        with siege(served):
            attacked = use(served, seconds=options.seconds, clients=options.clients)
    load = os.getloadavg()[0]
    print(f"load {load:.1f}, {options.clients} honest clients, {options.seconds:g} s each")
    for name, seen in (("in peace", peace), ("under siege", attacked)):
        memory = " ".join(f"{seen.memory_of_third(third):.0f}" for third in range(3))
        print(
            f"{name:12} {len(seen.seconds):6} answers, {len(seen.failures)} failed, "
            f"p50 {seen.p(0.5) * 1e3:.0f} ms, p99 {seen.p(0.99) * 1e3:.0f} ms, MB by thirds {memory}"
        )
    print(f"p99 under siege / in peace: {attacked.p(0.99) / peace.p(0.99):.2f}")


if __name__ == "__main__":
    main()
