"""The page never lets a part of the archive pass for the whole."""

from __future__ import annotations

import pytest
from playwright.sync_api import Route, expect

from tests.viewer.room import Room

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
SENTENCE = "shard-01 did not answer: 30 of 60 slices (50%) were not searched (its worker died)"


def test_what_did_not_answer_is_said_in_every_lane(room: Room) -> None:
    def partial(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), "missing": [SENTENCE]})

    room.page.route("**/api/v1/search", partial)
    room.open_slice()
    for lane in ("By both", "By lesion"):
        expect(room.lane(lane).get_by_role("alert")).to_have_text(f"Not the whole archive: {SENTENCE}.")
    room.page.unroute("**/api/v1/search")
