"""`Room`: what a reader does and sees, in a reader's words. Knows the page's labels and roles, hardly its markup."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from playwright.sync_api import FloatRect, Locator, Page, Response, expect


@dataclass(frozen=True)
class Room:
    """A page of the viewer."""

    page: Page

    @property
    def patients(self) -> Locator:
        return self.page.get_by_role("navigation", name="Patients").locator("button.patient")

    def open(self, number: int = 0) -> str:
        """Open a patient of the list; its key."""
        patient = self.patients.nth(number)
        key = patient.locator("b").inner_text()
        patient.click()
        expect(self.page.get_by_role("heading", name=key)).to_be_visible()
        return key

    def open_slice(self, number: int = 0) -> str:
        """Open a patient and ask about the slice: for slices, instead of patients."""
        key = self.open(number)
        self.page.get_by_role("radio", name="This slice").click()
        expect(self.page.get_by_text("Finds slices")).to_be_visible()
        return key

    def lane(self, title: str) -> Locator:
        return self.page.get_by_role("region", name=title, exact=True)

    def cards(self, title: str) -> Locator:
        return self.lane(title).get_by_role("listitem")

    def wait_for(self, *titles: str) -> None:
        """Wait until lanes have answered."""
        for title in titles:
            expect(self.lane(title)).to_have_attribute("aria-busy", "false")
            expect(self.cards(title).first).to_be_visible()

    @contextmanager
    def answered(self, title: str, *, region: bool = False, **asked: object) -> Iterator[None]:
        """What is done within changes the question; wait until slices that answer it, no older one, are in the lane."""

        def answers(response: Response) -> bool:
            if not response.url.endswith("/search") or response.request.method != "POST":
                return False
            question = response.request.post_data_json or {}
            return (
                all(question.get(name) == value for name, value in asked.items()) and ("region" in question) == region
            )

        with self.page.expect_response(answers) as held:
            yield
        best = held.value.json()["matches"][0]["distance"]
        expect(self.cards(title).first.locator("button")).to_contain_text(f"distance {best:.2f}")

    def found(self, title: str) -> list[str]:
        """Patients in a lane with their distances, as they are read out."""
        self.wait_for(title)
        return [button.text_content() or "" for button in self.lane(title).locator(".card button").all()]

    def pane(self, title: str) -> Locator:
        return self.page.get_by_role("figure", name=title, exact=True)

    def stage(self, title: str) -> FloatRect:
        """Where a pane's picture is."""
        box = self.pane(title).locator(".pane-stage").bounding_box()
        assert box is not None
        return box

    def drag(self, title: str, start: tuple[float, float], end: tuple[float, float], *, button: str = "left") -> None:
        """Drag over a pane; places are fractions of its picture."""
        self.drag_through(title, start, end, button=button)

    def drag_through(self, title: str, *places: tuple[float, float], button: str = "left") -> None:
        """Drag over a pane from place to place."""
        box = self.stage(title)
        which: Literal["left", "right"] = "right" if button == "right" else "left"
        for number, (across, down) in enumerate(places):
            self.page.mouse.move(box["x"] + across * box["width"], box["y"] + down * box["height"], steps=5)
            if not number:
                self.page.mouse.down(button=which)
        self.page.mouse.up(button=which)

    def wheel(self, title: str, turn: float) -> None:
        box = self.stage(title)
        self.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        self.page.mouse.wheel(0, turn)

    def height_mm(self) -> float:
        """Where the slice lies, as the rail says it."""
        words = self.page.locator(".rail-words").inner_text()
        return float(words.rsplit(", ", 1)[1].removesuffix(" mm"))

    def wait_for_volume(self, title: str) -> None:
        """Wait until the volume itself is painted, not only its picture."""
        expect(self.pane(title).locator("canvas.volume-layer")).to_have_class(re.compile("ready"))
