"""Who may come in, and what browsers are told: hosts, origins, tokens, headers, and one shape for every refusal."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from diptych.retrieval import Archive
from tests.server.conftest import API, serving

TOKEN = "correct-horse-battery-staple"


@pytest.fixture(scope="module")
def guarded(archive_path: Path, model: Path) -> Iterator[httpx.Client]:
    with serving(Archive.open(archive_path, model=model), token=TOKEN) as client:
        yield client


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "", "[::1", "localhost.evil.example"])
def test_a_rebound_name_is_refused(client: httpx.Client, host: str) -> None:
    answer = client.get(f"{API}/health", headers={"Host": host})
    assert answer.status_code in (400, 403)


@pytest.mark.parametrize("host", ["localhost:8765", "127.0.0.1", "[::1]:8765"])
def test_this_machine_has_several_names(client: httpx.Client, host: str) -> None:
    assert client.get(f"{API}/health", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers", [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}]
)
def test_other_pages_change_nothing(client: httpx.Client, headers: dict[str, str]) -> None:
    answer = client.post(f"{API}/uploads", files=[("files", ("x.nii", b"x"))], headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "wrong_origin")


def test_our_own_page_may(client: httpx.Client) -> None:
    own = f"http://{client.base_url.host}:{client.base_url.port}"
    answer = client.post(f"{API}/search", json={"subject": {"volume": "Case-1", "z": 4}}, headers={"Origin": own})
    assert answer.status_code == 200


def test_no_foreign_origin_in_any_header_or_page(client: httpx.Client) -> None:
    for path in ("/", f"{API}/docs", f"{API}/health", "/nothing"):
        answer = client.get(path)
        policy = answer.headers["content-security-policy"]
        assert "http" not in policy
        assert "default-src" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert 'src="http' not in answer.text
    assert client.get(f"{API}/archive").headers["cache-control"] == "no-store"


def test_the_token_opens(guarded: httpx.Client) -> None:
    right, wrong = {"Authorization": f"Bearer {TOKEN}"}, {"Authorization": "Bearer wrong"}
    assert guarded.get(f"{API}/archive", headers=right).status_code == 200
    assert guarded.get(f"{API}/archive", headers=wrong).status_code in (401, 429)
    assert guarded.get(f"{API}/health").json()["token_needed"] is True


def test_a_browser_gets_a_cookie_that_does_not_tell_the_token(guarded: httpx.Client) -> None:
    assert guarded.post(f"{API}/session", json={"token": "wrong"}).status_code == 401
    answer = guarded.post(f"{API}/session", json={"token": TOKEN})
    cookie = answer.headers["set-cookie"]
    assert answer.status_code == 204
    assert TOKEN not in cookie
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert guarded.get(f"{API}/archive").status_code == 200
    guarded.delete(f"{API}/session")
    guarded.cookies.clear()
    assert guarded.get(f"{API}/archive").status_code in (401, 429)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("PUT", "search", 405), ("GET", "search", 405), ("DELETE", "archive", 405), ("GET", "none/at/all", 404)],
)
def test_the_routers_own_refusals_have_the_one_shape(client: httpx.Client, method: str, path: str, status: int) -> None:
    answer = client.request(method, f"{API}/{path}")
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"code", "message"}


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"subject": 1}', b"[" * 5000])
def test_a_body_that_is_no_question(client: httpx.Client, body: bytes) -> None:
    answer = client.post(f"{API}/search", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422)
    assert answer.json()["error"]["message"]


def test_an_unexpected_failure_has_the_one_shape(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("secret path /home/somebody")

    monkeypatch.setattr("diptych.server.routes.archive_routes.archive_resource", fail)
    answer = client.get(f"{API}/archive")
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "internal"
    assert "secret" not in answer.text
    assert "content-security-policy" in answer.headers


def test_the_log_has_keys_and_nothing_else(client: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "diptych.server"):
        client.get(f"{API}/volumes", params={"text": "Jane Doe"})
        client.post(f"{API}/uploads", files=[("files", ("Jane Doe.nii", b"x"))])
        client.get(f"{API}/volumes/Case-1%0aforged")
    assert "GET /api/v1/volumes 200" in caplog.text
    assert "Jane" not in caplog.text
    assert "\nforged" not in caplog.text


def test_the_viewer_is_served_or_missed_kindly(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("diptych.server.web_app.STATIC", tmp_path / "none")
    assert "has not been built" in client.get("/").text
    assert client.get("/favicon.ico").status_code == 404
    assert client.get("/assets/..%2f..%2fapp.py").status_code == 404


def test_the_api_page_names_every_route(client: httpx.Client) -> None:
    page, openapi = client.get(f"{API}/docs").text, client.get(f"{API}/openapi.json").json()
    assert [path for path in openapi["paths"] if path not in page] == []
    assert "not a medical device" in page
    assert "<script" not in page


def test_operations_have_names_tags_and_words(client: httpx.Client) -> None:
    operations = [one for path in client.get(f"{API}/openapi.json").json()["paths"].values() for one in path.values()]
    assert len({one["operationId"] for one in operations}) == len(operations)
    assert all(one["tags"] and one["description"] for one in operations)
