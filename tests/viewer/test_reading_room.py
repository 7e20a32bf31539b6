"""A reader's day: every part of the page does what it says, in a real browser on a real server."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, BrowserContext, expect

from tests.viewer.conftest import PATIENTS
from tests.viewer.room import Room

pytestmark = pytest.mark.e2e
LANES = ("By anatomy", "By both", "By lesion", "Comparators")


def distances(found: list[str]) -> list[float]:
    return [float(value) for words in found for value in re.findall(r"distance (\d+\.\d+)", words)]


def test_the_list_shows_patients_and_what_this_is_not(room: Room) -> None:
    expect(room.patients).to_have_count(PATIENTS)
    expect(room.patients.first.locator("img")).to_be_visible()
    expect(room.page.get_by_text("Research use only, not a medical device")).to_have_count(1)
    expect(room.page.get_by_text("Choose a patient from the list")).to_be_visible()


def test_a_link_signs_in_once_and_leaves_no_key_in_the_address(browser: Browser, announced: tuple[str, str]) -> None:
    _, link = announced
    for words in ("Choose a patient from the list", "This archive needs a token"):
        context = browser.new_context()
        page = context.new_page()
        page.goto(link)
        expect(page.get_by_text(words)).to_be_visible()
        assert "key=" not in page.url
        context.close()


def test_the_search_box_narrows_the_list_and_says_when_nobody_fits(room: Room) -> None:
    search = room.page.get_by_label("Search patients")
    search.fill("00002")
    expect(room.patients).to_have_count(1)
    search.fill("nobody")
    expect(room.page.get_by_text("No patient fits")).to_be_visible()


def test_a_patient_opens_as_a_volume_with_its_twin(room: Room) -> None:
    room.open()
    room.wait_for_volume("Patient")
    expect(room.pane("Healthy twin").get_by_alt_text("Healthy twin, generated")).to_be_visible()
    expect(room.pane("What disease changed").get_by_alt_text("Predicted lesion")).to_be_visible()
    painted = np.asarray(Image.open(io.BytesIO(room.pane("Patient").locator(".pane-stage").screenshot())).convert("L"))
    assert painted.mean() > 15  # a brain, not a black pane
    for side in "RLAP":
        expect(room.pane("Patient").get_by_text(side, exact=True)).to_be_visible()


def test_the_wheel_scrolls_and_undo_goes_back(room: Room) -> None:
    room.open()
    expect(room.page.locator(".rail-words")).to_contain_text("mm")
    before = room.height_mm()
    room.wheel("Patient", -100)
    expect(room.page.locator(".rail-words")).not_to_contain_text(f"{before:.0f} mm")
    assert room.height_mm() > before
    room.page.keyboard.press("Control+z")
    expect(room.page.locator(".rail-words")).to_contain_text(f"{before:.0f} mm")


def test_window_and_zoom_change_and_a_double_click_resets_them(room: Room) -> None:
    room.open()
    room.drag("Patient", (0.4, 0.4), (0.6, 0.5), button="right")
    reset = room.page.get_by_role("button", name="reset")
    expect(reset).to_be_enabled()
    expect(room.page.get_by_label("Window")).to_have_value("")  # by hand
    room.page.keyboard.press("+")
    expect(reset).to_contain_text("1.3×")
    room.pane("Patient").locator(".pane-stage").dblclick()
    expect(reset).to_be_disabled()


def test_every_lane_finds_other_patients_nearest_first(room: Room) -> None:
    key = room.open_slice()
    for title in LANES:
        found = room.found(title)
        assert len(found) == PATIENTS - 1
        assert distances(found) == sorted(distances(found))
        assert not any(key in words for words in found)


def test_an_opened_patient_asks_for_patients_and_a_slice_for_slices(room: Room) -> None:
    key = room.open()
    expect(room.page.get_by_role("radio", name="Patient", exact=True)).to_be_checked()
    expect(room.page.get_by_text("Finds patients, compared in three dimensions")).to_be_visible()
    expect(room.page.get_by_role("combobox", name="Level")).to_have_count(0)
    for title in ("By lesion", "By both", "By anatomy"):
        found = room.found(title)
        assert len(found) == PATIENTS - 1
        assert distances(found) == sorted(distances(found))
        assert not any(key in words for words in found)
    card = room.cards("By lesion").first
    expect(card.locator(".worth-words")).to_contain_text(re.compile(r"lesion\s\d+\s%"))
    shown = card.locator(".card-slice").inner_text()
    room.page.keyboard.press("ArrowUp")
    expect(card.locator(".card-slice")).not_to_have_text(shown)  # matches stay at the height that is read
    room.page.get_by_role("radio", name="This slice").click()
    expect(room.page.get_by_text("Finds slices")).to_be_visible()
    expect(room.page.get_by_role("combobox", name="Level")).to_have_value("40")
    expect(room.cards("By both").first.locator(".worth-words")).to_contain_text(re.compile(r"anatomy\s≈\s\d+\s%"))


def test_a_found_patient_is_compared_at_the_same_height(room: Room) -> None:
    room.open()
    room.wait_for("By lesion")
    room.cards("By lesion").first.get_by_role("button").click()
    captions = room.page.get_by_role("figure").locator("figcaption")
    expect(captions.nth(1)).to_contain_text(" mm")
    heights = [float(re.findall(r"(\d+) mm", words)[0]) for words in captions.all_inner_texts()]
    assert heights[0] == pytest.approx(heights[1], abs=4)


def test_pointing_at_a_match_shows_which_cells_agree(room: Room) -> None:
    room.open_slice()
    room.wait_for("By both")
    room.cards("By both").first.hover()
    expect(room.cards("By both").first.get_by_text(re.compile(r"\d+ of 256 cells equal"))).to_be_visible()
    expect(room.pane("Patient").locator("canvas.agreement")).to_be_visible()


def test_the_slider_moves_from_anatomy_to_lesion(room: Room) -> None:
    room.open_slice()
    room.page.get_by_role("radio", name="One list").click()
    slider = room.page.get_by_label("Between anatomy and lesion")
    slider.fill("1")
    expect(room.page.get_by_text("0 : 100")).to_be_visible()
    expect(room.cards("By both").first.locator("button")).to_contain_text(re.compile(r"0\.00 from anatomy"))
    slider.fill("0")
    expect(room.cards("By both").first.locator("button")).to_contain_text(re.compile(r"0\.00 from lesion"))


def test_a_region_changes_the_answer(room: Room) -> None:
    room.open_slice()
    with room.answered("By anatomy", by="normal", metric="euclidean"):  # a sum over cells: fewer of them are nearer
        room.page.get_by_label("Metric").select_option("euclidean")
    whole = distances(room.found("By anatomy"))
    room.page.get_by_role("radio", name="Region").click()
    with room.answered("By anatomy", region=True, by="normal", metric="euclidean"):
        room.drag("Patient", (0.52, 0.42), (0.52, 0.42))  # one cell: a longer drag asks on its way, too
    expect(room.page.get_by_text("1 cells compared")).to_be_visible()
    assert distances(room.found("By anatomy"))[0] < whole[0]
    room.drag("Patient", (0.45, 0.3), (0.6, 0.5))
    expect(room.page.get_by_text(re.compile(r"\d\d+ cells compared"))).to_be_visible()


def test_a_painted_lesion_is_searched_and_undone(room: Room) -> None:
    room.open()
    room.page.get_by_role("radio", name="Sketch").click()
    room.page.get_by_role("radio", name="ED", exact=True).click()
    with room.answered("By lesion", by="abnormal"):
        room.drag("Sketch", (0.4, 0.4), (0.45, 0.55))
    expect(room.pane("Sketch").get_by_role("img", name="Sketch of 1 strokes")).to_be_visible()
    assert len(room.found("By lesion")) > 0
    room.page.keyboard.press("Control+z")
    expect(room.pane("Sketch").get_by_role("img", name="Empty sketch")).to_be_visible()
    room.drag("Healthy twin", (0.4, 0.4), (0.45, 0.55))
    expect(room.pane("Sketch").get_by_role("img", name="Sketch of 1 strokes")).to_be_visible()
    room.page.keyboard.press("Control+z")
    expect(room.lane("By lesion").get_by_text("Nothing is asked yet")).to_be_visible()


def test_two_patients_are_composed(room: Room) -> None:
    room.open(0)
    room.page.get_by_role("radio", name="Compose").click()
    room.page.get_by_role("button", name=re.compile("^Anatomy:")).click()
    room.open(1)
    room.page.get_by_role("button", name=re.compile("^Lesion:")).click()
    expect(room.pane("Composed").get_by_role("img")).to_be_visible()
    expect(room.cards("By both")).to_have_count(PATIENTS - 2)  # neither of the two is found


def test_a_lesion_is_found_mirrored(room: Room) -> None:
    room.open_slice()
    room.wait_for("By lesion")
    room.page.get_by_label("Find the lesion").select_option("mirrored")
    expect(room.cards("By lesion").first.get_by_text("mirrored")).to_be_visible()


def test_compared_patients_scroll_by_the_same_millimetres(room: Room) -> None:
    key = room.open()
    room.wait_for("By both")
    room.cards("By both").first.get_by_role("button").click()
    panes = room.page.get_by_role("figure")
    expect(panes).to_have_count(2)
    patient = f"Patient {key}"
    expect(panes.first).to_have_accessible_name(patient)
    expect(panes.nth(1).get_by_role("img").first).to_be_visible()

    def heights() -> list[float]:
        return [
            float(height) for height in re.findall(r"(\d+) mm", " ".join(panes.locator("figcaption").all_inner_texts()))
        ]

    for place in range(2):
        expect(panes.nth(place).locator("figcaption")).to_contain_text(" mm")
    before = heights()
    room.wheel(patient, -100)
    for place in range(2):  # each pane follows on its own
        expect(panes.nth(place).locator("figcaption")).not_to_contain_text(f"{before[place]:.0f} mm")
    assert heights()[1] - before[1] == pytest.approx(heights()[0] - before[0], abs=1)


def test_comparing_swipes_blinks_and_goes_back(room: Room) -> None:
    room.open()
    room.wait_for("By both")
    room.cards("By both").first.get_by_role("button").click()
    room.page.get_by_role("radio", name="Predicted").click()
    room.page.get_by_role("radio", name="Swipe").click()
    handle = room.page.get_by_role("slider", name="Swipe between the two patients")
    handle.focus()
    handle.press("ArrowRight")
    expect(handle).to_have_attribute("aria-valuenow", "55")
    room.page.get_by_role("radio", name="Blink").click()
    expect(room.page.get_by_role("figure")).to_have_count(1)
    room.page.keyboard.press("Escape")
    expect(room.lane("By both")).to_be_visible()


def test_the_answer_is_exported_as_figure_and_table(room: Room, tmp_path: Path) -> None:
    room.open()
    room.wait_for("By both")
    for name, file in (("Figure of the answer", "figure.png"), ("Table of matches", "matches.csv")):
        room.page.get_by_text("Export", exact=True).click()
        with room.page.expect_download() as download:
            room.page.get_by_role("button", name=name).click()
        download.value.save_as(tmp_path / file)
    with Image.open(tmp_path / "figure.png") as figure:
        assert figure.width > 300
    lines = [
        line for line in (tmp_path / "matches.csv").read_text(encoding="utf-8-sig").splitlines() if line[:1] != "#"
    ]
    rows = list(csv.DictReader(lines))
    assert {row["list"] for row in rows} == {*(f"Patients: {title.lower()}" for title in LANES[:3]), "Comparators"}
    assert sum(row["list"] == "Patients: by both" for row in rows) == PATIENTS - 1


def test_a_wrong_file_is_refused_in_plain_words(room: Room, tmp_path: Path) -> None:
    files = [tmp_path / f"holiday-{channel}.nii.gz" for channel in ("t1n", "t1c", "t2w", "t2f")]
    for file in files:
        file.write_bytes(b"a photograph of the sea")
    room.page.get_by_label("Files of a patient").set_input_files(files)
    expect(room.page.get_by_role("alert").first).to_contain_text("holiday-t1n.nii.gz: not a NIfTI file")


def test_a_dropped_patient_is_read_and_its_channels_can_be_corrected(room: Room, phantoms: Path) -> None:
    folder = sorted(path for path in phantoms.iterdir() if path.is_dir())[0]
    files = [path for path in sorted(folder.glob("*.nii.gz")) if re.search(r"-(t1n|t1c|t2w|t2f)\.", path.name)]
    files = [path for path in files if "twin" not in path.name]
    room.page.get_by_label("Files of a patient").set_input_files(files)
    card = room.page.get_by_role("region", name="Your patient")
    guess = card.get_by_label(f"Channel of {files[0].name}")
    expect(guess).to_have_value({"t1c": "t1gd", "t1n": "t1"}[files[0].name.split("-")[-1].split(".")[0]])
    room.wait_for("By both")
    expect(room.pane("Healthy twin").get_by_alt_text("Healthy twin, generated")).to_be_visible()
    for word in ("-t1c", "-t2f"):  # without T1Gd the model reads on; without FLAIR, too, it cannot
        select = card.get_by_label(f"Channel of {next(file.name for file in files if word in file.name)}")
        with room.page.expect_response(lambda answer: answer.request.method == "PATCH"):
            select.select_option("")
        expect(select).to_have_value("")
    expect(card.get_by_text("Missing: T1Gd")).to_be_visible()
    card.get_by_label("Forget this upload").click()
    expect(card).to_have_count(0)


@pytest.fixture
def second(context: BrowserContext) -> Iterator[Room]:
    page = context.new_page()
    yield Room(page)
    page.close()


def test_a_link_shows_the_same_view_and_names_no_patient(room: Room, second: Room) -> None:
    key = room.open(1)
    expect(room.page.locator(".rail-words")).to_contain_text("mm")
    room.page.keyboard.press("ArrowUp")
    room.page.keyboard.press("4")
    expect(room.page).to_have_url(re.compile("c=flair"))
    assert key not in room.page.url
    assert "Phantom" not in room.page.url
    second.page.goto(room.page.url)
    expect(second.page.get_by_role("heading", name=key)).to_be_visible()
    expect(second.page.locator(".rail-words")).to_have_text(room.page.locator(".rail-words").inner_text())
    expect(second.page.get_by_role("radio", name="FLAIR")).to_be_checked()


def test_the_keyboard_has_a_help_sheet(room: Room) -> None:
    room.open()
    room.page.keyboard.press("?")
    sheet = room.page.get_by_role("dialog", name="Keyboard and mouse")
    expect(sheet.get_by_text("slice with the largest lesion")).to_be_visible()
    room.page.keyboard.press("Escape")
    expect(sheet).to_have_count(0)


def test_texts_stand_out_from_their_ground(room: Room) -> None:
    """WCAG AA: a contrast of at least 4.5 for every text colour on every ground."""
    names = ["--text", "--muted", "--normal", "--abnormal", "--agree", "--warning", "--danger"]
    script = "names => names.map(name => getComputedStyle(document.documentElement).getPropertyValue(name).trim())"
    texts, grounds = room.page.evaluate(script, names), room.page.evaluate(script, ["--ground", "--panel", "--raised"])
    assert min(contrast(text, ground) for text in texts for ground in grounds) >= 4.5


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    """Relative luminance of `#rrggbb`, as WCAG defines it."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))
