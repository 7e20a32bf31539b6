"""A patient with two studies: the time line, the earlier study beside the present one, and what has changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from diptych.phantom import PhantomConfig
from diptych.phantom.follow_up import Later, follow_up
from diptych.phantom.phantom_folders import write_phantom
from diptych.phantom.phantom_patient import make_phantom
from tests.server.conftest import serving
from tests.viewer.conftest import VOXEL_MM
from tests.viewer.room import Room
from tests.viewer.test_other_rooms import archive_of, visit

__all__ = ["visit"]
pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture
def studies(tmp_path: Path) -> Path:
    """A phantom, and the same one later, its lesion three times as large."""
    phantom = make_phantom(9, index=2, config=PhantomConfig(voxel_mm=VOXEL_MM))
    for later in (Later(rescan=1), Later(growth=3.0, rescan=2)):
        volume = follow_up(phantom, later)
        folder = tmp_path / "studies" / volume.patient_key
        folder.mkdir(parents=True)
        write_phantom(replace(phantom, volume=volume), folder)
    return tmp_path / "studies"


def test_an_earlier_study_stands_beside_the_present_one_with_what_changed(
    visit: Callable[..., Page], studies: Path, tmp_path: Path
) -> None:
    with serving(archive_of(tmp_path / "archive", studies)) as client:
        room = Room(visit(f"{client.base_url}/"))
        expect(room.page.get_by_text("2 studies")).to_be_visible()
        room.open(1)
        line = room.page.get_by_role("list", name="Studies of this patient").get_by_role("button")
        expect(line).to_have_text(["001", "002"])
        line.first.click()
        changes = room.page.get_by_role("region", name="Over time")
        expect(changes.get_by_text("Changed", exact=True)).to_be_visible()
        expect(changes.get_by_role("list", name="Predicted volumes")).to_contain_text("increased")
        expect(changes.get_by_role("list", name="Predicted lesion before")).to_contain_text("cm²")
        expect(changes.get_by_role("list", name="Predicted lesion now")).to_contain_text("cm²")
        for choice, legend in (
            ("Lesion code", "lesion code changed"),
            ("Anatomy code", "anatomy code changed"),
            ("Subtraction", "than before"),
        ):
            changes.get_by_role("radio", name=choice).click()
            expect(changes.get_by_text(legend)).to_be_visible()
        expect(changes.get_by_alt_text("Brighter (violet) or darker (green) than before")).to_be_visible()
        before = room.page.locator(".rail-words").inner_text()
        room.page.keyboard.press("ArrowUp")
        expect(room.page.locator(".rail-words")).not_to_have_text(before)
        room.page.go_back()
        expect(room.lane("By lesion")).to_be_visible()
