"""The service under load: searches over HTTP on a made-up archive, with and without a decomposition beside them.

    python benchmarks/serving.py --slices 100000 --clients 1 8 32 --seconds 10

`diptych serve` runs in a process of its own, the clients in this one; each client sends its next question as soon as it
has the answer. Questions go through panels and weights; every one is about another slice. Codes are those of
`diptych.search.synthetic`, the network has learnt nothing: neither changes what a search costs. The last row searches
while an uploaded patient of 240 x 240 x 155 voxels is decomposed. Any answer but 200 is an error and fails the run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import torch

from diptych.archive import ArchiveWriter, VolumeInfo, VolumeRecord
from diptych.archive.encoding import NetworkEncoder
from diptych.config import get_preset
from diptych.model import FeatureDecomposingNetwork, save_model
from diptych.search.synthetic import SyntheticArchive, synthetic_archive
from diptych.volumes import write_nifti

API = "/api/v1"
CODES = 256
WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass
class Row:
    """One line of the table; times in milliseconds."""

    what: str
    clients: int
    requests: int
    errors: int
    per_second: float
    p50: float
    p99: float
    slowest: float
    cpu: float
    """Of the service, per request; what the others are on a machine that does nothing else."""


def main() -> None:
    arguments = parse()
    with tempfile.TemporaryDirectory(prefix="diptych-serving-") as name:
        folder = Path(name)
        archive, model, subjects = make_archive(folder, arguments.slices)
        with serving(archive, model, folder / "server.log") as (address, process):
            rows = asyncio.run(measure(Load(address, process, subjects), arguments, folder))
    print_table(rows, arguments)
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=2))
    if any(row.errors for row in rows):
        sys.exit("some requests failed")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slices", type=int, default=100_000)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--seconds", type=float, default=10.0, help="per row")
    parser.add_argument("--json", type=Path, help="write the rows here")
    return parser.parse_args()


def make_archive(folder: Path, slices: int) -> tuple[Path, Path, list[tuple[str, int]]]:
    """An archive of synthetic codes, the model that it claims to come from, and slices to ask about."""
    made = synthetic_archive(slices, codes=CODES, seed=1)
    network = fitting_network(made)
    save_model(network, folder / "model")
    subjects: list[tuple[str, int]] = []
    with ArchiveWriter.open(folder / "archive", model=NetworkEncoder(network).identity) as writer:
        for volume in range(int(made.volume_of_slice[-1]) + 1):
            writer.add(record := make_record(made, volume))
            subjects.append((record.info.volume_key, record.slice_count // 2))
    return folder / "archive", folder / "model", subjects


def fitting_network(made: SyntheticArchive) -> FeatureDecomposingNetwork:
    """A network whose codebooks are the archive's."""
    torch.manual_seed(0)
    network = FeatureDecomposingNetwork(get_preset("cpu-8x8").model).eval()
    for quantizer, codebook in (
        (network.normal_quantizer, made.normal_codebook),
        (network.abnormal_quantizer, made.abnormal_codebook),
    ):
        rows, width = codebook.shape
        with torch.no_grad():
            quantizer.codebook[:rows, :width] = torch.from_numpy(codebook)[:, : quantizer.codebook.shape[1]]
    return network


def make_record(made: SyntheticArchive, volume: int) -> VolumeRecord:
    places = np.flatnonzero(made.volume_of_slice == volume)
    slices = len(places)
    area = np.where(made.lesion_free[places], 0.0, 100.0)
    return VolumeRecord(
        info=VolumeInfo(f"V{volume:05d}", f"P{volume:05d}", lesion_source="labels"),
        normal_ids=made.normal[places].reshape(-1, *made.grid),
        abnormal_ids=made.abnormal[places].reshape(-1, *made.grid),
        z_index=np.arange(slices, dtype=np.uint16),
        position=np.linspace(0, 1, slices, dtype=np.float32),
        z_mm=np.arange(slices, dtype=np.float32),
        lesion_area=area.astype(np.float32),
        slice_affine=np.diag([-1.25, -1.5625, 1.0, 1.0]),
    )


