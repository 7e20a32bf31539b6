"""Load and faults beside a real Orthanc: many studies pulled while searches run, and everything around them failing.

    python benchmarks/pacs.py --studies 200

Small phantom studies (four series of ten slices) lie in an Orthanc of our own; a watcher follows it through a proxy of
ours while another thread searches the archive. On the way the network is cut, the server is killed and started again,
and the disk is full for a while (that one is injected where files are written). At the end the studies of the archive
are compared with those that were put into the server: lost, doubled, and every failure that was reported. Intake is
replaced by a quick stand-in that reads and types series as ever but neither strips nor registers, since its minute per
study would hide everything else.
"""

from __future__ import annotations

import argparse
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.pacs.making import quick_intake, write_small_study
from tests.retrieval.making import tiny_network

from diptych.archive import ArchiveStore
from diptych.model import save_model
from diptych.pacs import Desk, Incoming, Outcome, connect, read_config, send_study
from diptych.pacs.orthanc import Orthanc, find_orthanc, free_port
from diptych.pacs.watch import Watcher
from diptych.phantom.phantom_dicom import Person
from diptych.retrieval import Archive, Question

CONFIG = """
[servers.hospital]
web = "http://127.0.0.1:{port}/dicom-web"
changes = "http://127.0.0.1:{port}"
retries = 1
timeout = 10
[rules]
stable_seconds = 0.2
poll_seconds = 0.2
"""
AWAY_SECONDS = 6.0


