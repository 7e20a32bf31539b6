"""What real DICOMweb servers get wrong, played by a small one of our own on loopback."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pydicom
import pytest

from diptych.errors import PacsError, TooLargeError
from diptych.intake.dicom_files import FileLimits
from diptych.pacs.remote import Wanted
from diptych.pacs.servers import Server
from diptych.pacs.web import WebRemote
from tests.intake.making_bombs import bombs

Answer = Callable[[BaseHTTPRequestHandler], tuple[int, dict[str, str], bytes]]


class Fake:
    """A server whose answers a test writes, and what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        """Paths, and who asked."""
        self.answer: Answer = lambda request: (200, {}, b"[]")
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                fake.asked.append((self.path, self.headers.get("Authorization", "")))
                status, headers, body = fake.answer(self)
                self.send_response(status)
                given = {"Content-Type": "application/dicom+json", "Content-Length": str(len(body)), **headers}
                for name, value in given.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        Thread(target=self.http.serve_forever, daemon=True).start()


@pytest.fixture
def fakes() -> Iterator[tuple[Fake, Fake]]:
    both = Fake(), Fake()
    yield both
    for one in both:
        one.http.shutdown()
        one.http.server_close()


def remote(fake: Fake, **settings: Any) -> WebRemote:
    made = WebRemote(
        Server("hospital", web=f"{fake.url}/dicom-web", **{"retries": 2, **settings}), sleep=lambda s: None
    )
    return made


def studies(days: list[str]) -> list[dict[str, Any]]:
    return [
        {"0020000D": {"vr": "UI", "Value": [f"1.2.{n}"]}, "00080020": {"vr": "DA", "Value": [day]}}
        for n, day in enumerate(days)
    ]


def as_json(value: Any) -> tuple[int, dict[str, str], bytes]:
    return 200, {}, json.dumps(value).encode()


@pytest.mark.parametrize("habit", ["pages", "ignores offset", "ignores limit"])
def test_every_study_is_listed_once_whatever_a_server_thinks_of_pages(habit: str, fakes: tuple[Fake, Fake]) -> None:
    have = studies([f"2019{month:02d}{day:02d}" for month in range(1, 11) for day in (3, 17, 28)])

    def answer(request: BaseHTTPRequestHandler) -> tuple[int, dict[str, str], bytes]:
        query = {name: values[0] for name, values in parse_qs(urlsplit(request.path).query).items()}
        since, _, until = query.get("StudyDate", "-").partition("-")
        found = [one for one in have if (since or "0") <= one["00080020"]["Value"][0] <= (until or "9")]
        limit = len(found) if habit == "ignores limit" else int(query["limit"])
        offset = int(query.get("offset", 0)) if habit == "pages" else 0
        return as_json(found[offset : offset + limit])

    fakes[0].answer = answer
    found = list(remote(fakes[0], page=7).studies(Wanted()))
    assert sorted(one.uid for one in found) == sorted(one["0020000D"]["Value"][0] for one in have)


def test_a_redirect_elsewhere_is_refused_and_carries_no_secret(fakes: tuple[Fake, Fake], tmp_path: Path) -> None:
    here, elsewhere = fakes
    token = tmp_path / "token"
    token.write_text("swordfish")
    token.chmod(0o600)
    here.answer = lambda request: (302, {"Location": f"{elsewhere.url}/dicom-web/studies"}, b"")
    with pytest.raises(PacsError, match="redirects to another origin") as caught:
        list(remote(here, token_file=token).studies(Wanted()))
    assert here.asked[0][1] == "Bearer swordfish"
    assert elsewhere.asked == []
    assert "swordfish" not in str(caught.value)


def test_a_redirect_within_the_server_is_followed(fakes: tuple[Fake, Fake]) -> None:
    def answer(request: BaseHTTPRequestHandler) -> tuple[int, dict[str, str], bytes]:
        if "/v2/" not in request.path:
            return 307, {"Location": request.path.replace("/studies", "/v2/studies")}, b""
        return as_json(studies(["20190101"]))

    fakes[0].answer = answer
    assert [one.uid for one in remote(fakes[0]).studies(Wanted())] == ["1.2.0"]


