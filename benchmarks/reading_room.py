"""The reading room as a reader waits for it: first picture, all lanes, an upload, a figure; and what the server needs.

    python benchmarks/reading_room.py                       needs Chromium, playwright and the built page
    python benchmarks/reading_room.py --archive ARCHIVE     an archive of your own instead of phantoms

A browser opens patients one after the other, every lane open; a row is the median over them, and the slowest. Times run
from the click to what is seen. `cpu` is the server's own processor time, which a busy machine does not change. The last
row serves a made-up archive (`benchmarks/serving.py`) and searches it by each panel. Goals are printed beside.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx
import psutil
from playwright.sync_api import Page, expect, sync_playwright
from serving import API, make_archive, question, serving

from diptych.archive import ArchiveWriter
from diptych.archive.encoding import NetworkEncoder
from diptych.archive.indexing import IndexOptions, index_patients
from diptych.metrics.label_indexing import volume_decoder
from diptych.model import load_model
from diptych.model.shipped import shipped_model
from diptych.phantom import PhantomConfig, write_phantoms
from diptych.volumes.sources import find_sources

FLAGS = ("--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist")
LANES = ("By lesion", "By both", "By anatomy", "Comparators")
ALL_OPEN = """localStorage.setItem("diptych-preferences",
    JSON.stringify({ lanes: ["abnormal", "both", "normal", "comparators"], list: true }))"""
PATIENCE_MS = 120_000
TOKEN = "a-token-for-the-benchmark"


@dataclass
class Row:
    """One line of the table."""

    what: str
    goal: str
    median: float
    worst: float
    unit: str
    cpu: float | None = None
    """Seconds of the server's processor time, median."""


def main() -> None:
    arguments = parse()
    with tempfile.TemporaryDirectory(prefix="diptych-room-") as name:
        folder = Path(name)
        rows = [] if arguments.only_memory else browse(arguments, folder)
        if arguments.slices:
            rows.append(memory(folder, arguments.slices))
    print(f"{'':34}{'goal':>8}{'median':>9}{'worst':>8}{'cpu':>8}")
    for row in rows:
        cpu = "" if row.cpu is None else f"{row.cpu:.2f} s"
        print(f"{row.what:34}{row.goal:>8}{row.median:>7.2f} {row.unit}{row.worst:>6.2f} {row.unit}{cpu:>8}")
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=2))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--archive", type=Path, help="an archive of the shipped model; phantoms without it")
    parser.add_argument("--patients", type=int, default=6, help="how many are opened")
    parser.add_argument("--slices", type=int, default=100_000, help="of the last row; 0 leaves it out")
    parser.add_argument("--only-memory", action="store_true", help="the last row alone")
    parser.add_argument("--json", type=Path, help="write the rows here")
    return parser.parse_args()


def browse(arguments: argparse.Namespace, folder: Path) -> list[Row]:
    """What a reader waits for."""
    archive = arguments.archive or phantom_archive(folder / "phantoms", arguments.patients + 2)
    write_phantoms(folder / "mine", patients=1, seed=5, config=PhantomConfig(voxel_mm=1.0), workers=1)
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("Chromium is not installed: on Debian, 'apt-get install chromium'")
    with (
        serving(archive, shipped_model(), folder / "room.log") as (address, process),
        sync_playwright() as playwright,
    ):
        wait_until_warm(address)
        browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        context = browser.new_context(viewport={"width": 1280, "height": 800}, accept_downloads=True)
        context.add_init_script(ALL_OPEN)
        context.set_default_timeout(PATIENCE_MS)
        expect.set_options(timeout=PATIENCE_MS)
        if not context.request.post(f"{address}{API}/session", data={"token": TOKEN}).ok:
            sys.exit("the service did not let the browser in")
        page = context.new_page()
        page.goto(address)
        rows = [*opening(page, process, arguments.patients), export(page, process), upload(page, process, folder)]
        browser.close()
    return rows


def phantom_archive(folder: Path, patients: int) -> Path:
    """Phantoms of 2 mm, indexed as 'diptych index' does."""
    write_phantoms(folder, patients=patients, seed=3, config=PhantomConfig(voxel_mm=2.0), workers=2)
    network = load_model(shipped_model())
    encoder, decode = NetworkEncoder(network), volume_decoder(network, shipped_model())
    with ArchiveWriter.open(folder / "archive", model=encoder.identity) as writer:
        index_patients(writer, encoder, find_sources([folder]), options=IndexOptions(), decode=decode)
    return folder / "archive"


