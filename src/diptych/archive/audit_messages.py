"""Audit events as DICOM audit messages (PS3.15 A.5), and over syslog with TLS (RFC 5424/5425) to an ATNA repository.

Knows the words of the standard; where events come from is `audit.py`.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from diptych.errors import InputError

EVENTS: dict[str, tuple[str, str, str]] = {
    "search": ("110112", "Query", "E"),
    "view": ("110103", "DICOM Instances Accessed", "R"),
    "export": ("110106", "Export", "R"),
    "send": ("110104", "DICOM Instances Transferred", "R"),
    "upload": ("110107", "Import", "C"),
    "change": ("110103", "DICOM Instances Accessed", "U"),
    "delete": ("110105", "DICOM Study Deleted", "D"),
    "sign in": ("110114", "User Authentication", "E"),
    "sign out": ("110114", "User Authentication", "E"),
    "refused": ("110113", "Security Alert", "E"),
    "start": ("110100", "Application Activity", "E"),
    "stop": ("110100", "Application Activity", "E"),
}
TYPES = {
    "sign in": ("110122", "Login"),
    "sign out": ("110123", "Logout"),
    "start": ("110120", "Application Start"),
    "stop": ("110121", "Application Stop"),
    "refused": ("110127", "Node Authentication"),
}
PRIORITY = 10 * 8 + 5
"""Syslog: facility authpriv, severity notice."""


def dicom_message(event: Mapping[str, Any], *, source: str = "diptych") -> str:
    """One event as an `AuditMessage` element."""
    code, words, action = EVENTS.get(str(event.get("event")), EVENTS["change"])
    outcome = "0" if event.get("outcome") == "done" else "4"
    message = ElementTree.Element("AuditMessage")
    identity = ElementTree.SubElement(
        message,
        "EventIdentification",
        EventActionCode=action,
        EventDateTime=str(event.get("time", "")),
        EventOutcomeIndicator=outcome,
    )
    _code(identity, "EventID", code, words)
    if (kind := TYPES.get(str(event.get("event")))) is not None:
        _code(identity, "EventTypeCode", *kind)
    what = dict(event.get("what") or {})
    person = ElementTree.SubElement(
        message, "ActiveParticipant", UserID=str(event.get("who", "")), UserIsRequestor="true"
    )
    if client := what.get("client"):
        person.set("NetworkAccessPointID", str(client))
        person.set("NetworkAccessPointTypeCode", "2")
    ElementTree.SubElement(
        message, "ActiveParticipant", UserID=source, AlternativeUserID=str(os.getpid()), UserIsRequestor="false"
    )
    ElementTree.SubElement(message, "AuditSourceIdentification", AuditSourceID=source)
    for key in what.get("volumes", ()):
        thing = ElementTree.SubElement(
            message,
            "ParticipantObjectIdentification",
            ParticipantObjectID=str(key),
            ParticipantObjectTypeCode="2",
            ParticipantObjectTypeCodeRole="3",
        )
        _code(thing, "ParticipantObjectIDTypeCode", "110180", "Study Instance UID")
    return ElementTree.tostring(message, encoding="unicode")


def _code(parent: ElementTree.Element, tag: str, code: str, words: str) -> None:
    values = {"csd-code": code, "codeSystemName": "DCM", "originalText": words}
    ElementTree.SubElement(parent, tag, values)


def syslog_frame(event: Mapping[str, Any], *, host: str, source: str = "diptych") -> bytes:
    """One event as RFC 5424 text with RFC 5425's count of octets before it."""
    head = f"<{PRIORITY}>1 {event.get('time')} {host} {source} {os.getpid()} IHE+DICOM - "
    body = head.encode() + b"\xef\xbb\xbf" + dicom_message(event, source=source).encode()
    return str(len(body)).encode() + b" " + body


def send_events(events: Iterable[Mapping[str, Any]], host: str, port: int, *, authority: Path | None = None) -> int:
    """Send events to a repository over TLS; how many were sent. Its certificate is checked."""
    try:
        context = ssl.create_default_context(cafile=None if authority is None else str(authority))
        sent = 0
        with (
            socket.create_connection((host, port), timeout=30) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            for event in events:
                secure.sendall(syslog_frame(event, host=socket.gethostname()))
                sent += 1
        return sent
    except (OSError, ValueError) as error:
        raise InputError(f"{host}:{port}: the events cannot be sent ({error}); check address and certificate") from None
