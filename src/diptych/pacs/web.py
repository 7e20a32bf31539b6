"""`WebRemote`: a server that speaks DICOMweb, through `dicomweb-client`, with what real servers get wrong.

A redirect to another origin is refused, so credentials and patients go nowhere that the administrator did not name. A
401 in the middle reads the token anew, once. Requests are repeated with growing pauses; a body that was cut off brings
what is missing instance by instance. A server that ignores `offset` is asked day by day. Nothing here is logged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import date, timedelta
from io import BytesIO
from typing import Any, TypeVar
from urllib.parse import urljoin, urlsplit

import requests
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase, HTTPBasicAuth

from diptych.errors import PacsError
from diptych.intake.dicom_files import FileLimits, check_deflated, lenient
from diptych.pacs.remote import SeriesEntry, StudyEntry, Take, Wanted, require, retry_pauses, unreachable
from diptych.pacs.servers import Server

Result = TypeVar("Result")
CHUNK = 1 << 20
STORE_BYTES = 32 << 20
"""Of instances sent in one request, about."""
MOST_PAGES = 5000
LONGEST_JSON, LONGEST_BODY = 256 << 20, 2 << 30
"""Bytes of one answer, unpacked; a longer series comes instance by instance."""
INSTANCE = FileLimits()
"""How much one instance may unfold to."""
TRANSIENT = (408, 425, 429, 500, 502, 503, 504)
FIRST_DAY = date(1980, 1, 1)
STUDY_FIELDS = ("StudyDescription", "ModalitiesInStudy", "NumberOfStudyRelatedInstances")
SERIES_FIELDS = ("SeriesDescription", "NumberOfSeriesRelatedInstances")


class _Bearer(AuthBase):  # type: ignore[misc]
    """The token, read when it is needed; to its own origin only."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.token = server.secret(server.token_file)

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self.token}"
        return request

    def renew(self) -> None:
        self.token = self.server.secret(self.server.token_file)


class _Bounded(HTTPAdapter):  # type: ignore[misc]
    """Answers end: what a server sends is counted as it is unpacked, redirects and failures included."""

    def send(self, request: requests.PreparedRequest, *arguments: Any, **options: Any) -> requests.Response:
        response = super().send(request, *arguments, **options)
        limit = LONGEST_BODY if "multipart" in request.headers.get("Accept", "") else LONGEST_JSON
        stream = response.raw.stream

        def counted(*wanted: Any, **how: Any) -> Iterator[bytes]:
            total = 0
            for chunk in stream(*wanted, **how):
                total += len(chunk)
                if total > limit:
                    raise requests.exceptions.ContentDecodingError(f"an answer of more than {limit} bytes")
                yield chunk

        response.raw.stream = counted
        return response


