"""In a browser: Export opens a study in the PACS's viewer and sends its results, for those who may."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from diptych.pacs import Desk, Incoming, PacsConfig, Wanted, connect, fetch_study
from diptych.retrieval import Archive
from diptych.server.users import Users
from tests.server.conftest import API, serving
from tests.viewer.conftest import CHROMIUM, FLAGS, PAGE


def open_menu(page: Page, address: str, key: str) -> None:
    page.goto(address)
    page.get_by_role("navigation", name="Patients").locator("button.patient").filter(has_text=key).click()
    page.get_by_text("Export", exact=True).click()


@pytest.mark.e2e
@pytest.mark.timeout(180)
def test_results_are_sent_with_one_button_by_those_who_may(incoming: Incoming, config: PacsConfig, model: Path) -> None:
    if CHROMIUM is None or not PAGE.is_file():
        pytest.skip("needs Chromium and the built page: 'make page'")
    remote = connect(config.server("hospital"))
    (entry,) = remote.studies(Wanted(patient_id="CANARY-4711"))
    key = fetch_study(remote, entry.uid, incoming).volume_key
    users = Users.of_archive(incoming.archive)
    tokens = {role: users.add(role, ["search", "read", role], days=1) for role in ("read", "send")}
    ledger = Desk.open(incoming.archive, config).ledger
    study = incoming.names.study(entry.uid)
    with (
        serving(Archive.open(incoming.archive, model=model), sign_in=True, pacs=config.path) as client,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        for role, token in tokens.items():
            context = browser.new_context(viewport={"width": 1280, "height": 800})
            context.set_default_timeout(60_000)
            assert context.request.post(f"{client.base_url}{API}/session", data={"token": token}).ok
            page = context.new_page()
            open_menu(page, str(client.base_url), key)
            link = page.get_by_role("link", name="Open in the PACS viewer")
            expect(link).to_have_attribute("href", f"https://viewer.example.org/viewer?StudyInstanceUIDs={entry.uid}")
            with page.expect_response(lambda one: one.request.method == "POST" and one.url.endswith("/pacs")) as asked:
                page.get_by_role("button", name="Send results to the PACS").click()
            if role == "read":
                assert asked.value.status == 403
                expect(page.get_by_role("alert").first).to_contain_text(re.compile("send", re.I))
                assert not ledger.sent(study)
            else:
                expect(page.get_by_text("Results are in the PACS (hospital).")).to_be_visible(timeout=60_000)
                assert {kind.partition(".")[0] for kind in ledger.sent(study).values()} == {
                    "capture",
                    "seg",
                    "sr",
                    "twin",
                }
            context.close()
        browser.close()
