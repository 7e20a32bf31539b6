"""What axe, the usual checker of accessibility, says of each view: nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.conftest import ROOT
from tests.viewer.room import Room

pytestmark = pytest.mark.e2e
AXE = ROOT / "viewer" / "node_modules" / "axe-core" / "axe.min.js"
CHECK = (
    "async () => (await axe.run()).violations.map(one => `${one.id}: ${one.nodes.map(node => node.target).join(', ')}`)"
)


def compare(room: Room) -> None:
    room.open()
    room.wait_for("By lesion")
    room.cards("By lesion").first.get_by_role("button").click()
    expect(room.page.get_by_role("region", name="Compare")).to_be_visible()


def sketch(room: Room) -> None:
    room.open_slice()
    room.page.get_by_role("radio", name="Sketch").click()
    expect(room.pane("Sketch")).to_be_visible()


def planes(room: Room) -> None:
    room.open()
    room.page.get_by_role("radio", name="2×2").click()
    expect(room.pane("Sagittal")).to_be_visible()


def patients(room: Room) -> None:
    room.open()
    room.wait_for("By lesion", "Comparators")


def slices(room: Room) -> None:
    room.open_slice()
    room.wait_for("By lesion", "Comparators")


def guide(room: Room) -> None:
    room.open()  # keys are listened to once the page stands
    room.page.keyboard.press("?")
    expect(room.page.get_by_role("dialog")).to_be_visible()


@pytest.mark.parametrize("view", [patients, slices, compare, sketch, planes, guide])
def test_axe_finds_nothing(room: Room, view: Callable[[Room], None]) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: run 'npm ci' in viewer/")
    view(room)
    room.page.evaluate("localStorage.clear()")  # layouts are kept for the next visit
    room.page.evaluate(AXE.read_text(encoding="utf-8") + ";0")
    assert room.page.evaluate(CHECK) == []
