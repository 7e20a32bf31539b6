"""What is doubtful looks doubtful, and nothing on the page says more than is known."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.viewer.room import Room

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
VOLUME = re.compile(r"/api/v1/volumes/[^/?]+$")
WARNING = "This slice is unlike what the model has learnt from, so believe the answers less. " * 3
WHOLE = """() => [...document.querySelectorAll(".safety")].filter(one => one.checkVisibility()).filter(one => {
    const box = one.getBoundingClientRect();
    return one.scrollWidth > one.clientWidth + 1 && one.clientWidth > 0 || box.left < 0 || box.right > innerWidth;
}).map(one => one.textContent)"""
"""Safety sentences that are cut off."""


def change(page: Page, url: str | re.Pattern[str], how: Callable[[dict[str, Any]], object]) -> None:
    """Let answers of the server say something else."""

    def answer(route: Route) -> None:
        if route.request.method not in ("GET", "POST"):
            route.fallback()
            return
        response = route.fetch()
        content = response.json()
        how(content)
        route.fulfill(response=response, json=content)

    page.route(url, answer)


def colours(list_: Locator) -> set[str]:
    return set(list_.locator("i").evaluate_all("all => all.map(one => getComputedStyle(one).backgroundColor)"))


def test_a_doubtful_comparator_says_so_and_has_no_lesion_painted_on_it(room: Room) -> None:
    change(room.page, "**/api/v1/comparators", lambda answer: answer["matches"][0].update(doubtful_mm2=250.0))
    room.open()
    room.page.get_by_role("radio", name="Predicted").click()
    expect(room.cards("Comparators").first).to_contain_text("doubtful: the model sees 2.5 cm² of lesion here")
    expect(room.cards("By both").first.locator("img.card-mask")).to_be_visible()
    expect(room.lane("Comparators").locator("img.card-mask")).to_have_count(0)


def test_brighter_and_darker_have_colours_of_no_kind_of_lesion(room: Room) -> None:
    room.open()
    pane = room.pane("What disease changed")
    kinds = pane.get_by_role("list", name="Predicted lesion, this slice")
    expect(kinds).to_contain_text("cm²")
    differences = colours(pane.get_by_role("list", name="Brighter or darker than the twin"))
    assert len(differences) == 2
    assert differences.isdisjoint(colours(kinds))


def test_safety_sentences_are_whole_at_every_width(room: Room) -> None:
    change(room.page, "**/api/v1/subjects/view*", lambda view: view["trust"].update(warnings=[WARNING]))
    room.open()
    expect(room.page.get_by_text(WARNING.strip())).to_be_visible()
    expect(room.pane("Healthy twin").get_by_text("generated, not a scan")).to_be_visible()
    for width, height in ((1920, 1080), (1280, 800), (900, 700)):
        room.page.set_viewport_size({"width": width, "height": height})
        assert room.page.evaluate(WHOLE) == []


def test_an_archive_with_nothing_alike_says_so(room: Room) -> None:
    def unlike(answer: dict[str, Any]) -> None:
        for match in answer["matches"]:
            match["panels"] = dict.fromkeys(match["panels"], 0.95)

    change(room.page, "**/api/v1/similar-patients", unlike)
    room.open()
    expect(room.lane("By lesion").get_by_text("Nothing like it in this archive: the best match")).to_be_visible()
    expect(room.lane("By lesion").locator(".card.poor")).to_have_count(room.cards("By lesion").count())


def test_matches_that_nothing_tells_apart_are_not_ranked_in_silence(room: Room) -> None:
    change(room.page, "**/api/v1/search", lambda answer: [match.update(distance=0.0) for match in answer["matches"]])
    room.open_slice()
    expect(room.lane("By lesion").get_by_text("equally near: their order means nothing")).to_be_visible()


def test_a_patient_without_labels_is_not_taken_for_one_without_lesion(room: Room) -> None:
    change(room.page, VOLUME, lambda volume: volume.update(label_urls={}))
    room.open()
    room.page.get_by_role("radio", name="Known").click()
    expect(room.pane("Patient")).to_contain_text("no known labels")
    expect(room.pane("Patient").get_by_alt_text("known lesion")).to_have_count(0)


def test_an_archive_of_codes_shows_what_they_decode_to_and_says_so(room: Room) -> None:
    change(room.page, VOLUME, lambda volume: volume.update(has_pixels=False, channel_urls={}, label_urls={}))
    room.open()
    expect(room.pane("Patient").get_by_text("decoded from its code")).to_be_visible()
    expect(room.pane("Patient").locator("img.picture").first).to_have_attribute("src", re.compile("reconstruction"))


def test_what_a_search_said_is_shown_for_the_slices_it_compared_alone(room: Room) -> None:
    room.open_slice()
    room.wait_for("By both")
    room.cards("By both").first.get_by_role("button").click()
    match = room.page.get_by_role("figure").nth(1)
    room.page.get_by_role("button", name="Agreement").click()
    expect(match.locator("canvas.agreement")).to_be_visible()
    room.page.keyboard.press("ArrowUp")
    expect(match.locator("canvas.agreement")).to_have_count(0)
    expect(match).to_contain_text("found at slice")
    room.page.keyboard.press("ArrowDown")
    expect(match.locator("canvas.agreement")).to_be_visible()
    expect(match).to_contain_text(re.compile(r"W \d+ L \d+"))


def test_whole_patients_have_no_map_of_cells_and_their_swipe_is_not_the_twins(room: Room) -> None:
    room.open()
    room.wait_for("By both")
    room.cards("By both").first.get_by_role("button").click()
    expect(room.page.get_by_role("button", name="Agreement")).to_be_disabled()
    room.page.keyboard.press("v")
    handle = room.page.get_by_role("slider", name="Swipe between the two patients")
    handle.focus()
    room.page.keyboard.press("Tab")
    room.page.keyboard.press("Shift+Tab")
    room.page.keyboard.press("ArrowRight")
    expect(handle).to_have_attribute("aria-valuenow", "55")
    expect(room.page.get_by_role("list", name="Predicted lesion, this slice")).to_have_count(2)
    room.page.keyboard.press("Escape")
    twin = room.page.get_by_role("slider", name="Swipe between original and healthy twin")
    expect(twin).to_have_attribute("aria-valuenow", "0")


def test_the_first_screen_shows_panes_and_readable_matches(room: Room) -> None:
    room.open()
    room.wait_for("By lesion")
    picture = room.cards("By lesion").first.locator(".card-picture")
    for shown in (room.pane("What disease changed"), room.page.locator(".rail"), picture):
        box = shown.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= 1280
        assert box["y"] + box["height"] <= 800
    expect(picture.locator("img").first).to_have_attribute("src", re.compile("channel=t1gd"))
    room.page.keyboard.press("4")
    expect(picture.locator("img").first).to_have_attribute("src", re.compile("channel=flair"))
    toggle = room.lane("By lesion").get_by_role("button", name="By lesion")
    toggle.click()
    expect(room.cards("By lesion")).to_have_count(0)
    toggle.click()
    expect(room.cards("By lesion").first).to_be_visible()


def test_controls_say_what_they_compare_and_on_which_lanes_they_act(room: Room) -> None:
    room.open_slice()
    metrics = room.page.get_by_label("Metric").locator("option").all_inner_texts()
    assert metrics[0] == "best for each list"
    assert all(": " in metric or "being prepared" in metric for metric in metrics[1:])
    expect(room.page.get_by_text("for “By both”")).to_be_visible()
    expect(room.page.get_by_title("acts on “By lesion” only")).to_be_visible()
    room.wait_for("By both")
    card = room.cards("By both").first.get_by_role("button")
    expect(card).to_have_attribute("title", re.compile(r"\(90 %: \d+\s% to \d+\s%\)[\s\S]*Distance \d"))


def test_escape_closes_a_menu_before_it_leaves_a_view(room: Room) -> None:
    room.open()
    room.page.get_by_text("Info", exact=True).click()
    expect(room.page.get_by_text("T1Gd voxels")).to_be_visible()
    facts = room.page.locator(".facts-list").bounding_box()
    assert facts is not None
    assert facts["x"] + facts["width"] <= 1280
    room.page.locator(".rail-words").click()
    expect(room.page.get_by_text("T1Gd voxels")).to_have_count(0)
    room.wait_for("By both")
    room.cards("By both").first.get_by_role("button").click()
    figure = room.page.get_by_role("button", name="Figure of the answer")
    room.page.get_by_text("Export", exact=True).click()
    expect(figure).to_be_visible()
    room.page.keyboard.press("Escape")
    expect(figure).to_have_count(0)
    expect(room.page.get_by_role("region", name="Compare")).to_be_visible()
    room.page.keyboard.press("Escape")
    expect(room.page.get_by_role("region", name="Compare")).to_have_count(0)