class Proxy:
    """Passes bytes between the watcher and the server; `cut` ends every connection and refuses new ones."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = free_port()
        self.closed = threading.Event()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            inner, _ = self._listener.accept()
            if self.closed.is_set():
                inner.close()
                continue
            try:
                outer = socket.create_connection(("127.0.0.1", self.target), timeout=5)
            except OSError:
                inner.close()
                continue
            self._open |= {inner, outer}
            for source, sink in ((inner, outer), (outer, inner)):
                threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        for one in (source, sink):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
            self._open.discard(one)

    def cut(self, seconds: float) -> None:
        self.closed.set()
        for one in list(self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        time.sleep(seconds)
        self.closed.clear()


class Searches(threading.Thread):
    """Asks the archive as it grows, as a reader would."""

    def __init__(self, archive: Path, model: Path) -> None:
        super().__init__(daemon=True)
        self.archive, self.model = archive, model
        self.seconds: list[float] = []
        self.failures: Counter[str] = Counter()
        self.over = threading.Event()

    def run(self) -> None:
        opened: Archive | None = None
        while not self.over.wait(0.2):
            try:
                opened = Archive.open(self.archive, model=self.model) if opened is None else opened.refreshed()
                subject = opened.stored(opened.catalogue.volumes[0].volume_key)
                start = time.perf_counter()
                opened.query(subject, Question(top=5))
                self.seconds.append(time.perf_counter() - start)
            except Exception as error:
                if opened is not None:
                    self.failures[f"{type(error).__name__}: {error}"[:120]] += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--studies", type=int, default=200)
    asked = parser.parse_args()
    if find_orthanc() is None:
        sys.exit("no Orthanc with its DICOMweb plugin here: apt-get install orthanc orthanc-dicomweb")
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder), asked.studies)


def run(folder: Path, count: int) -> None:
    server = Orthanc(folder / "orthanc").start()
    try:
        uids = fill(server, folder / "studies", count)
        model = folder / "model"
        model.mkdir()
        save_model(tiny_network(), model)
        proxy = Proxy(server.http)
        (folder / "pacs.toml").write_text(CONFIG.format(port=proxy.port), encoding="utf-8")
        incoming = Incoming(folder / "archive", read_config(folder / "pacs.toml"), model=model, take_in=quick_intake)
        follow(folder, server, proxy, incoming, model, uids)
    finally:
        server.stop()


def fill(server: Orthanc, folder: Path, count: int) -> dict[str, str]:
    """StudyInstanceUID and PatientID of what the server holds; every tenth study is a second one of its patient."""
    import pydicom

    uids = {}
    for number in range(count):
        patient = f"LOAD-{number if number % 10 != 9 else number - 1:04d}"
        day = f"2024{1 + number // 28 % 12:02d}{1 + number % 28:02d}"
        study = write_small_study(
            folder / f"{number:04d}", person=Person(patient_id=patient, study_date=day), seed=number
        )
        uids[str(pydicom.dcmread(next(study.rglob("*.dcm")), stop_before_pixels=True).StudyInstanceUID)] = patient
        server.put(study)
    print(f"{count} studies of {len(set(uids.values()))} patients are in Orthanc", flush=True)
    return uids


def follow(folder: Path, server: Orthanc, proxy: Proxy, incoming: Incoming, model: Path, uids: dict[str, str]) -> None:
    told: Counter[str] = Counter()

    def report(outcome: Outcome) -> None:
        if outcome.state != "done":
            told[f"{outcome.state}: {outcome.reason}"] += 1

    watcher = Watcher(
        connect(incoming.config.server("hospital")), incoming, report=report,
        complain=lambda line: told.update([f"watcher: {line}"]),
    )  # fmt: skip
    stop, searches = threading.Event(), Searches(incoming.archive, model)
    faults: list[tuple[float, str, Callable[[], None]]] = [
        (0.25, f"network cut for {AWAY_SECONDS:g} s", lambda: proxy.cut(AWAY_SECONDS)),
        (0.5, f"server killed, started again after {AWAY_SECONDS:g} s", lambda: restart(server)),
        (0.75, f"disk full for {AWAY_SECONDS:g} s", lambda: fill_disk(incoming)),
    ]
    start, cpu = time.perf_counter(), time.process_time()
    thread = threading.Thread(target=watcher.run, args=(stop,), daemon=True)
    thread.start()
    searches.start()
    end = time.monotonic() + 3600
    while time.monotonic() < end:
        done = len(incoming.ledger.studies("done"))
        while faults and done >= faults[0][0] * len(uids):
            _, words, cause = faults.pop(0)
            print(f"{done} in the archive: {words}", flush=True)
            cause()
        if done >= len(uids):
            break
        time.sleep(0.2)
    wall, used = time.perf_counter() - start, time.process_time() - cpu
    stop.set()
    searches.over.set()
    thread.join(timeout=60)
    searches.join(timeout=60)
    compare(incoming, uids, wall, used)
    took = 1e3 * np.array(searches.seconds or [0.0])
    print(
        f"searches while it ran: {len(took)}, median {np.median(took):.0f} ms, 95 % within "
        f"{np.percentile(took, 95):.0f} ms; failed: {sum(searches.failures.values())}"
    )
    for line, times in searches.failures.most_common(5):
        print(f"  {times} × {line}")
    print("failures that were reported, each made good by itself:")
    for line, times in told.most_common():
        print(f"  {times} × {line}")
    send_twice(incoming, model, list(uids)[:5])


def restart(server: Orthanc) -> None:
    server.kill()
    time.sleep(AWAY_SECONDS)
    server.start()


def fill_disk(incoming: Incoming) -> None:
    """For a while writes fail as on a full disk."""
    take, end = incoming.take, time.monotonic() + AWAY_SECONDS

    def full(dataset: Any, server: str) -> str:
        if time.monotonic() < end:
            raise OSError(28, "No space left on device", "incoming")
        return take(dataset, server)

    vars(incoming)["take"] = full


def compare(incoming: Incoming, uids: dict[str, str], wall: float, used: float) -> None:
    """What is in the archive beside what the server holds."""
    held = [one.volume_key for one in ArchiveStore.open(incoming.archive).listing().volumes]
    rows = {row.study: row for row in incoming.ledger.studies()}
    wanted = {
        incoming.names.volume_key(incoming.names.person(who), incoming.names.study(uid)) for uid, who in uids.items()
    }
    left = list((incoming.folder / "incoming").glob("*/*/*.dcm"))
    undone = sum(row.state != "done" for row in rows.values())
    print(
        f"studies: {len(uids)} in the server, {len(held)} in the archive; lost {len(wanted - set(held))}, doubled "
        f"{len(held) - len(set(held))}, of nobody {len(set(held) - wanted)}, not done {undone}, files left {len(left)}"
    )
    print(f"time: {wall:.0f} s, {used:.0f} s of processor; {60 * len(held) / wall:.0f} studies a minute")


def send_twice(incoming: Incoming, model: Path, studies: list[str]) -> None:
    desk, archive = Desk.open(incoming.archive, incoming.config), Archive.open(incoming.archive, model=model)
    first = sum(send_study(desk, uid, archive=archive).instances for uid in studies)
    second = sum(send_study(desk, uid, archive=archive).instances for uid in studies)
    print(f"results of {len(studies)} studies: {first} instances stored, {second} when sent again")


if __name__ == "__main__":
    main()
