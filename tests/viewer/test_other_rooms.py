"""Rooms that differ from the usual one: one patient, a finger, a link of somebody else, an upload."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from diptych.archive import ArchiveWriter
from diptych.archive.encoding import NetworkEncoder
from diptych.archive.indexing import IndexOptions, index_patients
from diptych.metrics.label_indexing import volume_decoder
from diptych.model import load_model
from diptych.model.shipped import shipped_model
from diptych.retrieval import Archive
from diptych.volumes.sources import find_sources
from tests.server.conftest import serving
from tests.viewer.conftest import OPEN_LANES, PATIENCE_MS, TOKEN
from tests.viewer.room import Room
from tests.viewer.test_reading_room import distances

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
OUT_OF_REACH = """() => [...document.querySelectorAll("button, select, input, summary")]
    .filter(one => one.closest(".top, .reading, .results-bar"))
    .filter(one => one.checkVisibility())
    .filter(one => {
        one.scrollIntoView({ block: "center" });
        const { left, right, top, bottom } = one.getBoundingClientRect();
        return left < 0 || right > innerWidth || top < 0 || bottom > innerHeight;
    })
    .map(one => one.ariaLabel || one.textContent)"""
"""Controls that cannot be brought into the window."""


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Page]]:
    """A visitor of their own, with a window of the given size."""
    opened = []

    def enter(address: str, *, token: str = "", **options: object) -> Page:
        expect.set_options(timeout=PATIENCE_MS)
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})  # type: ignore[arg-type]
        opened.append(context)
        context.set_default_timeout(PATIENCE_MS)
        if token:
            assert context.request.post(f"{address}api/v1/session", data={"token": token}).ok
        context.add_init_script(OPEN_LANES)
        page = context.new_page()
        page.goto(address)
        return page

    yield enter
    for context in opened:
        context.close()


def archive_of(path: Path, folder: Path) -> Archive:
    add_to(path, folder)
    return Archive.open(path, model=shipped_model())


def add_to(path: Path, folder: Path) -> None:
    """Index as 'diptych index --predict-lesions' does."""
    network = load_model(shipped_model())
    encoder, decode = NetworkEncoder(network), volume_decoder(network, shipped_model())
    with ArchiveWriter.open(path, model=encoder.identity) as writer:
        options = IndexOptions(predict_lesions=True)
        index_patients(writer, encoder, find_sources([folder]), options=options, decode=decode)


def patient_of(phantoms: Path, to: Path) -> Path:
    """A copy of one phantom."""
    folder = sorted(path for path in phantoms.iterdir() if path.is_dir())[0]
    shutil.copytree(folder, to / folder.name)
    return to


def test_one_patient_has_nobody_to_be_compared_with(visit: Callable[..., Page], phantoms: Path, tmp_path: Path) -> None:
    archive = archive_of(tmp_path / "archive", patient_of(phantoms, tmp_path / "one"))
    with serving(archive) as client:
        room = Room(visit(f"{client.base_url}/"))
        room.open()
        expect(room.lane("By lesion").get_by_text("This archive holds one patient")).to_be_visible()


def test_patients_come_and_go_as_the_archive_changes(
    visit: Callable[..., Page], phantoms: Path, tmp_path: Path
) -> None:
    first, second = sorted(path for path in phantoms.iterdir() if path.is_dir())[:2]
    shutil.copytree(first, tmp_path / "one" / first.name, ignore=shutil.ignore_patterns("*-seg.nii.gz"))
    archive = archive_of(tmp_path / "archive", tmp_path / "one")
    with serving(archive) as client:
        room = Room(visit(f"{client.base_url}/"))
        expect(room.patients).to_have_count(1)
        expect(room.patients.first).to_contain_text("cm² predicted")  # it came without labels
        room.open()
        expect(room.page.get_by_text("bars: predicted lesion")).to_be_visible()
        add_to(archive.store.path, second)
        expect(room.patients).to_have_count(2)
        expect(room.cards("By lesion")).to_have_count(1)
        with ArchiveWriter.open(archive.store.path, model=archive.encoder.identity) as writer:
            writer.remove(second.name)
        expect(room.patients).to_have_count(1)
        expect(room.lane("By lesion").get_by_text("This archive holds one patient")).to_be_visible()


def test_everything_is_reachable_in_a_narrow_window(visit: Callable[..., Page], served: str) -> None:
    room = Room(visit(served, token=TOKEN, viewport={"width": 900, "height": 700}))
    key = room.open()
    expect(room.patients).to_have_count(0)  # the list gives way to the patient
    room.page.get_by_role("radio", name="This slice").click()
    room.wait_for("By lesion")
    assert room.page.evaluate(OUT_OF_REACH) == []
    stage = room.stage("Patient")
    assert min(stage["width"], stage["height"]) >= 200
    room.page.get_by_role("button", name="List of patients").click()
    expect(room.patients.filter(has_text=key)).to_be_visible()


def test_one_finger_scrolls_slices_and_two_zoom(visit: Callable[..., Page], served: str) -> None:
    page = visit(served, token=TOKEN, has_touch=True)
    room = Room(page)
    room.open()
    expect(page.locator(".rail-words")).to_contain_text("mm")
    before = page.locator(".rail-words").inner_text()
    box = room.stage("Patient")
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    fingers = page.context.new_cdp_session(page)

    def touch(kind: str, *points: tuple[float, float]) -> None:
        places = [{"x": across, "y": down, "id": number} for number, (across, down) in enumerate(points)]
        fingers.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": places})

    touch("touchStart", (x, y))
    touch("touchMove", (x, y - 40))
    touch("touchEnd")
    expect(page.locator(".rail-words")).not_to_have_text(before)
    touch("touchStart", (x - 20, y), (x + 20, y))
    touch("touchMove", (x - 60, y), (x + 60, y))
    touch("touchEnd")
    expect(page.get_by_role("button", name="reset")).to_contain_text("×")
    expect(page.get_by_role("button", name="reset")).to_be_enabled()


def test_slices_are_played_and_stopped(room: Room) -> None:
    room.open()
    expect(room.page.locator(".rail-words")).to_contain_text("mm")
    before = room.page.locator(".rail-words").inner_text()
    room.page.get_by_role("button", name="Play through the slices").click()
    expect(room.page.locator(".rail-words")).not_to_have_text(before)
    room.page.get_by_role("button", name="Stop playing").click()
    expect(room.page.get_by_role("button", name="Play through the slices")).to_be_visible()


def test_a_poor_match_is_called_poor(room: Room) -> None:
    room.open()
    room.wait_for("Comparators", "By lesion")
    poor = room.page.locator(".card.poor")
    expect(poor.first.locator(".worth-words")).to_contain_text("poor")
    assert poor.count() == room.page.locator(".card .worth-words").filter(has_text="poor").count()


def test_a_link_keeps_the_filters(room: Room, visit: Callable[..., Page], served: str) -> None:
    key = room.open_slice()
    with room.answered("By lesion", by="abnormal", metric="euclidean"):
        room.page.get_by_label("Metric").select_option("euclidean")
    with room.answered("By lesion", by="abnormal", metric="euclidean", level_mm=10):
        room.page.get_by_role("combobox", name="Level").select_option("10")
    with room.answered("By lesion", by="abnormal", filter={"text": "0000"}):
        room.page.get_by_label("Filter matches by patient").fill("0000")
    found = distances(room.found("By lesion"))
    second = Room(visit(served, token=TOKEN))
    second.page.goto(room.page.url)
    expect(second.page.get_by_role("heading", name=key)).to_be_visible()
    expect(second.page.get_by_role("combobox", name="Level")).to_have_value("10")
    expect(second.page.get_by_label("Metric")).to_have_value("euclidean")
    expect(second.page.get_by_label("Filter matches by patient")).to_have_value("0000")
    assert distances(second.found("By lesion")) == found


def test_what_is_sent_is_compressed(served: str) -> None:
    page = httpx.get(served)
    scripts = re.findall(r"assets/[\w.-]+\.js", page.text)
    assert scripts
    for script in scripts:
        answer = httpx.get(served + script, headers={"Accept-Encoding": "gzip"})
        assert answer.headers["Content-Encoding"] == "gzip"
        assert int(answer.headers["Content-Length"]) < len(answer.content) / 2


def test_an_upload_stays_after_a_reload_and_takes_a_missing_file(room: Room, phantoms: Path) -> None:
    folder = sorted(path for path in phantoms.iterdir() if path.is_dir())[0]
    files = {
        match[1]: path
        for path in folder.glob("*.nii.gz")
        if "twin" not in path.name and (match := re.search(r"-(t1n|t1c|t2w|t2f)\.", path.name))
    }
    late = files.pop("t2f")
    files.pop("t1c")  # either would be enough
    room.page.get_by_label("Files of a patient").set_input_files(list(files.values()))
    card = room.page.get_by_role("region", name="Your patient")
    expect(card.get_by_text("Missing: T1Gd, FLAIR")).to_be_visible()
    room.page.reload()
    expect(card.get_by_text("Missing: T1Gd, FLAIR")).to_be_visible()
    card.get_by_label("Add a file for T1Gd, FLAIR").set_input_files(late)
    expect(room.page).to_have_title(re.compile("^your patient"))
    room.wait_for("By both")
    card.get_by_label("Forget this upload").click()
    expect(card).to_have_count(0)


def test_one_channel_hangs_in_four_panes_of_one_size(room: Room) -> None:
    def only_contrast(route: Route) -> None:
        response = route.fetch()
        route.fulfill(response=response, json={**response.json(), "channels": ["t1gd"]})

    room.page.route("**/api/v1/archive", only_contrast)
    room.page.reload()
    room.open()
    room.page.get_by_role("radio", name="2×2").click()
    expect(room.page.get_by_role("figure")).to_have_count(4)
    widths = [room.stage(title)["width"] for title in ("Patient", "Coronal", "Sagittal", "Healthy twin")]
    assert max(widths) - min(widths) < 2
    room.page.get_by_role("radio", name="3", exact=True).click()