class _Session(requests.Session):  # type: ignore[misc]
    """A session that stays where the administrator sent it."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self.server = server
        self.origins = {origin(url) for url in (server.web, server.changes) if url}
        self.trust_env = False  # no .netrc, no proxies from the environment: only the file counts
        for scheme in ("http://", "https://"):
            self.mount(scheme, _Bounded())
        self.hooks["response"].append(_check_single)
        self.verify = str(server.ca_file) if server.ca_file else True
        if server.cert_file is not None:
            self.cert = (str(server.cert_file), str(server.key_file))
        self.bearer = None if server.token_file is None else _Bearer(server)
        if self.bearer is not None:
            self.auth = self.bearer
        elif server.user is not None:
            self.auth = HTTPBasicAuth(server.user, server.secret(server.password_file) or "")

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """Where a redirect leads, checked again each time."""
        target = super().get_redirect_target(resp)
        if target is not None and origin(urljoin(resp.url, target)) not in self.origins:
            resp.close()
            raise PacsError(
                f"server {self.server.name}: redirects to another origin, which is not followed; "
                "name the right address in pacs.toml"
            )
        return None if target is None else str(target)

    def renew(self) -> bool:
        """Read the token anew; whether there is one that has changed."""
        if self.bearer is None:
            return False
        before = self.bearer.token
        self.bearer.renew()
        return self.bearer.token != before


class WebRemote:
    """A DICOMweb server."""

    def __init__(self, server: Server, *, sleep: Callable[[float], None] = time.sleep) -> None:
        client = _checking(require("dicomweb_client.web").DICOMwebClient)
        self.server = server
        self.session = _Session(server)
        self.sleep = sleep
        self.client = client(server.web, session=self.session, timeout=server.timeout, chunk_size=CHUNK)
        self.client.set_http_retry_params(retry=False)

    def echo(self) -> None:
        self._again(lambda: self.client.search_for_studies(limit=1))

    def studies(self, wanted: Wanted) -> Iterator[StudyEntry]:
        filters = {
            "ModalitiesInStudy": wanted.modality,
            "PatientID": wanted.patient_id,
            "IssuerOfPatientID": wanted.issuer,
            "StudyDate": wanted.dates,
            "StudyInstanceUID": wanted.study_uid,
        }
        chosen = {name: value for name, value in filters.items() if value}
        seen: set[str] = set()
        for item in self._pages(chosen, wanted):
            entry = _study(item)
            if entry.uid and entry.uid not in seen:
                seen.add(entry.uid)
                yield entry

    def _pages(self, filters: dict[str, str], wanted: Wanted) -> Iterator[dict[str, Any]]:
        """All items, a page at a time; halved by date where the server ignores `offset`."""
        size, seen = self.server.page, set[str]()
        for page in range(MOST_PAGES):
            items = self._again(
                lambda offset=page * size: self.client.search_for_studies(  # type: ignore[misc]
                    limit=size, offset=offset, search_filters=filters, fields=list(STUDY_FIELDS)
                )
            )
            fresh = [item for item in items if _first(item, "0020000D") not in seen]
            seen.update(str(_first(item, "0020000D")) for item in items)
            yield from fresh
            if len(items) != size:  # the last page, or a server that ignores `limit` and gave all
                return
            if not fresh:
                yield from self._halves(filters, wanted)
                return
        raise unreachable(self.server, f"lists more than {MOST_PAGES} pages; narrow the rules")

    def _halves(self, filters: dict[str, str], wanted: Wanted) -> Iterator[dict[str, Any]]:
        """The same studies as two questions, each about half of the days."""
        first = _as_date(wanted.since) or FIRST_DAY
        last = _as_date(wanted.until) or date.today() + timedelta(days=1)
        if first >= last:
            raise unreachable(
                self.server, f"ignores offset and has more than {self.server.page} studies a day; raise page"
            )
        middle = first + (last - first) // 2
        for since, until in ((first, middle), (middle + timedelta(days=1), last)):
            half = replace(wanted, since=since.strftime("%Y%m%d"), until=until.strftime("%Y%m%d"))
            yield from self._pages({**filters, "StudyDate": half.dates}, half)

    def series(self, study_uid: str) -> list[SeriesEntry]:
        items = self._again(lambda: self.client.search_for_series(study_uid, fields=list(SERIES_FIELDS)))
        return [_series(item) for item in items]

    def instances(self, study_uid: str, series_uid: str) -> list[str]:
        found: dict[str, None] = {}
        for page in range(MOST_PAGES):
            items = self._again(
                lambda offset=len(found): self.client.search_for_instances(  # type: ignore[misc]
                    study_uid, series_uid, limit=1000, offset=offset
                )
            )
            fresh = [uid for item in items if (uid := str(_first(item, "00080018") or "")) and uid not in found]
            found.update(dict.fromkeys(fresh))
            if not fresh or len(items) < 1000 or page == MOST_PAGES - 1:
                break
        return list(found)

    def fetch(self, study_uid: str, series_uid: str, have: Callable[[str], bool], take: Take) -> None:
        listed = self.instances(study_uid, series_uid)
        if not listed:
            raise unreachable(self.server, "lists a series without instances")
        missing = {uid for uid in listed if not have(uid)}
        if len(missing) > len(listed) // 2:  # much is missing: the whole series in one body
            self._stream(study_uid, series_uid, missing, take)
        for uid in [uid for uid in listed if uid in missing]:
            self._again(lambda one=uid: self._one(study_uid, series_uid, one, take))  # type: ignore[misc]

    def _stream(self, study_uid: str, series_uid: str, missing: set[str], take: Take) -> None:
        """What of a series comes through in one body; a cut leaves the rest in `missing`."""
        try:
            with lenient():
                for dataset in self.client.iter_series(study_uid, series_uid):
                    uid = str(dataset.get("SOPInstanceUID", ""))
                    if uid in missing and _is_whole(dataset):
                        take(dataset)
                        missing.discard(uid)
        except (requests.RequestException, PacsError, EOFError, ValueError, KeyError, AttributeError, TypeError):
            return  # whatever the reason: one by one says what it is

    def _one(self, study_uid: str, series_uid: str, uid: str, take: Take) -> None:
        with lenient():
            dataset = self.client.retrieve_instance(study_uid, series_uid, uid)
        if str(dataset.get("SOPInstanceUID", "")) != uid or not _is_whole(dataset):
            raise _Cut
        take(dataset)

    def headers(self, study_uid: str, series_uid: str) -> list[Any]:
        dataset = require("pydicom").Dataset
        items = self._again(lambda: self.client.retrieve_series_metadata(study_uid, series_uid))
        with lenient():
            return [dataset.from_json(item, bulk_data_uri_handler=lambda uri: b"") for item in items]

    def store(self, datasets: Sequence[Any]) -> None:
        batch: list[Any] = []
        size = 0
        for dataset in datasets:
            batch.append(dataset)
            size += len(dataset.get("PixelData", b"")) + 4096
            if size > STORE_BYTES:
                self._store(batch)
                batch, size = [], 0
        if batch:
            self._store(batch)

    def _store(self, batch: list[Any]) -> None:
        with lenient():
            answer = self._again(lambda: self.client.store_instances(batch))
        if failed := answer.get("FailedSOPSequence"):
            reason = failed[0].get("FailureReason", "no reason")
            raise PacsError(
                f"server {self.server.name}: refused {len(failed)} of {len(batch)} instances (reason {reason}); "
                "ask its administrator"
            )

    def change_feed(self, since: int, limit: int = 100) -> dict[str, Any]:
        """A page of Orthanc's changes."""
        return dict(self._json("changes", {"since": since, "limit": limit}))

    def last_change(self) -> int:
        """Number of the newest change."""
        return int(self._json("changes", {"last": ""})["Last"])

    def orthanc_study(self, resource: str) -> StudyEntry | None:
        """A study of the feed as any other; None when it is gone."""
        if not resource.replace("-", "").isalnum():
            return None
        try:
            tags = self._json(f"studies/{resource}", {})["MainDicomTags"]
        except _Gone:
            return None
        uid, day, words = (str(tags.get(name, "")) for name in ("StudyInstanceUID", "StudyDate", "StudyDescription"))
        return StudyEntry(uid, day, words)

    def _json(self, path: str, query: dict[str, Any]) -> Any:
        url = f"{(self.server.changes or '').rstrip('/')}/{path}"

        def ask() -> Any:
            answer = self.session.get(url, params=query, timeout=self.server.timeout)
            if answer.status_code == 404:
                raise _Gone
            answer.raise_for_status()
            return answer.json()

        return self._again(ask)

    def _again(self, ask: Callable[[], Result]) -> Result:
        """Ask, and ask again where that may help; what then fails is one line without any address."""
        pauses, renewed = retry_pauses(self.server), False
        while True:
            try:
                return ask()
            except requests.HTTPError as error:
                code = error.response.status_code
                if code == 401 and not renewed and self.session.renew():
                    renewed = True
                    continue
                if code not in TRANSIENT or not pauses:
                    raise unreachable(self.server, _meaning(code)) from None
                self.sleep(max(pauses.pop(0), _asked_to_wait(error.response)))
            except (requests.RequestException, _Cut, EOFError, ValueError) as error:
                if not pauses or isinstance(error, requests.exceptions.SSLError):
                    raise unreachable(self.server, _reason(error)) from None
                self.sleep(pauses.pop(0))