@contextmanager
def serving(archive: Path, model: Path, log: Path) -> Iterator[tuple[str, psutil.Process]]:
    """The service in a process of its own: its address, and the process."""
    command = [sys.executable, "-m", "diptych", "serve", str(archive), "--model", str(model), "--port", "0"]
    with open(log, "w") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
        )
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        if "http" not in said:
            sys.exit(f"the service did not start: {log.read_text()}")
        address = next(word for word in said.split() if word.startswith("http")).rstrip("/")
        yield address, psutil.Process(process.pid)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)


@dataclass
class Load:
    """Who is asked, and about what."""

    address: str
    process: psutil.Process
    subjects: list[tuple[str, int]]

    async def run(self, client: httpx.AsyncClient, what: str, clients: int, seconds: float) -> Row:
        """Let some clients ask without pause for some seconds."""
        times: list[float] = []
        errors = 0
        until = time.perf_counter() + seconds

        async def ask_on(asked: int) -> None:
            nonlocal errors
            while time.perf_counter() < until:
                started = time.perf_counter()
                answer = await client.post(f"{API}/search", json=question(self.subjects, asked))
                times.append(time.perf_counter() - started)
                errors += answer.status_code != 200
                asked += clients

        started, spent = time.perf_counter(), self.cpu_seconds()
        await asyncio.gather(*(ask_on(number) for number in range(clients)))
        took, spent = time.perf_counter() - started, self.cpu_seconds() - spent
        p50, p99 = (float(value) for value in np.percentile(times, (50, 99)) * 1000)
        count = len(times)
        return Row(what, clients, count, errors, count / took, p50, p99, max(times) * 1000, spent / count * 1000)

    def cpu_seconds(self) -> float:
        used = self.process.cpu_times()
        return float(used.user + used.system)


async def measure(load: Load, arguments: argparse.Namespace, folder: Path) -> list[Row]:
    """All rows, one after the other."""
    limits = httpx.Limits(max_connections=max(arguments.clients) + 4)
    async with httpx.AsyncClient(base_url=load.address, limits=limits, timeout=120) as client:
        await load.run(client, "warm up", 1, 5.0)
        rows = [await load.run(client, "search", clients, arguments.seconds) for clients in arguments.clients]
        job = await begin_decomposing(client, folder)
        rows.append(await load.run(client, "", 8, arguments.seconds))
        state = (await client.get(f"{API}/jobs/{job}")).json()
        rows[-1].what = f"beside a decomposition ({state['state']}, {state['done']} of {state['total']} steps)"
    return rows


def question(subjects: list[tuple[str, int]], number: int) -> dict[str, Any]:
    """The next question: another slice, panel or weight each time."""
    key, z = subjects[number * 7 % len(subjects)]
    by = ("both", "normal", "abnormal")[number % 3]
    return {"subject": {"volume": key, "z": z}, "by": by, "weight": WEIGHTS[number % 5], "metric": "euclidean"}


async def begin_decomposing(client: httpx.AsyncClient, folder: Path) -> str:
    """Upload a patient as large as those of BraTS, made of smooth noise."""
    x, y, z = np.meshgrid(*(np.linspace(-1, 1, n) for n in (240, 240, 155)), indexing="ij", sparse=True)
    brain = (x / 0.6) ** 2 + (y / 0.75) ** 2 + z**2 < 1
    rng = np.random.default_rng(0)
    files = []
    for name in ("t1n", "t1c", "t2w", "t2f"):
        path = folder / f"Load-1-{name}.nii.gz"
        coarse = rng.integers(100, 900, (24, 24, 31)).repeat(10, 0).repeat(10, 1).repeat(5, 2)
        write_nifti(path, (brain * coarse).astype(np.int16), np.diag([-1.0, -1.0, 1.0, 1.0]))
        files.append(("files", (path.name, path.read_bytes())))
    answer = await client.post(f"{API}/uploads", files=files)
    job: str = answer.json()["job"]
    return job


def print_table(rows: list[Row], arguments: argparse.Namespace) -> None:
    print(f"\n{arguments.slices:,} slices, {arguments.seconds:g} s per row; times in ms")
    print(f"{'':58} clients  requests  errors  per second     p50     p99  slowest     cpu")
    for row in rows:
        print(
            f"{row.what:58} {row.clients:7} {row.requests:9} {row.errors:7} {row.per_second:11.0f} "
            f"{row.p50:7.1f} {row.p99:7.1f} {row.slowest:8.0f} {row.cpu:7.1f}"
        )


if __name__ == "__main__":
    main()
