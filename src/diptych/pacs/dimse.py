"""`DimseRemote`: a server that speaks DIMSE (C-ECHO, C-FIND, C-GET or C-MOVE, C-STORE), through `pynetdicom`.

One association for each question, with time limits; requests are repeated with growing pauses. Knows pynetdicom;
nothing about what becomes of an instance.
"""

from __future__ import annotations

import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event
from typing import Any, TypeVar

from diptych.errors import PacsError
from diptych.intake.dicom_files import lenient
from diptych.pacs.deidentify import MR_CLASSES
from diptych.pacs.remote import SeriesEntry, StudyEntry, Take, Wanted, require, retry_pauses, unreachable
from diptych.pacs.servers import Listen, Server

Result = TypeVar("Result")
FIND = "1.2.840.10008.5.1.4.1.2.2.1"
MOVE = "1.2.840.10008.5.1.4.1.2.2.2"
GET = "1.2.840.10008.5.1.4.1.2.2.3"
VERIFY = "1.2.840.10008.1.1"
SYNTAXES = [
    "1.2.840.10008.1.2.1",
    "1.2.840.10008.1.2",
    "1.2.840.10008.1.2.4.90",
    "1.2.840.10008.1.2.4.70",
    "1.2.840.10008.1.2.4.80",
    "1.2.840.10008.1.2.5",
]
PENDING, SUCCESS, FAILED = (0xFF00, 0xFF01), 0x0000, 0xA700
MOVE_WAIT = 5.0
"""Seconds that instances may still be on their way when a C-MOVE is over."""


