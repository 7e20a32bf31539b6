"""What would mislead a reader, or break a day's work: keys, labels, areas, history, outages, measuring."""

from __future__ import annotations

import re
from io import BytesIO
from zipfile import ZipFile

import pytest
from playwright.sync_api import FilePayload, Route, expect

from tests.viewer.room import Room

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
WORDS = ".rail-words"


def test_after_a_click_arrows_move_slices_and_numbers_choose_channels(room: Room) -> None:
    room.open_slice()
    overlay = room.page.get_by_role("radio", name="Predicted")
    overlay.click()
    before = room.page.locator(WORDS).inner_text()
    room.page.keyboard.press("ArrowUp")
    expect(room.page.locator(WORDS)).not_to_have_text(before)
    expect(overlay).to_be_checked()
    room.page.get_by_label("Metric").focus()
    metric = room.page.get_by_label("Metric").input_value()
    room.page.keyboard.press("ArrowDown")
    room.page.keyboard.press("4")
    expect(room.page.locator(WORDS)).to_have_text(before)
    expect(room.page.get_by_label("Metric")).to_have_value(metric)
    expect(room.page.get_by_role("radio", name="FLAIR")).to_be_checked()


def test_known_and_predicted_are_never_mixed(room: Room) -> None:
    room.open()
    room.wait_for("By both")
    changed = room.pane("What disease changed")
    expect(changed.get_by_role("list", name="Predicted lesion, this slice")).to_contain_text("cm²")
    room.page.get_by_role("radio", name="Known").click()
    expect(changed.get_by_alt_text("Known lesion")).to_be_visible()
    known = changed.get_by_role("list", name="Known lesion, this slice")
    expect(known).to_contain_text("cm²")
    largest = room.patients.first.inner_text()
    total = sum(float(area) for area in re.findall(r"([\d.]+) cm²", known.inner_text()))
    assert "cm² known" in largest
    assert total == pytest.approx(float(re.findall(r"([\d.]+) cm²", largest)[0]), abs=2.5)  # sampled more coarsely
    expect(room.cards("By both").first.locator("img.card-mask")).to_have_attribute("src", re.compile(r"label\.png"))
    expect(room.cards("Comparators").first.locator("img.card-mask")).to_have_count(0)


def test_the_window_is_shown_in_numbers_and_holds_for_all_panes(room: Room) -> None:
    room.open()
    usual = room.page.locator(".window-words").inner_text()
    room.page.get_by_label("Window").select_option("contrast")
    expect(room.page.locator(".window-words")).not_to_have_text(usual)
    for title in ("Healthy twin", "What disease changed"):
        expect(room.pane(title).locator("img.picture").first).to_have_attribute("src", re.compile("low="))


def test_matches_say_side_size_and_level_and_scroll_under_the_wheel(room: Room) -> None:
    room.open_slice()
    room.wait_for("By lesion")
    card = room.cards("By lesion").first
    expect(card.locator(".card-place").last).to_contain_text(re.compile(r"side|lesion"))
    expect(card.locator(".card-place").last).to_contain_text(re.compile(r"level|mm (higher|lower)"))
    box = card.locator(".card-picture").bounding_box()
    assert box is not None
    assert box["height"] >= 160
    card.locator(".card-picture").hover()
    room.page.mouse.wheel(0, -100)
    expect(card.locator(".card-slice")).to_contain_text("slice")


def test_a_level_limits_the_lanes(room: Room) -> None:
    room.open_slice()
    room.wait_for("By lesion")
    with room.answered("By lesion", by="abnormal", level_mm=10):
        room.page.get_by_role("combobox", name="Level").select_option("10")
    expect(room.page).to_have_url(re.compile("lv=10"))
    for card in room.cards("By lesion").all():
        expect(card.locator(".card-place").last).to_contain_text(re.compile(r"same level|\b\d mm|1[0-2] mm"))
    room.page.get_by_role("combobox", name="Level").select_option("any")
    expect(room.page).to_have_url(re.compile("lv=any"))


def test_back_returns_to_the_view_before_and_the_title_names_the_patient(room: Room) -> None:
    first = room.open(0)
    second = room.open(1)
    assert room.page.title().startswith(second)
    room.wait_for("By both")
    room.cards("By both").first.get_by_role("button").click()
    expect(room.page.get_by_role("region", name="Compare")).to_be_visible()
    room.page.go_back()
    expect(room.lane("By both")).to_be_visible()
    room.page.go_back()
    expect(room.page.get_by_role("heading", name=first)).to_be_visible()
    room.page.go_forward()
    expect(room.page.get_by_role("heading", name=second)).to_be_visible()


