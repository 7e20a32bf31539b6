"""The reading room as a person meets it: a served archive of a few small phantoms, and Chromium to look at it.

Needs Chromium and the built page; where one is missing the tests are skipped and say so. A picture of every test's last
sight is in `viewer-pictures` below `--basetemp FOLDER`; without that option pictures are kept when a test fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, expect, sync_playwright

from diptych.archive import ArchiveWriter
from diptych.archive.encoding import NetworkEncoder
from diptych.archive.indexing import IndexOptions, index_patients
from diptych.metrics.label_indexing import volume_decoder
from diptych.model import load_model
from diptych.model.shipped import shipped_model
from diptych.phantom import PhantomConfig, write_phantoms
from diptych.volumes.sources import find_sources
from tests.conftest import ROOT
from tests.viewer.room import Room

PAGE = ROOT / "src" / "diptych" / "server" / "static" / "index.html"
UNPACKED = Path(sys.prefix) / "browser" / "chromium"
"""The browser that `make test` unpacks where the machine has none."""
CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or (str(UNPACKED) if UNPACKED.is_file() else None)
)
FLAGS = (
    "--no-sandbox",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--ignore-gpu-blocklist",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENTS, VOXEL_MM = 4, 6.0
TOKEN = "a-token-for-the-reading-room"
OPEN_LANES = """localStorage.setItem("diptych-preferences",
    JSON.stringify({ lanes: ["abnormal", "both", "normal", "comparators"], list: true }))"""
"""A reader who has opened every lane."""
PATIENCE_MS = 60_000
"""How long to wait for anything that is seen: a busy machine draws volumes slowly without a graphics card."""


@pytest.fixture(scope="session")
def phantoms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not PAGE.is_file():
        pytest.skip("the viewer is not built: run 'make page'")
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed: on Debian, 'apt-get install chromium'")
    folder = tmp_path_factory.mktemp("phantoms")
    write_phantoms(folder, patients=PATIENTS, seed=77, config=PhantomConfig(voxel_mm=VOXEL_MM), workers=1)
    return folder


@pytest.fixture(scope="session")
def served(announced: tuple[str, str]) -> str:
    """The address of the service."""
    return announced[0]


@pytest.fixture(scope="session")
def announced(phantoms: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """`diptych serve` on an archive of the phantoms, made with the shipped model; its address, and a link into it."""
    archive = tmp_path_factory.mktemp("served") / "phantoms"
    network = load_model(shipped_model())
    encoder, decode = NetworkEncoder(network), volume_decoder(network, shipped_model())
    with ArchiveWriter.open(archive, model=encoder.identity) as writer:
        sources, options = find_sources([phantoms]), IndexOptions(source="phantoms")
        index_patients(writer, encoder, sources, options=options, decode=decode)
    command = [sys.executable, "-m", "diptych", "serve", str(archive), "--port", "0"]
    environment = {**os.environ, "DIPTYCH_TOKEN": TOKEN, "NO_COLOR": "1", "COLUMNS": "200", "PYTHONUNBUFFERED": "1"}
    with (
        (archive.parent / "server.log").open("w", encoding="utf-8") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment) as server,
    ):
        assert server.stdout is not None
        yield address_in(server.stdout.readline()), address_in(server.stdout.readline())
        server.terminate()


def address_in(line: str) -> str:
    return next(word for word in line.split() if word.startswith("http://"))


@pytest.fixture(scope="session")
def browser(phantoms: Path) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def context(browser: Browser, served: str) -> Iterator[BrowserContext]:
    """One visitor who has signed in, so that what was loaded once is not loaded again."""
    expect.set_options(timeout=PATIENCE_MS)
    context = browser.new_context(viewport={"width": 1280, "height": 800}, accept_downloads=True)
    context.set_default_timeout(PATIENCE_MS)
    assert context.request.post(f"{served}api/v1/session", data={"token": TOKEN}).ok
    context.add_init_script(f"localStorage.getItem('diptych-preferences') ?? {OPEN_LANES}")
    yield context
    context.close()


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("viewer-pictures", numbered=False)


@pytest.fixture
def room(context: BrowserContext, served: str, pictures: Path, request: pytest.FixtureRequest) -> Iterator[Room]:
    """The page, just opened; nothing may go wrong in it unseen."""
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if "Security Policy" in message.text else None)
    page.goto(served)
    yield Room(page)
    page.screenshot(path=pictures / f"{request.node.name}.png")
    page.close()
    assert problems == []
