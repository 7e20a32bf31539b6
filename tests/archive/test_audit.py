"""The audit log: whole or noticed, in order, by several writers; and the same in DICOM's words."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from pathlib import Path
from xml.etree import ElementTree

import pytest

from diptych.archive import audit
from diptych.archive.audit import AuditEvent, AuditLog, holds_head
from diptych.archive.audit_messages import EVENTS, dicom_message, send_events
from tests.retrieval.running import run


@pytest.fixture
def log(tmp_path: Path) -> AuditLog:
    log = AuditLog(tmp_path)
    log.append(*(AuditEvent("view", "anna", {"volumes": [f"P-{n}"]}) for n in range(6)))
    return log


def test_events_follow_one_another(log: AuditLog) -> None:
    AuditLog(log.folder.parent).append(AuditEvent("delete", "bert"))
    log.record("search", "anna")
    log.flush()
    assert log.verify().problems == ()
    assert [event["n"] for event in log.read()] == list(range(1, 9))
    assert log.files()[0].stat().st_mode & 0o077 == 0


def lines(log: AuditLog) -> list[str]:
    return log.files()[0].read_text().splitlines(keepends=True)


@pytest.mark.parametrize("what", ["changed", "missing", "moved", "cut off", "put in", "head"])
def test_what_was_done_to_the_log_is_found(log: AuditLog, what: str) -> None:
    text = lines(log)
    spoilt = {
        "changed": [text[0].replace("anna", "bert"), *text[1:]],
        "missing": [text[0], *text[2:]],
        "moved": [text[1], text[0], *text[2:]],
        "cut off": text[:-2],
        "put in": [*text[:3], text[2], *text[3:]],
        "head": text,
    }[what]
    log.files()[0].write_text("".join(spoilt))
    if what == "head":
        (log.folder / "head").unlink()
    assert log.verify().problems
    done = run("audit", "verify", log.folder.parent)
    assert (done.exit_code, "problems in its audit log" in done.stderr) == (6, True)


def test_a_chain_written_anew_is_found_by_a_head_noted_elsewhere(log: AuditLog) -> None:
    noted = log.verify().head
    assert holds_head(log, noted)
    log.files()[0].unlink()
    again = AuditLog(log.folder.parent)
    again.append(*(AuditEvent("view", "anna") for _ in range(6)))
    assert again.verify().problems == ()
    assert run("audit", "verify", log.folder.parent, "--head", noted).exit_code == 6


def test_a_long_log_goes_on_in_another_file(log: AuditLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "MAX_FILE", 10)
    log.append(AuditEvent("start", "diptych"))
    assert (len(log.files()), log.verify().problems) == (2, ())


@pytest.mark.parametrize("event", EVENTS)
def test_dicom_has_a_word_for_each_event(event: str) -> None:
    values = {"event": event, "who": "a<b", "time": "2026-01-01T00:00:00+00:00", "outcome": "done"}
    message = ElementTree.fromstring(dicom_message({**values, "what": {"volumes": ["P-1"], "client": "10.0.0.1"}}))
    assert message.find("EventIdentification/EventID").get("csd-code") == EVENTS[event][0]  # type: ignore[union-attr]
    assert message.find("ActiveParticipant").get("UserID") == "a<b"  # type: ignore[union-attr]
    assert message.find("ParticipantObjectIdentification").get("ParticipantObjectID") == "P-1"  # type: ignore[union-attr]


def test_events_reach_a_repository_over_tls(log: AuditLog, tmp_path: Path) -> None:
    certificate, key = tmp_path / "c.pem", tmp_path / "k.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "1",
    ]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-out", certificate, "-keyout", key]
    subprocess.run([*command, *map(str, names)], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def take() -> None:
            plain, _ = listener.accept()
            with context.wrap_socket(plain, server_side=True) as secure:
                while data := secure.recv(65536):
                    received.append(data)

        thread = threading.Thread(target=take)
        thread.start()
        assert send_events(log.read(), "localhost", listener.getsockname()[1], authority=certificate) == 6
        thread.join(10)
    size, _, rest = b"".join(received).partition(b" ")
    assert rest[: int(size)].endswith(b"</AuditMessage>")