def test_matches_are_compared_one_after_the_other(room: Room) -> None:
    room.open_slice()
    room.wait_for("By both")
    room.cards("By both").first.get_by_role("button").click()
    panes = room.page.get_by_role("figure")
    found = panes.nth(1).get_attribute("aria-label")
    expect(panes.nth(1).get_by_role("list", name="Predicted lesion, this slice")).to_be_visible()
    room.page.get_by_role("button", name="Agreement").click()
    expect(panes.nth(1).locator("canvas.agreement")).to_be_visible()
    room.page.get_by_role("button", name="Next match").click()
    expect(room.page.get_by_text("2 of 3")).to_be_visible()
    expect(panes.nth(1)).not_to_have_accessible_name(found or "")
    room.page.keyboard.press("<")
    expect(room.page.get_by_text("1 of 3")).to_be_visible()
    expect(room.page.get_by_role("radiogroup", name="Channel")).to_have_count(2)


def test_an_outage_is_said_and_mends_itself(room: Room) -> None:
    room.open()
    room.wait_for("By both")
    room.page.route("**/api/**", lambda route: route.abort())
    room.page.keyboard.press("ArrowUp")
    expect(room.page.get_by_text("The server does not answer. Trying again")).to_be_visible()
    expect(room.page.get_by_role("button", name="Retry now")).to_be_visible()
    room.page.unroute("**/api/**")
    expect(room.page.get_by_text("The server does not answer. Trying again")).to_have_count(0)
    room.wait_for("By both")


def test_three_planes_share_a_crosshair(room: Room) -> None:
    room.open()
    room.page.get_by_role("radio", name="2×2").click()
    for title in ("Coronal", "Sagittal"):
        room.wait_for_volume(title)
    before = room.height_mm()
    room.drag("Coronal", (0.5, 0.3), (0.5, 0.25))
    expect(room.page.locator(WORDS)).not_to_contain_text(f"{before:.0f} mm")
    assert room.height_mm() > before
    expect(room.pane("Patient").locator("svg.crosshair")).to_be_visible()
    for side in "APSI":
        expect(room.pane("Sagittal").get_by_text(side, exact=True)).to_be_visible()
    room.page.get_by_role("radio", name="3", exact=True).click()


def test_lengths_diameters_and_areas_are_measured_and_kept_in_the_link(room: Room) -> None:
    room.open()
    room.page.get_by_role("radio", name="Length").click()
    room.drag("Patient", (0.4, 0.4), (0.5, 0.4))
    measured = room.pane("Patient").locator("svg.measures")
    expect(measured).to_have_attribute("aria-label", re.compile(r"^\d+\.\d mm$"))
    room.page.get_by_role("radio", name="RANO").click()
    room.drag("Patient", (0.4, 0.6), (0.5, 0.6))
    room.drag("Patient", (0.45, 0.55), (0.47, 0.65))
    expect(measured).to_have_attribute("aria-label", re.compile(r"\d × \d+\.\d mm$"))
    room.page.get_by_role("radio", name="Area").click()
    room.drag("Patient", (0.3, 0.3), (0.4, 0.3))  # encloses nothing
    expect(measured).to_have_attribute("aria-label", re.compile(r"\d × \d+\.\d mm$"))
    room.drag_through("Patient", (0.6, 0.4), (0.66, 0.45), (0.6, 0.5))
    expect(room.page).to_have_url(re.compile("ms=l"))
    room.page.get_by_text("3 measured").click()
    expect(room.page.get_by_role("list", name="Measurements")).to_contain_text("RANO")
    room.page.keyboard.press("x")
    room.wait_for("By both")
    room.page.get_by_text("Export", exact=True).click()
    with room.page.expect_download() as download:
        room.page.get_by_role("button", name="Table of matches").click()
    table = download.value.path().read_text(encoding="utf-8-sig")
    assert all(value in table for value in ("length_mm", "long_mm", "area_mm2"))


def test_the_cursor_tells_where_it_is_and_what_lies_there(room: Room) -> None:
    room.open()
    room.wait_for_volume("Patient")
    room.drag("Patient", (0.5, 0.5), (0.52, 0.5))
    expect(room.pane("Patient").locator(".readout")).to_have_text(
        re.compile(r"[RL] \d+ · [AP] \d+ · [SI] \d+ mm · signal \d+")
    )
    expect(room.pane("Patient").locator(".scale-bar")).to_have_text(re.compile("cm|mm"))


