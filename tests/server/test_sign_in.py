"""Who is let in, as whom, and for how long: tokens, sessions, links, roles, proxies; and how guessing is slow."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.datastructures import Headers

from diptych.errors import InputError, UsageError
from diptych.retrieval import Archive
from diptych.server.problems import Problem
from diptych.server.roles import ANY_USER, OPEN, ROLE_OF, role_of
from diptych.server.serve import bind_socket
from diptych.server.settings import ServerSettings
from diptych.server.sign_in import OWNER, TRIES, SignIn
from diptych.server.users import ROLES, Users
from tests.retrieval.running import run
from tests.server.conftest import API, serving

TOKEN = "correct-horse-battery-staple"
NOBODY = Headers({})


def bearer(token: str) -> Headers:
    return Headers({"authorization": f"Bearer {token}"})


@pytest.fixture(scope="module")
def users(archive_path: Path) -> Iterator[dict[str, str]]:
    """Tokens of users with one role each, and of users who have all but that and `administer`."""
    book = Users.of_archive(archive_path)
    made: dict[str, str] = {role: book.add(f"{role}-user", [role], days=1) for role in ROLES}
    for role in ROLES:
        others = {*ROLES} - {role, "administer"}
        made[f"not {role}"] = book.add(f"not-{role}-user", others, days=1)
    yield made
    book.path.unlink()


@pytest.fixture(scope="module")
def known(archive_path: Path, model: Path, users: dict[str, str]) -> Iterator[httpx.Client]:
    """A service with users."""
    with serving(Archive.open(archive_path, model=model), sign_in=True) as client:
        yield client


@pytest.fixture(scope="module")
def operations(known: httpx.Client) -> list[tuple[str, str, str]]:
    """Every route: its method, an address of its kind, and its name."""
    paths = known.get(f"{API}/openapi.json").json()["paths"]
    return [
        (
            method,
            path.replace("{z}", "4").replace("{kind}", "image").replace("{", "").replace("}", ""),
            one["operationId"],
        )
        for path, methods in paths.items()
        for method, one in methods.items()
    ]


def test_every_route_has_a_role(operations: list[tuple[str, str, str]]) -> None:
    assert {name for _, _, name in operations} == {*ROLE_OF, *OPEN, *ANY_USER}


def test_every_route_by_every_role(
    known: httpx.Client, users: dict[str, str], operations: list[tuple[str, str, str]]
) -> None:
    """One role opens a route, all others together do not."""
    for method, address, name in operations:
        needed = role_of(name)
        if needed is not None:
            answers = [
                known.request(method, address, headers=dict(bearer(users[f"{no}{needed}"]))) for no in ("", "not ")
            ]
            refused = [one.status_code == 403 and one.json()["error"]["code"] == "role_needed" for one in answers]
            assert refused == [False, True], (method, address)


def test_no_route_answers_a_stranger(known: httpx.Client, operations: list[tuple[str, str, str]]) -> None:
    answers = {name: known.request(method, address) for method, address, name in operations if name not in OPEN}
    assert {name: one.status_code for name, one in answers.items() if one.status_code != 401} == {}


def test_on_loopback_too_the_service_asks() -> None:
    assert SignIn(ServerSettings()).identify(NOBODY, "127.0.0.1") is None


def test_through_a_unix_socket_comes_its_owner_and_nobody_whom_a_proxy_passed_on(tmp_path: Path) -> None:
    sign_in = SignIn(ServerSettings(socket=tmp_path / "s"))
    assert sign_in.identify(NOBODY, "") is OWNER
    assert sign_in.identify(Headers({"X-Forwarded-User": "root"}), "") is None
    with bind_socket(tmp_path / "s"):
        assert (tmp_path / "s").stat().st_mode & 0o777 == 0o600


def test_a_browser_signs_in_is_known_and_signs_out_for_good(known: httpx.Client, users: dict[str, str]) -> None:
    assert known.post(f"{API}/session", json={"token": users["search"]}).status_code == 204
    cookie = {"Cookie": "; ".join(f"{name}={value}" for name, value in known.cookies.items())}
    known.cookies.clear()
    assert known.get(f"{API}/session", headers=cookie).json() == {"user": "search-user", "roles": ["search"]}
    known.delete(f"{API}/session", headers=cookie)
    assert known.get(f"{API}/session", headers=cookie).status_code == 401


def test_a_revoked_token_ends_its_sessions(tmp_path: Path) -> None:
    users = Users(tmp_path / "users.json")
    sign_in = SignIn(ServerSettings(), users)
    cookie = Headers(
        {"cookie": f"diptych_session={sign_in.open_session(users.add('a', ['read'], days=1), NOBODY, '')[0]}"}
    )
    assert sign_in.identify(cookie, "") is not None
    users.revoke("a")
    assert sign_in.identify(cookie, "") is None


def test_tokens_and_sessions_expire(tmp_path: Path) -> None:
    users, now = Users(tmp_path / "users.json"), [0.0]
    token = users.add("a", ["read"], days=0)
    assert users.identify(token) is None
    sign_in = SignIn(ServerSettings(token=TOKEN, session_seconds=60), clock=lambda: now[0])
    cookie = Headers({"cookie": f"diptych_session={sign_in.open_session(TOKEN, NOBODY, '')[0]}"})
    now[0] = 61
    assert sign_in.identify(cookie, "") is None


def test_no_token_is_kept_in_the_clear(tmp_path: Path) -> None:
    users = Users(tmp_path / "users.json")
    token = users.add("a", ["search"], days=1)
    assert token not in users.path.read_text()
    assert users.path.stat().st_mode & 0o077 == 0
    assert users.identify(token) is not None
    assert users.identify(token[:-1]) is None


@pytest.mark.parametrize(
    "text", ["", "[]", '{"users": 1}', '{"users": [{"name": "a", "roles": ["king"], "tokens": []}]}']
)
def test_a_damaged_list_of_users_lets_nobody_in(tmp_path: Path, text: str) -> None:
    (tmp_path / "users.json").write_text(text)
    with pytest.raises(InputError, match=r"users\.json"):
        Users(tmp_path / "users.json").identify("diptych_00_x")


def test_a_link_works_once_and_the_next_is_offered() -> None:
    sign_in, offered = SignIn(ServerSettings()), []
    sign_in.link_used = lambda: offered.append(1)
    key = sign_in.link_key()
    assert sign_in.open_session(key, NOBODY, "")
    with pytest.raises(Problem, match="used before"):
        sign_in.open_session(key, NOBODY, "")
    assert offered == [1]


def test_a_flood_of_guesses_slows_the_one_who_guesses_and_nobody_else(tmp_path: Path) -> None:
    users, now = Users(tmp_path / "users.json"), [0.0]
    made = users.add("a", ["read"], days=1)
    sign_in = SignIn(ServerSettings(token=TOKEN), users, clock=lambda: now[0])
    for number in range(TRIES):
        assert sign_in.identify(bearer(f"guess {number}"), "10.0.0.1") is None
    with pytest.raises(Problem) as refused:
        sign_in.identify(bearer(TOKEN), "10.0.0.1")
    assert refused.value.status == 429
    assert sign_in.open_session(TOKEN, NOBODY, "10.0.0.2")
    assert sign_in.identify(bearer(made), "10.0.0.1") is not None  # 256 bits: no guess
    now[0] = 61
    assert sign_in.identify(bearer(TOKEN), "10.0.0.1") is not None


def test_only_a_declared_proxy_names_users() -> None:
    sign_in = SignIn(ServerSettings(proxies=("10.0.0.0/24",)))
    named = Headers({"x-forwarded-user": "Anna M\nforged", "x-forwarded-groups": "staff,diptych-read"})
    assert sign_in.identify(named, "10.0.1.9") is None
    who = sign_in.identify(named, "10.0.0.9")
    assert who is not None
    assert (who.roles, who.name.startswith("user-")) == (frozenset({"read"}), True)


def test_an_odd_origin_is_refused_not_fatal(client: httpx.Client) -> None:
    answer = client.post(f"{API}/search", json={}, headers={"Origin": "http://["})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "wrong_origin")


def test_users_from_the_command_line(archive_path: Path, tmp_path: Path) -> None:
    made = run("users", "add", archive_path, "anna", "--role", "search", "--role", "read")
    assert Users.of_archive(archive_path).identify(made.stdout.strip()) is not None
    assert "anna  search, read" in run("users", "list", archive_path).stdout
    assert "there are search" in run("users", "add", archive_path, "x", "--role", "king").stderr
    assert "is no archive" in run("users", "list", tmp_path).stderr
    assert run("users", "revoke", archive_path, "anna").exit_code == 0
    assert Users.of_archive(archive_path).identify(made.stdout.strip()) is None
    assert "there is none" in run("users", "revoke", archive_path, "anna").stderr


def test_names_and_numbers_that_cannot_be(tmp_path: Path) -> None:
    users = Users(tmp_path / "users.json")
    users.add("a", ["search"], days=1)
    for wrong in ("", "../x", "a b", "x" * 65):
        with pytest.raises(UsageError):
            users.add(wrong, ["search"], days=1)
    with pytest.raises(UsageError, match="none of that number"):
        users.revoke("a", "00000000")
    assert json.loads(users.path.read_text())["users"][0]["name"] == "a"


def test_doctor_finds_what_was_forgotten(archive_path: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    shutil.copytree(archive_path, own)
    Users.of_archive(own).add("anna", ["read"], days=1)
    (own / "archive.sqlite").chmod(0o644)
    done = run("doctor", "--security", own)
    assert done.exit_code == 3
    assert "others of this machine may read it" in done.stdout
    assert "expires within a week" in done.stdout