def _checking(client: Any) -> Any:
    """The library's client, which looks at each instance before it is unfolded."""

    class Checking(client):  # type: ignore[misc]
        def _decode_multipart_message(self, *arguments: Any, **options: Any) -> Iterator[bytes]:
            for part in super()._decode_multipart_message(*arguments, **options):
                with lenient():
                    check_deflated(BytesIO(part), "an instance", INSTANCE)
                yield part

    return Checking


def _check_single(response: requests.Response, **_: Any) -> None:
    """The same for an instance that comes without an envelope."""
    kind = response.headers.get("Content-Type", "").split(";")[0].strip().lower()
    if kind == "application/dicom":
        with lenient():
            check_deflated(BytesIO(response.content), "an instance", INSTANCE)


class _Cut(Exception):
    """An instance that came in part, or another one."""


class _Gone(Exception):
    """What was asked for is not there any more."""


def origin(url: str) -> tuple[str, str, int]:
    """Scheme, host and port of an address."""
    parts = urlsplit(url)
    return parts.scheme, (parts.hostname or "").lower(), parts.port or {"http": 80, "https": 443}.get(parts.scheme, 0)


def _meaning(code: int) -> str:
    words = {401: "does not know us (401)", 403: "does not let us (403)", 404: "has no such study or service (404)"}
    return words.get(code, f"answered with status {code}")