class DimseRemote:
    """A DIMSE server."""

    def __init__(self, server: Server, *, sleep: Callable[[float], None] = time.sleep) -> None:
        require("pynetdicom")
        self.server = server
        self.sleep = sleep

    def echo(self) -> None:
        self._again(self._echo)

    def _echo(self) -> None:
        with self._association([VERIFY]) as link:
            self._check(link.send_c_echo(), "C-ECHO")

    def studies(self, wanted: Wanted) -> Iterator[StudyEntry]:
        asked = {
            "StudyInstanceUID": wanted.study_uid,
            "StudyDate": wanted.dates,
            "ModalitiesInStudy": wanted.modality,
            "PatientID": wanted.patient_id,
            "IssuerOfPatientID": wanted.issuer,
            "StudyDescription": "",
            "NumberOfStudyRelatedInstances": None,
        }
        seen: set[str] = set()
        for item in self._again(lambda: self._find("STUDY", asked)):
            uid = _text(item, "StudyInstanceUID")
            modalities = tuple(_text(item, "ModalitiesInStudy").replace("[", "").replace("]", "").split("\\"))
            if uid and uid not in seen:
                seen.add(uid)
                yield StudyEntry(
                    uid,
                    _text(item, "StudyDate"),
                    _text(item, "StudyDescription"),
                    modalities,
                    _number(item, "NumberOfStudyRelatedInstances"),
                    _text(item, "PatientID"),
                )

    def series(self, study_uid: str) -> list[SeriesEntry]:
        asked = {
            "StudyInstanceUID": study_uid,
            "SeriesInstanceUID": "",
            "Modality": "",
            "SeriesNumber": None,
            "SeriesDescription": "",
            "NumberOfSeriesRelatedInstances": None,
        }
        return [
            SeriesEntry(
                _text(item, "SeriesInstanceUID"),
                _text(item, "Modality"),
                _number(item, "NumberOfSeriesRelatedInstances"),
                _number(item, "SeriesNumber"),
                _text(item, "SeriesDescription"),
            )
            for item in self._again(lambda: self._find("SERIES", asked))
        ]

    def instances(self, study_uid: str, series_uid: str) -> list[str]:
        asked = {"StudyInstanceUID": study_uid, "SeriesInstanceUID": series_uid, "SOPInstanceUID": ""}
        return [_text(item, "SOPInstanceUID") for item in self._again(lambda: self._find("IMAGE", asked))]

    def fetch(self, study_uid: str, series_uid: str, have: Callable[[str], bool], take: Take) -> None:
        listed = self.instances(study_uid, series_uid)
        if listed and all(have(uid) for uid in listed):
            return
        came: Counter[str] = Counter()
        problems: list[BaseException] = []

        def keep(dataset: Any) -> None:
            try:
                if not have(str(dataset.SOPInstanceUID)):
                    take(dataset)
                came[str(dataset.SOPInstanceUID)] += 1
            except BaseException as error:
                problems.append(error)
                raise

        identifier = self._identifier("SERIES", {"StudyInstanceUID": study_uid, "SeriesInstanceUID": series_uid})

        def bring() -> None:
            self._move(identifier, keep) if self.server.fetch == "move" else self._get(identifier, keep)
            lacking = [uid for uid in listed if uid not in came and not have(uid)]
            if lacking or not came:
                raise unreachable(self.server, f"sent {len(came)} of {len(listed)} instances of a series")

        try:
            self._again(bring)
        except PacsError:
            if problems:
                raise problems[0] from None
            raise

    def headers(self, study_uid: str, series_uid: str) -> list[Any]:
        """DIMSE has no way to ask for headers only; pixels are dropped as they come."""
        found: dict[str, Any] = {}

        def keep(dataset: Any) -> None:
            dataset.pop("PixelData", None)
            found[str(dataset.SOPInstanceUID)] = dataset

        self.fetch(study_uid, series_uid, lambda uid: uid in found, keep)
        return list(found.values())

    def store(self, datasets: Sequence[Any]) -> None:
        left = list(datasets)

        def send() -> None:
            classes = sorted({str(dataset.SOPClassUID) for dataset in left})
            with self._association(classes) as link, lenient():
                while left:
                    status = link.send_c_store(left[0])
                    if not _ok(status):
                        raise unreachable(self.server, f"refused an instance (C-STORE {_code(status)})")
                    left.pop(0)

        self._again(send)

    def _find(self, level: str, asked: dict[str, Any]) -> list[Any]:
        found = []
        with self._association([FIND]) as link, lenient():
            for status, item in link.send_c_find(self._identifier(level, asked), FIND):
                if _code(status) in PENDING:
                    found.append(item)
                else:
                    self._check(status, "C-FIND")
        return found

    def _get(self, identifier: Any, keep: Take) -> None:
        network = require("pynetdicom")
        roles = [network.build_role(uid, scp_role=True) for uid in MR_CLASSES]
        handlers = [(network.evt.EVT_C_STORE, lambda event: received(event, keep))]
        with self._association([GET, *MR_CLASSES], ext_neg=roles, evt_handlers=handlers) as link, lenient():
            for status, _ in link.send_c_get(identifier, GET):
                if _code(status) not in PENDING:
                    self._check(status, "C-GET")

    def _move(self, identifier: Any, keep: Take) -> None:
        """C-MOVE to ourselves: a listener of ours waits for what comes, from this server's title only."""
        network = require("pynetdicom")
        here = network.AE(ae_title=self.server.calling)
        here.require_called_aet, here.require_calling_aet = True, [self.server.title]
        for uid in MR_CLASSES:
            here.add_supported_context(uid, SYNTAXES)
        quiet = Event()

        def handle(event: Any) -> int:
            quiet.clear()
            return received(event, keep)

        handlers = [(network.evt.EVT_C_STORE, handle), (network.evt.EVT_RELEASED, lambda event: quiet.set())]
        try:
            with lenient():
                waiting = here.start_server(
                    (self.server.move_host, self.server.move_port), block=False, evt_handlers=handlers
                )
        except OSError as error:
            raise unreachable(self.server, f"move_port {self.server.move_port} is taken ({error.strerror})") from None
        try:
            with self._association([MOVE]) as link, lenient():
                for status, _ in link.send_c_move(identifier, self.server.calling, MOVE):
                    if _code(status) not in PENDING:
                        self._check(status, "C-MOVE")
                quiet.wait(MOVE_WAIT)
        finally:
            waiting.shutdown()

    def _identifier(self, level: str, values: dict[str, Any]) -> Any:
        made = require("pydicom").Dataset()
        made.QueryRetrieveLevel = level
        with lenient():
            for keyword, value in values.items():
                setattr(made, keyword, value)
        return made

    @contextmanager
    def _association(self, classes: Sequence[str], **options: Any) -> Iterator[Any]:
        network = require("pynetdicom")
        here = network.AE(ae_title=self.server.calling)
        here.acse_timeout = here.dimse_timeout = here.network_timeout = self.server.timeout
        here.connection_timeout = self.server.timeout
        for uid in classes:
            here.add_requested_context(uid, SYNTAXES if uid in MR_CLASSES else SYNTAXES[:2])
        host, port = self.server.address
        security = (tls_for_server(self.server), host) if self.server.tls else None
        link = here.associate(host, port, ae_title=self.server.title, tls_args=security, **options)
        if not link.is_established:
            reason = "refuses our title" if link.is_rejected else "cannot be reached"
            raise unreachable(self.server, reason)
        try:
            yield link
        finally:
            if link.is_established:
                link.release()

    def _check(self, status: Any, what: str) -> None:
        if not _ok(status):
            raise unreachable(self.server, f"answered {what} with {_code(status)}")

    def _again(self, ask: Callable[[], Result]) -> Result:
        pauses = retry_pauses(self.server)
        while True:
            try:
                return ask()
            except PacsError:
                if not pauses:
                    raise
            except (RuntimeError, ValueError) as error:
                if not pauses:
                    raise unreachable(self.server, f"went away ({type(error).__name__})") from None
            self.sleep(pauses.pop(0))


def received(event: Any, keep: Take) -> int:
    """Hand one C-STORE over; the sender is told that it is kept only when it is."""
    try:
        dataset = event.dataset
        dataset.file_meta = event.file_meta
        keep(dataset)
    except Exception:  # the sender keeps what we could not; who called says why
        return FAILED
    return SUCCESS


def tls_for_server(server: Server | Listen) -> ssl.SSLContext:
    """How a DIMSE server is known to us, and we to it."""
    context = ssl.create_default_context(cafile=None if server.ca_file is None else str(server.ca_file))
    if server.cert_file is not None and server.key_file is not None:
        context.load_cert_chain(server.cert_file, server.key_file)
    return context


def _ok(status: Any) -> bool:
    """Success, or success with a remark."""
    code = _status(status)
    return code is not None and (code == SUCCESS or (0xB000 <= code <= 0xBFFF and code != 0xB000))


def _status(status: Any) -> int | None:
    return int(status.Status) if status is not None and "Status" in status else None


def _code(status: Any) -> Any:
    code = _status(status)
    return code if code in PENDING else ("nothing" if code is None else f"0x{code:04X}")


def _text(item: Any, keyword: str) -> str:
    value = item.get(keyword) if item is not None else None
    return "" if value is None else ("\\".join(map(str, value)) if isinstance(value, list) else str(value)).strip()


def _number(item: Any, keyword: str) -> int | None:
    text = _text(item, keyword)
    return int(text) if text.isdigit() else None