def wait_until_warm(address: str) -> None:
    """The service warms up by itself; a reader who comes later never notices."""
    with httpx.Client(base_url=address, timeout=120) as client:
        while client.get("/ready").status_code == 503:
            time.sleep(0.5)


@contextmanager
def clock(process: psutil.Process, times: list[float], cpu: list[float]) -> Iterator[Callable[[], None]]:
    """Take the time until it is stopped, and the processor time until the end."""
    started, spent = time.perf_counter(), cpu_seconds(process)
    yield lambda: times.append(time.perf_counter() - started)
    cpu.append(cpu_seconds(process) - spent)


def cpu_seconds(process: psutil.Process) -> float:
    used = process.cpu_times()
    return float(used.user + used.system)


def opening(page: Page, process: psutil.Process, patients: int) -> list[Row]:
    """Click on a patient: the first picture, then all lanes; one that is not counted comes first."""
    first: list[float] = []
    lanes: list[float] = []
    cpu: list[float] = []
    listed = page.get_by_role("navigation", name="Patients").locator("button.patient")
    for number in range(patients + 1):
        key = listed.nth(number).locator("b").inner_text()
        with clock(process, lanes, cpu) as answered:
            started = time.perf_counter()
            listed.nth(number).click()
            expect(page.get_by_role("heading", name=key)).to_be_visible()
            wait_for_picture(page)
            first.append(time.perf_counter() - started)
            wait_for_lanes(page)
            answered()
        page.wait_for_timeout(1500)  # the volume itself comes in, as it would while one looks
    return [
        row("first picture", "1 s", first[1:]),
        row("all lanes", "1.5 s", lanes[1:], cpu[1:]),
    ]


def wait_for_picture(page: Page) -> None:
    """The page's security policy refuses what playwright would wait with, so it is asked again and again."""
    while not page.evaluate("document.querySelector('figure[aria-label=Patient] img.picture')?.naturalWidth > 0"):
        time.sleep(0.01)


def wait_for_lanes(page: Page) -> None:
    for title in LANES:
        lane = page.get_by_role("region", name=title, exact=True)
        expect(lane).to_have_attribute("aria-busy", "false")
        expect(lane.get_by_role("listitem").or_(lane.locator(".empty")).first).to_be_visible()


def export(page: Page, process: psutil.Process) -> Row:
    """A figure of all lanes."""
    times: list[float] = []
    cpu: list[float] = []
    for _ in range(3):
        page.get_by_text("Export", exact=True).click()
        with clock(process, times, cpu) as saved:
            with page.expect_download() as download:
                page.get_by_role("button", name="Figure of the answer").click()
            download.value.path()
            saved()
    return row("figure of all lanes", "2 s", times, cpu)


def upload(page: Page, process: psutil.Process, folder: Path) -> Row:
    """A patient of 1 mm: from the drop to the answers."""
    files = [
        path
        for path in sorted((folder / "mine").rglob("*.nii.gz"))
        if re.search(r"-(t1n|t1c|t2w|t2f)\.nii", path.name) and "twin" not in path.name
    ]
    times: list[float] = []
    cpu: list[float] = []
    with clock(process, times, cpu) as answered:
        page.get_by_label("Files of a patient").set_input_files(files)
        expect(page).to_have_title(re.compile("^your patient"))
        wait_for_lanes(page)
        answered()
    return row("1-mm upload to its answers", "10 s", times, cpu)


def signed_in() -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKEN}"}


def memory(folder: Path, slices: int) -> Row:
    """Resident memory after searches by each panel, in gigabytes."""
    archive, model, subjects = make_archive(folder / "large", slices)
    with serving(archive, model, folder / "large.log") as (address, process):
        wait_until_warm(address)
        with httpx.Client(base_url=address, timeout=120, headers=signed_in()) as client:
            for number in range(30):
                client.post(f"{API}/search", json=question(subjects, number)).raise_for_status()
        used = process.memory_info().rss / 1e9
    return Row(f"server on {slices:,} slices", "1 GB", used, used, "GB")


def row(what: str, goal: str, times: list[float], cpu: list[float] | None = None) -> Row:
    spent = None if cpu is None else statistics.median(cpu)
    return Row(what, goal, statistics.median(times), max(times), "s ", spent)


if __name__ == "__main__":
    os.environ["DIPTYCH_TOKEN"] = TOKEN
    main()