def _asked_to_wait(response: requests.Response) -> float:
    text = response.headers.get("Retry-After", "")
    return min(60.0, float(text)) if text.isdigit() else 0.0


def _reason(error: Exception) -> str:
    """What went wrong, without an address: it may hold a patient's number."""
    kinds: tuple[tuple[type[Exception], str], ...] = (
        (requests.exceptions.SSLError, "its certificate, or ours, is not accepted"),
        (requests.Timeout, "does not answer in time"),
        (requests.exceptions.ChunkedEncodingError, "cuts answers off"),
        (requests.ConnectionError, "cannot be reached"),
        (_Cut, "cuts instances off"),
    )
    return next((words for kind, words in kinds if isinstance(error, kind)), "sends answers that cannot be read")


def _is_whole(dataset: Any) -> bool:
    """Whether an instance has as many bytes of pixels as its header says; compressed ones end with their own mark."""
    if "PixelData" not in dataset or "Rows" not in dataset:
        return "Rows" not in dataset
    if dataset.file_meta.TransferSyntaxUID.is_encapsulated:
        return True
    pixels = int(dataset.Rows) * int(dataset.Columns) * max(1, int(dataset.get("NumberOfFrames") or 1))
    return len(dataset.PixelData) >= pixels * int(dataset.get("SamplesPerPixel") or 1) * int(dataset.BitsAllocated) // 8


def _first(item: dict[str, Any], tag: str) -> Any:
    values = (item.get(tag) or {}).get("Value") or [None]
    return values[0]


def _whole_number(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError):
        return None


def _study(item: dict[str, Any]) -> StudyEntry:
    return StudyEntry(
        uid=str(_first(item, "0020000D") or ""),
        date=str(_first(item, "00080020") or ""),
        description=str(_first(item, "00081030") or ""),
        modalities=tuple(map(str, (item.get("00080061") or {}).get("Value") or ())),
        instances=_whole_number(_first(item, "00201208")),
        patient_id=str(_first(item, "00100020") or ""),
    )


def _series(item: dict[str, Any]) -> SeriesEntry:
    return SeriesEntry(
        uid=str(_first(item, "0020000E") or ""),
        modality=str(_first(item, "00080060") or ""),
        instances=_whole_number(_first(item, "00201209")),
        number=_whole_number(_first(item, "00200011")),
        description=str(_first(item, "0008103E") or ""),
    )


def _as_date(text: str) -> date | None:
    try:
        return date(int(text[:4]), int(text[4:6]), int(text[6:8]))
    except ValueError:
        return None