def test_a_token_that_ran_out_is_read_again_once(fakes: tuple[Fake, Fake], tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    token.chmod(0o600)

    def answer(request: BaseHTTPRequestHandler) -> tuple[int, dict[str, str], bytes]:
        if request.headers["Authorization"] == "Bearer new":
            return as_json([])
        token.write_text("new")
        return 401, {}, b""

    fakes[0].answer = answer
    assert list(remote(fakes[0], token_file=token).studies(Wanted())) == []
    fakes[0].answer = lambda request: (401, {}, b"")
    with pytest.raises(PacsError, match=r"does not know us \(401\)"):
        list(remote(fakes[0], token_file=token).studies(Wanted()))


@pytest.mark.parametrize(
    ("status", "body", "headers", "asked", "reason"),
    [
        (503, b"", {"Retry-After": "1"}, 3, "answered with status 503"),
        (404, b"", {}, 1, "no such study or service"),
        (200, b"<html>", {}, 3, "cannot be read"),
        (200, b"[", {"Content-Length": "500"}, 3, "cuts answers off"),
    ],
)
def test_failures_are_repeated_where_that_helps_and_then_one_line(
    status: int, body: bytes, headers: dict[str, str], asked: int, reason: str, fakes: tuple[Fake, Fake]
) -> None:
    fakes[0].answer = lambda request: (status, {"Connection": "close", **headers}, body)
    with pytest.raises(PacsError, match=reason) as caught:
        list(remote(fakes[0]).studies(Wanted(patient_id="CANARY")))
    assert len(fakes[0].asked) == asked
    assert "CANARY" not in str(caught.value)


def test_a_cut_body_brings_the_rest_one_by_one(fakes: tuple[Fake, Fake], study: Path) -> None:
    files = {n: path.read_bytes() for n, path in enumerate(sorted((study / "t2").glob("*.dcm")))}
    uids = {str(pydicom.dcmread(path).SOPInstanceUID): n for n, path in enumerate(sorted((study / "t2").glob("*.dcm")))}
    kind = {"Content-Type": 'multipart/related; type="application/dicom"; boundary=x'}

    def body(numbers: list[int]) -> bytes:
        parts = [b"--x\r\nContent-Type: application/dicom\r\n\r\n" + files[n] + b"\r\n" for n in numbers]
        return b"".join(parts) + b"--x--"

    def answer(request: BaseHTTPRequestHandler) -> tuple[int, dict[str, str], bytes]:
        path = urlsplit(request.path).path
        if path.endswith("/instances"):
            return as_json([{"00080018": {"vr": "UI", "Value": [uid]}} for uid in uids])
        if "/instances/" in path:
            return 200, kind, body([uids[path.rpartition("/")[2]]])
        whole = body(list(files))
        return 200, {**kind, "Content-Length": str(len(whole)), "Connection": "close"}, whole[: len(whole) // 2]

    fakes[0].answer = answer
    came: list[str] = []
    asking = remote(fakes[0])
    asking.client.set_chunk_size(2000)
    asking.fetch("1.2", "1.3", lambda uid: False, lambda dataset: came.append(str(dataset.SOPInstanceUID)))
    assert sorted(came) == sorted(uids)
    assert sum("/instances/" in path for path, _ in fakes[0].asked) < len(files)


def test_answers_end(fakes: tuple[Fake, Fake], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten kilobytes that unpack to ten megabytes, where one is the most."""
    monkeypatch.setattr("diptych.pacs.web.LONGEST_JSON", 1 << 20)
    body = gzip.compress(b"[" + b" " * (10 << 20) + b"]")
    fakes[0].answer = lambda request: (200, {"Content-Encoding": "gzip"}, body)
    remote = WebRemote(Server("s", web=fakes[0].url, retries=0))
    with pytest.raises(PacsError, match="sends answers that cannot be read"):
        list(remote.studies(Wanted()))


@pytest.mark.parametrize("kind", ["application/dicom", 'multipart/related; type="application/dicom"; boundary=b'])
def test_an_instance_that_unfolds_without_end_is_refused(
    fakes: tuple[Fake, Fake], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bomb = bombs(4_000_000)["long header"]
    body = (
        bomb if kind == "application/dicom" else b"--b\r\nContent-Type: application/dicom\r\n\r\n" + bomb + b"\r\n--b--"
    )
    monkeypatch.setattr("diptych.pacs.web.INSTANCE", FileLimits(max_file_bytes=1_000_000))
    fakes[0].answer = lambda request: (200, {"Content-Type": kind}, body)
    remote = WebRemote(Server("s", web=fakes[0].url, retries=0))
    with pytest.raises(TooLargeError, match="an instance: unfolds"):
        remote._one("1.2", "1.3", "1.4", lambda dataset: None)