def test_the_list_is_one_stop_of_the_tab_key(room: Room) -> None:
    room.open(1)
    assert room.page.locator(".patient[tabindex='0']").count() == 1
    room.page.locator(".patient[tabindex='0']").focus()
    room.page.keyboard.press("Tab")
    assert room.page.evaluate("document.activeElement.closest('.patients')") is None


def test_other_files_are_refused_by_name(room: Room) -> None:
    room.page.get_by_label("Files of a patient").set_input_files(
        {"name": "holiday.jpg", "mimeType": "image/jpeg", "buffer": b"sea"}
    )
    expect(room.page.get_by_role("alert").first).to_contain_text("holiday.jpg: not NIfTI")


def test_a_dicom_folder_goes_as_one_study_without_its_names(room: Room) -> None:
    sent: list[bytes] = []

    def take(route: Route) -> None:
        sent.append(route.request.post_data_buffer or b"")
        route.fulfill(status=422, json={"error": {"message": "seen"}})

    room.page.route("**/api/v1/uploads", take)
    mark = bytes(128) + b"DICM"
    files = [("DOE^JANE-1", mark + b"one"), ("DOE^JANE-2", mark + b"two"), ("read me.txt", b"letters")]
    payload = [FilePayload(name=name, mimeType="", buffer=content) for name, content in files]
    room.page.get_by_label("Files of a patient").set_input_files(payload)
    alerts = room.page.get_by_role("alert")
    expect(alerts.get_by_text("read me.txt: not NIfTI (.nii or .nii.gz), DICOM")).to_be_visible()
    expect(alerts.get_by_text("seen")).to_be_visible()
    assert b"JANE" not in sent[0]
    start = sent[0].index(b"PK\x03\x04")
    with ZipFile(BytesIO(sent[0][start:])) as study:
        assert study.testzip() is None
        assert [study.read(name)[132:] for name in study.namelist()] == [b"one", b"two"]


def test_files_may_be_dropped_anywhere(room: Room) -> None:
    room.open()
    dropped = room.page.evaluate_handle(
        "() => { const all = new DataTransfer(); all.items.add(new File(['sea'], 'holiday.jpg')); return all; }"
    )
    room.page.dispatch_event("main", "dragover", {"dataTransfer": dropped})
    expect(room.page.get_by_text("Drop the patient’s files or folder here")).to_be_visible()
    room.page.dispatch_event("main", "drop", {"dataTransfer": dropped})
    expect(room.page.get_by_role("alert").get_by_text("holiday.jpg: not NIfTI")).to_be_visible()


def test_the_reading_of_an_upload_shows_names_channels_and_progress(room: Room) -> None:
    name = "a-patient-with-a-rather-long-name-of-a-file-t1c.nii.gz"
    upload: dict[str, object] = {"id": "U", "state": "running", "job": "J", "missing": [], "patient_key": ""}
    upload |= {"error": None, "volume": None, "files": [{"name": name, "bytes": 9, "channel": "t1gd"}]}
    room.page.route("**/api/v1/uploads**", lambda route: route.fulfill(json=upload))
    room.page.route("**/api/v1/uploads/U", lambda route: route.fulfill(json=upload))
    job = {"state": "running", "done": 3, "total": 10, "message": "encoding", "error": None}
    room.page.route("**/api/v1/jobs/J", lambda route: route.fulfill(json=job))
    file = FilePayload(name=name, mimeType="", buffer=b"scan")
    room.page.get_by_label("Files of a patient").set_input_files([file])
    card = room.page.get_by_role("region", name="Your patient")
    expect(card.get_by_text(name, exact=True)).to_be_visible()
    expect(card.get_by_label(f"Channel of {name}")).to_have_value("t1gd")
    expect(card.get_by_role("status")).to_contain_text("encoding")
    expect(card.get_by_role("progressbar")).to_have_attribute("value", "3")


def test_a_layout_is_kept_for_the_next_visit_and_n_goes_to_the_next_patient(room: Room) -> None:
    first = room.open()
    room.page.get_by_role("radio", name="1", exact=True).click()
    expect(room.page.get_by_role("figure")).to_have_count(1)
    room.page.keyboard.press("n")
    expect(room.page.get_by_role("heading", name=first)).to_have_count(0)
    room.page.get_by_role("button", name="Previous patient").click()
    expect(room.page.get_by_role("heading", name=first)).to_be_visible()
    room.page.evaluate("history.replaceState(null, '', location.pathname)")
    room.page.goto(room.page.url)
    room.open()
    expect(room.page.get_by_role("radio", name="1", exact=True)).to_be_checked()
    room.page.get_by_role("radio", name="3", exact=True).click()
