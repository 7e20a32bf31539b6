"""Shards on Ray beside one process, on one machine: searches, recovery, memory, encoding.

    python benchmarks/cluster.py --slices 500000 --shards 1 2 4
    python benchmarks/cluster.py --slices 10000000 --shards 4 --scale

The first compares: the same made-up volumes in one archive and in shards, asked by one client and by four, everything
in one run; then a shard is killed, and encoding is timed with and without Ray. Shards must answer as the one archive
does. With `--scale` there is no one archive: shards are filled directly, and six answers are compared with a count over
all ids. Codes are those of `diptych.search.synthetic`, the network has learnt nothing: neither changes what it costs.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray
from serving import CODES, fitting_network

from diptych.archive import ArchiveWriter, VolumeInfo, VolumeRecord
from diptych.archive.encoding import NetworkEncoder
from diptych.archive.indexing import IndexOptions
from diptych.cluster.bulk_indexing import Bulk, make_shards
from diptych.cluster.ray_session import connect
from diptych.cluster.ray_shards import RayCalls, RayOptions, ray_calls
from diptych.cluster.resharding import split_archive
from diptych.cluster.shard_manifest import read_manifest
from diptych.cluster.sharded_archive import ShardedArchive
from diptych.model import save_model
from diptych.model.shipped import shipped_model
from diptych.model.stored_model import StoredModel
from diptych.phantom import PhantomConfig, write_phantoms
from diptych.retrieval import Archive, Question
from diptych.retrieval.catalogue import prepare_search
from diptych.search.synthetic import (
    SLICES_PER_VOLUME,
    SyntheticArchive,
    draw_anatomy,
    draw_lesions,
    make_codebook,
    ranked_codes,
)
from diptych.volumes.sources import find_sources

GRID, ABNORMAL, BLOCK = (8, 8), 165, 1000
"""Volumes made at a time."""
CLIENTS = (1, 4)
ASKED = (Question(metric="euclidean", by="anatomy"), Question(metric="euclidean", by="lesion"))


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    clients: int
    per_second: float
    p50: float
    p99: float
    """Milliseconds."""


def main() -> None:
    arguments = parse()
    with tempfile.TemporaryDirectory(prefix="diptych-cluster-", dir=arguments.folder) as name:
        folder = Path(name)
        made = Made(arguments.slices)
        save_model(made.network, folder / "model")
        if arguments.scale:
            measure_scale(folder, made, arguments)
        else:
            compare(folder, made, arguments)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slices", type=int, default=500_000)
    parser.add_argument("--shards", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--seconds", type=float, default=5.0, help="per row")
    parser.add_argument("--patients", type=int, default=8, help="phantoms that are encoded; 0 leaves it out")
    parser.add_argument("--scale", action="store_true", help="only shards, as many slices as there is room for")
    parser.add_argument("--folder", type=Path, help="where there is room")
    return parser.parse_args()


class Made:
    """Made-up volumes, some at a time, always the same ones."""

    def __init__(self, slices: int) -> None:
        rng = np.random.default_rng(1)
        self.volumes = max(2, slices // SLICES_PER_VOLUME)
        books = make_codebook(rng, CODES), make_codebook(rng, ABNORMAL)
        self.ranked = ranked_codes(rng, books[0], GRID)
        nothing = np.empty((0, GRID[0] * GRID[1]), np.uint16)
        none = np.empty(0, np.int64)
        self.network = fitting_network(SyntheticArchive(GRID, *books, nothing, nothing, none, none.astype(np.bool_)))

    def blocks(self) -> Iterator[tuple[int, NDArray[np.uint16], NDArray[np.uint16]]]:
        """First volume, and ids of both panels `[n, P]`."""
        for first in range(0, self.volumes, BLOCK):
            count, rng = min(BLOCK, self.volumes - first), np.random.default_rng((2, first))
            yield (
                first,
                draw_anatomy(count, GRID, self.ranked, 0.69, rng),
                draw_lesions(count, GRID, ABNORMAL, rng),
            )

    def records(self) -> Iterator[VolumeRecord]:
        for first, normal, abnormal in self.blocks():
            for place in range(len(normal) // SLICES_PER_VOLUME):
                rows = slice(place * SLICES_PER_VOLUME, (place + 1) * SLICES_PER_VOLUME)
                yield record(first + place, normal[rows], abnormal[rows])


def record(volume: int, normal: NDArray[np.uint16], abnormal: NDArray[np.uint16]) -> VolumeRecord:
    slices = len(normal)
    return VolumeRecord(
        info=VolumeInfo(f"V{volume:06d}", f"V{volume:06d}", lesion_source="labels"),
        normal_ids=normal.reshape(-1, *GRID),
        abnormal_ids=abnormal.reshape(-1, *GRID),
        z_index=np.arange(slices, dtype=np.uint16),
        position=np.linspace(0, 1, slices, dtype=np.float32),
        z_mm=np.arange(slices, dtype=np.float32),
        lesion_area=np.where(np.any(abnormal > 5, axis=1), 100.0, 0.0).astype(np.float32),
        slice_affine=np.diag([-1.25, -1.5625, 1.0, 1.0]),
    )


def compare(folder: Path, made: Made, arguments: argparse.Namespace) -> None:
    """One process, then shards; then a killed shard, and encoding."""
    with ArchiveWriter.open(folder / "one", model=NetworkEncoder(made.network).identity) as writer:
        for one in made.records():
            writer.add(one)
        prepare_search(writer, StoredModel.open(folder / "model"), folder / "model")
    whole = Archive.open(folder / "one", model=folder / "model")
    print(f"{len(whole.catalogue.index):,} slices, {arguments.seconds:g} s per row; times in ms", flush=True)
    subjects = [whole.stored(f"V{volume:06d}", z_index=78) for volume in range(0, made.volumes, made.volumes // 50 + 1)]
    expected = [told(whole, subject) for subject in subjects[:5]]
    ray = connect("auto")
    base = {clients: ask(whole, subjects, clients, arguments.seconds, "one process") for clients in CLIENTS}
    show(base, base)
    for shards in arguments.shards:
        split_archive(folder / "one", folder / f"shards-{shards}", shards=shards)
        sharded, opened = open_shards(folder / f"shards-{shards}", folder / "model")
        if [told(sharded, subject) for subject in subjects[:5]] != expected:
            sys.exit(f"{shards} shards answer otherwise than one archive")
        rows = {
            clients: ask(sharded, subjects, clients, arguments.seconds, f"{shards} shards on Ray")
            for clients in CLIENTS
        }
        show(rows, base)
        overhead = rows[1].p50 - base[1].p50
        print(
            f"  first opened in {opened:.1f} s, {memory(ray, sharded)}; "
            f"{overhead:+.1f} ms per query against one process"
        )
        if shards == arguments.shards[0]:
            print(f"  killed, a shard of {len(whole.catalogue.index) // shards:,} slices answers again after", end=" ")
            print(", ".join(f"{recover(ray, sharded, subjects[0]):.1f} s" for _ in range(3)), flush=True)
        sharded.close()
    if arguments.patients:
        encode(folder, arguments.patients)
    ray.shutdown()


def open_shards(path: Path, model: Path) -> tuple[ShardedArchive, float]:
    started = time.perf_counter()
    sharded = ShardedArchive.open(path, model=model, calls=ray_calls("auto", RayOptions(timeout=60.0)))
    return sharded, time.perf_counter() - started


def told(archive: Archive, subject: Any) -> list[Any]:
    return [[match.to_json() for match in archive.query(subject, question).matches] for question in ASKED]


def ask(archive: Archive, subjects: list[Any], clients: int, seconds: float, what: str) -> Row:
    """Let some clients ask without pause."""
    archive.query(subjects[0], ASKED[0])
    archive.query(subjects[0], ASKED[1])
    until = time.perf_counter() + seconds

    def client(number: int) -> list[float]:
        times = []
        while (started := time.perf_counter()) < until:
            answer = archive.query(subjects[number % len(subjects)], ASKED[number % 2])
            if answer.missing:
                sys.exit(f"{what}: {answer.missing[0]}")
            times.append(time.perf_counter() - started)
            number += clients
        return times

    started = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        times = [one for found in pool.map(client, range(clients)) for one in found]
    took = time.perf_counter() - started
    p50, p99 = (float(value) * 1000 for value in np.percentile(times, (50, 99)))
    return Row(what, clients, len(times) / took, p50, p99)


def show(rows: dict[int, Row], base: dict[int, Row]) -> None:
    for clients, row in rows.items():
        ratio = row.per_second / base[clients].per_second
        print(
            f"{row.what:20} {clients} clients {row.per_second:8.1f} searches/s ({ratio:.2f}x)  "
            f"p50 {row.p50:7.1f}  p99 {row.p99:7.1f}",
            flush=True,
        )


def processes(ray: Any, sharded: ShardedArchive) -> list[psutil.Process]:
    calls = sharded.group.calls
    assert isinstance(calls, RayCalls)
    return [psutil.Process(ray.get(replicas[0].process.remote())[0]) for replicas in calls.actors]


def memory(ray: Any, sharded: ShardedArchive) -> str:
    """Own memory of the actors, and what they map of files, which the system may take back."""
    found = [process.memory_full_info() for process in processes(ray, sharded)]
    own, mapped = max(one.uss for one in found), max(one.shared for one in found)
    asking = psutil.Process().memory_full_info().uss
    return f"{own / 1e6:.0f} MB own and {mapped / 1e6:.0f} MB mapped per shard, {asking / 1e6:.0f} MB in who asks"


def recover(ray: Any, sharded: ShardedArchive, subject: Any) -> float:
    """Kill the first shard, and ask until nothing is missing."""
    os.kill(processes(ray, sharded)[0].pid, signal.SIGKILL)
    started = time.perf_counter()
    while time.perf_counter() - started < 120:
        if whole_answer(lambda: sharded.query(subject, ASKED[0]).missing):
            return time.perf_counter() - started
        time.sleep(0.05)
    sys.exit("the killed shard did not come back")


def whole_answer(missing: Callable[[], tuple[str, ...]]) -> bool:
    from diptych.errors import ClusterError

    try:
        return not missing()
    except ClusterError:  # the only shard, while it is away
        return False


def encode(folder: Path, patients: int) -> None:
    """Phantoms through the shipped model: in this process, and on every core."""
    config = PhantomConfig(voxel_mm=2.0)
    write_phantoms(folder / "phantoms", patients=patients, seed=1, config=config, workers=2)
    found, model = find_sources([folder / "phantoms"]), shipped_model()
    for name, cluster in (("warm-up", None), ("one", None), ("ray", "auto")):
        make_shards(folder / f"bulk-{name}", StoredModel.open(model), 2)
        bulk = Bulk(read_manifest(folder / f"bulk-{name}"), model, IndexOptions(pixels="none"))
        some = found[:1] if name == "warm-up" else found
        report = bulk.index(some) if cluster is None else bulk.index_on(cluster, some)
        if report.failed:
            sys.exit(f"encoding failed: {report.failed}")
        print(f"encoding, {name:8} {report.slices / report.seconds:8.0f} slices/s", flush=True)


def measure_scale(folder: Path, made: Made, arguments: argparse.Namespace) -> None:
    """Shards alone, filled directly; three answers compared with a count over all ids."""
    started = time.perf_counter()
    manifest = make_shards(folder / "many", StoredModel.open(folder / "model"), arguments.shards[0])
    with ExitStack() as stack:
        writers = [stack.enter_context(ArchiveWriter.open(shard.path)) for shard in manifest.shards]
        for writer in writers:
            writer._database.execute("PRAGMA synchronous=OFF")  # made up, and made again where it is lost
        for one in made.records():
            writers[manifest.owner(one.info.patient_key)].add(one)
        print(
            f"{made.volumes * SLICES_PER_VOLUME:,} slices stored in {time.perf_counter() - started:.0f} s", flush=True
        )
    started = time.perf_counter()
    ray = connect("auto")
    sharded, opened = open_shards(folder / "many", folder / "model")
    print(f"segments made and opened in {opened:.0f} s; {memory(ray, sharded)}", flush=True)
    sharded.close()
    sharded, opened = open_shards(folder / "many", folder / "model")
    print(f"opened again in {opened:.1f} s; {memory(ray, sharded)}", flush=True)
    size = sum(file.stat().st_size for file in (folder / "many").rglob("*") if file.is_file())
    print(f"{size / 1e9:.1f} GB on disk", flush=True)
    subjects = [sharded.stored(f"V{volume:06d}", z_index=78) for volume in (0, made.volumes // 2, made.volumes - 1)]
    compare_with_count(sharded, made, subjects)
    rows = {clients: ask(sharded, subjects, clients, arguments.seconds, "shards on Ray") for clients in CLIENTS}
    show(rows, rows)
    print(f"after searching: {memory(ray, sharded)}", flush=True)
    print(f"a killed shard answers again after {recover(ray, sharded, subjects[0]):.1f} s", flush=True)
    sharded.close()
    ray.shutdown()


def compare_with_count(sharded: ShardedArchive, made: Made, subjects: list[Any]) -> None:
    """The few-line twin: sums of table entries over every slice, the best of each patient."""
    tables = sharded.tables.normal["euclidean"], sharded.tables.abnormal["euclidean"]
    for subject in subjects:
        for question, table, place in zip(ASKED, tables, (0, 1), strict=True):
            query = np.asarray((subject.normal_ids, subject.abnormal_ids)[place]).reshape(-1).astype(np.int64)
            best = np.empty(made.volumes, dtype=np.int64)
            for first, *panels in made.blocks():
                sums = np.zeros(len(panels[place]), dtype=np.int64)
                for cell, code in enumerate(query.tolist()):
                    sums += table.entries[code][panels[place][:, cell]]
                lowest = sums.reshape(-1, SLICES_PER_VOLUME).min(axis=1)
                best[first : first + len(lowest)] = lowest
            own = int(subject.volume_key[1:])
            best[own] = np.iinfo(np.int64).max
            order = np.lexsort((np.arange(made.volumes), best))[: question.top]
            expected = [(f"V{volume:06d}", float(table.distance(best[volume]))) for volume in order.tolist()]
            answer = sharded.query(subject, question)
            found = [(match.volume.volume_key, match.distance) for match in answer.matches]
            if [key for key, _ in found] != [key for key, _ in expected] or not np.allclose(
                [one for _, one in found], [one for _, one in expected]
            ):
                sys.exit(f"{subject.volume_key}: {found} instead of {expected}")
    print(f"{2 * len(subjects)} answers equal a count over all ids", flush=True)


if __name__ == "__main__":
    main()
