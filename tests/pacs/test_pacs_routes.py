"""The reading room beside a PACS: a study's address in the viewer, results sent by those who may, all of it audited."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from diptych.archive.audit import AuditLog
from diptych.errors import InputError
from diptych.pacs import Incoming, PacsConfig, Wanted, connect, fetch_study
from diptych.pacs.orthanc import Orthanc
from diptych.phantom.phantom_dicom import Person
from diptych.retrieval import Archive
from diptych.server.pacs_desk import PacsDesk
from diptych.server.users import Users
from tests.pacs.conftest import WEB, door
from tests.pacs.making import write_small_study
from tests.server.conftest import API, serving


@pytest.fixture
def taken(incoming: Incoming, config: PacsConfig) -> str:
    """Key of a study that came from the PACS."""
    remote = connect(config.server("hospital"))
    (entry,) = remote.studies(Wanted(patient_id="CANARY-4711"))
    return fetch_study(remote, entry.uid, incoming).volume_key


@pytest.fixture
def room(taken: str, incoming: Incoming, config: PacsConfig, model: Path) -> Iterator[Callable[[str], httpx.Client]]:
    """A service with users; gives a client for each role."""
    users = Users.of_archive(incoming.archive)
    tokens = {role: users.add(role, [role], days=1) for role in ("search", "read", "send")}
    with serving(Archive.open(incoming.archive, model=model), sign_in=True, audit=True, pacs=config.path) as client:

        def by(role: str) -> httpx.Client:
            client.headers["Authorization"] = f"Bearer {tokens[role]}"
            return client

        yield by


def wait(client: httpx.Client, by: Callable[[str], httpx.Client], job: str) -> str:
    for _ in range(300):
        state = by("search").get(f"{API}/jobs/{job}").json()
        if state["state"] in ("done", "failed"):
            return str(state["error"] or "done")
        time.sleep(0.1)
    return "never"


def test_results_are_sent_by_those_who_may_and_it_is_noted(
    room: Callable[[str], httpx.Client], taken: str, incoming: Incoming
) -> None:
    place = room("read").get(f"{API}/volumes/{taken}/pacs").json()
    assert place["viewer"].startswith("https://viewer.example.org/viewer?StudyInstanceUIDs=1.2.")
    assert (place["known"], place["server"], place["sent"]) == (True, "hospital", [])
    for role in ("search", "read"):
        assert room(role).post(f"{API}/volumes/{taken}/pacs").status_code == 403
    job = room("send").post(f"{API}/volumes/{taken}/pacs")
    assert job.status_code == 202
    assert wait(room("send"), room, job.json()["id"]) == "done"
    assert room("read").get(f"{API}/volumes/{taken}/pacs").json()["sent"] == ["capture", "seg", "sr", "twin"]
    lines = list(AuditLog(incoming.archive).read())
    sent = [line for line in lines if line.get("event") == "send"]
    assert [(line["who"], line["what"]["volumes"]) for line in sent] == [("send", [taken])]


def test_opening_a_study_brings_its_prior(
    orthanc: Orthanc,
    configure: Callable[[str], PacsConfig],
    tmp_path: Path,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for day in ("20230101", "20240101"):
        person = Person(patient_id="PRIOR-1", study_date=day)
        orthanc.put(write_small_study(tmp_path / day, person=person))
    config = configure(WEB.format(orthanc=orthanc).replace("[rules]", "[rules]\npriors = 1"))
    incoming = door(tmp_path / "archive", config, model)
    remote = connect(config.server("hospital"))
    newest = next(one for one in remote.studies(Wanted(patient_id="PRIOR-1")) if one.date == "20240101")
    key = fetch_study(remote, newest.uid, incoming).volume_key
    monkeypatch.setattr("diptych.server.pacs_desk.PacsDesk._incoming", lambda self, archive: incoming)
    with serving(Archive.open(incoming.archive, model=model), pacs=config.path) as client:
        first = client.get(f"{API}/volumes/{key}/pacs").json()["job"]
        assert client.get(f"{API}/volumes/{key}/pacs").json()["job"] == first
        assert wait(client, lambda role: client, first) == "done"
        studies = {row.volume_key for row in incoming.ledger.studies("done")}
        assert len(studies) == 2
        assert len({one.rsplit("-", 1)[0] for one in studies}) == 1
        for _ in range(50):
            listed = client.get(f"{API}/volumes").json()["items"]
            if len(listed) == 2:
                break
            time.sleep(0.1)
        assert {one["patient_key"] for one in listed} == {listed[0]["patient_key"]}


def test_a_service_without_a_pacs_has_no_button(taken: str, incoming: Incoming, model: Path) -> None:
    with serving(Archive.open(incoming.archive, model=model)) as client:
        assert client.get(f"{API}/volumes/{taken}/pacs").json()["known"] is False
        refused = client.post(f"{API}/volumes/{taken}/pacs")
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "no_pacs")
        assert client.get(f"{API}/volumes/nobody/pacs").status_code == 404


def test_a_wrong_file_is_said_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "wrong.toml").write_text("[server]\n", encoding="utf-8")
    with pytest.raises(InputError, match="is not known"):
        PacsDesk(tmp_path, tmp_path / "wrong.toml")
