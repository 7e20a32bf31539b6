"""Two archives in one service: each at its own address, one door for both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from diptych.errors import UsageError
from diptych.model import FeatureDecomposingNetwork
from diptych.retrieval import Archive
from diptych.server.settings import ServerSettings
from diptych.server.side_by_side import SideBySide, create_apps
from diptych.server.users import Users
from tests.server.conftest import API, listening, make_archive


@pytest.fixture(scope="module")
def archives(
    archive_path: Path, tmp_path_factory: pytest.TempPathFactory, network: FeatureDecomposingNetwork, patients: Path
) -> list[Archive]:
    other = make_archive(tmp_path_factory.mktemp("other") / "B and more", network, patients)
    return [Archive.open(path, model=network) for path in (archive_path, other)]


@pytest.fixture(scope="module")
def client(archives: list[Archive]) -> Iterator[httpx.Client]:
    settings = ServerSettings(sign_in=False, audit=False)
    with listening(create_apps(archives, settings), settings) as client:
        yield client


def test_every_archive_has_its_own_address(client: httpx.Client) -> None:
    found = [client.get(f"{room}{API}/archive").json()["name"] for room in ("", "/archives/A", "/archives/B-and-more")]
    assert found == ["A", "A", "B and more"]


def test_an_archive_names_those_beside_it(client: httpx.Client) -> None:
    beside = client.get(f"{API}/archive").json()["beside"]
    assert [(one["name"], one["disease"], one["path"]) for one in beside] == [
        ("A", "glioma", "/archives/A/"),
        ("B and more", "glioma", "/archives/B-and-more/"),
    ]


def test_pictures_come_from_where_they_were_asked_for(client: httpx.Client) -> None:
    room = "/archives/B-and-more"
    body = {"subject": {"volume": "Case-1"}, "by": "normal", "metric": "euclidean", "top": 1}
    found = client.post(f"{room}{API}/search", json=body).json()
    url = next(value for key, value in found["matches"][0].items() if key.endswith("url"))
    assert url.startswith(f"{room}{API}/")
    assert client.get(url).status_code == 200


def test_the_page_of_an_archive_ends_in_a_slash(client: httpx.Client) -> None:
    assert client.get("/archives/A", follow_redirects=False).headers["location"] == "/archives/A/"


def test_who_is_let_in_once_may_read_both(archives: list[Archive]) -> None:
    settings = ServerSettings(audit=False)
    app = create_apps(archives, settings)
    assert isinstance(app, SideBySide)
    with listening(app, settings) as client:
        assert client.get(f"/archives/A{API}/archive").status_code == 401
        key = app.sign_in.link_key()
        assert client.post(f"{API}/session", json={"token": key}).status_code == 204
        assert client.get(f"/archives/B-and-more{API}/archive").status_code == 200


def test_two_archives_of_one_name_are_refused(archives: list[Archive]) -> None:
    with pytest.raises(UsageError, match="two archives have this name"):
        create_apps([archives[0], archives[0]])


def test_users_of_a_second_archive_are_not_passed_over(
    tmp_path: Path, archives: list[Archive], network: FeatureDecomposingNetwork, patients: Path
) -> None:
    path = make_archive(tmp_path / "C", network, patients)
    Users.of_archive(path).add("anna", ["search"], days=None)
    with pytest.raises(UsageError, match="has users of its own"):
        create_apps([archives[0], Archive.open(path, model=network)])
