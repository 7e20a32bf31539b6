"""`Remote`: what every server can do, whatever it speaks; `connect` gives one.

    for study in connect(server).studies(Wanted(modality="MR")): ...

`web.py` speaks DICOMweb, `dimse.py` the older DIMSE. What fails is a `PacsError`: one line with the server's name and
the way out, never an address with a patient in it, never a secret. Knows no protocol.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from diptych.errors import MissingExtraError, PacsError
from diptych.pacs.servers import Server

Take = Callable[[Any], None]
"""Called with each instance as it comes, a pydicom data set with its file meta."""


@dataclass(frozen=True)
class Wanted:
    """Which studies to look for; empty means any."""

    modality: str = "MR"
    patient_id: str = ""
    issuer: str = ""
    since: str = ""
    """First day, YYYYMMDD."""
    until: str = ""
    study_uid: str = ""

    @property
    def dates(self) -> str:
        """As a DICOM range."""
        return f"{self.since}-{self.until}" if self.since or self.until else ""


@dataclass(frozen=True)
class StudyEntry:
    """A study as a server lists it. Holds the hospital's own words: for people at the terminal, never for a log."""

    uid: str
    date: str = ""
    description: str = ""
    modalities: tuple[str, ...] = ()
    instances: int | None = None
    patient_id: str = ""


@dataclass(frozen=True)
class SeriesEntry:
    """A series as a server lists it."""

    uid: str
    modality: str
    instances: int | None
    number: int | None = None
    description: str = ""


class Remote(Protocol):
    """A server that can be asked, read from and given to."""

    server: Server

    def echo(self) -> None:
        """Nothing, if the server answers; a `PacsError` otherwise."""

    def studies(self, wanted: Wanted) -> Iterator[StudyEntry]:
        """Studies as the server lists them, each once."""

    def series(self, study_uid: str) -> list[SeriesEntry]:
        """All series of a study."""

    def instances(self, study_uid: str, series_uid: str) -> list[str]:
        """SOPInstanceUIDs of a series; empty where the server does not list them."""

    def fetch(self, study_uid: str, series_uid: str, have: Callable[[str], bool], take: Take) -> None:
        """Every instance of a series, except those that `have` knows; all of them, or a `PacsError`."""

    def headers(self, study_uid: str, series_uid: str) -> list[Any]:
        """Data sets of a series without their pixels."""

    def store(self, datasets: Sequence[Any]) -> None:
        """Give instances to the server; all of them, or a `PacsError`."""


def connect(server: Server) -> Remote:
    """A remote for a configured server; nothing is sent yet."""
    if server.web is not None:
        from diptych.pacs.web import WebRemote

        return WebRemote(server)
    from diptych.pacs.dimse import DimseRemote

    return DimseRemote(server)


def require(name: str) -> Any:
    """Import a package of the extra `pacs`, or say how to install it."""
    for logger in ("pynetdicom", "dicomweb_client", "retrying"):
        logging.getLogger(logger).setLevel(logging.CRITICAL)  # they write addresses and data sets, which name patients
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingExtraError(f"PACS needs the package {name}: pip install 'diptych[intake,pacs]'") from error


def retry_pauses(server: Server) -> list[float]:
    """Seconds to wait before each repetition: half a second, doubled each time, at most half a minute."""
    return [min(30.0, 0.5 * 2**attempt) for attempt in range(server.retries)]


def unreachable(server: Server, reason: str) -> PacsError:
    """The one line for a server that does not answer as it should."""
    return PacsError(f"server {server.name}: {reason}; look at it and at its table in pacs.toml, then try again")
