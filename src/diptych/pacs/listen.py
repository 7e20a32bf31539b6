"""`Listener`: a small C-STORE and C-ECHO provider: what a scanner or PACS sends is de-identified, taken in and indexed.

Titles that may send are listed; nobody else is answered. The sender is told that an instance is kept only when it is on
the disk. What is larger than `image_mb` ends its association while it comes; what would take more disk than `disk_gb`
is refused as out of resources (0xA700), so that the sender keeps it; both are in the ledger. A study to which nothing
was added for a while is whole; what came is kept for some hours, in case more follows. All of it is in the ledger, so a
kill at any point is made good at the next start. Knows pynetdicom and the door.
"""

from __future__ import annotations

import hashlib
import shutil
import ssl
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from threading import Event, Lock
from typing import Any
from weakref import WeakKeyDictionary

from diptych.errors import InputError, UsageError
from diptych.intake.dicom_files import lenient
from diptych.pacs.deidentify import MR_CLASSES
from diptych.pacs.dimse import FAILED, SUCCESS, SYNTAXES, VERIFY, received
from diptych.pacs.incoming import Incoming, Outcome
from diptych.pacs.ledger import StudyRow
from diptych.pacs.remote import require
from diptych.progress import Progress, silent
from diptych.volumes.layout import one_line

LISTENED = "[listen]"
"""Stands for a server in the ledger; no server can be called so."""
SWEEP_SECONDS = 60.0
STALE_SECONDS = 30.0
LONGEST_PDU = 1 << 20
"""Bytes of one protocol data unit; senders are told to keep to 16 KB, and some round up."""
MB, GB = 1_000_000, 1_000_000_000


class Listener:
    """The provider of one archive; `start` and `stop`, with `step` in between."""

    def __init__(
        self,
        incoming: Incoming,
        *,
        report: Callable[[Outcome], None] = lambda outcome: None,
        complain: Callable[[str], None] = lambda line: None,
        progress: Progress = silent,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.incoming = incoming
        self.report = report
        self.complain = complain
        self.progress = progress
        self.now = now
        self._server: Any = None
        self._swept = 0.0
        self._room = _Room((incoming.folder / "incoming", incoming.vault.quarantine), incoming.config.listen.disk_gb)
        self._coming: WeakKeyDictionary[Any, _Coming] = WeakKeyDictionary()
        self._told: set[tuple[str, str]] = set()

    def start(self) -> int:
        """Begin to listen; the port that it is."""
        network, listen = require("pynetdicom"), self.incoming.config.listen
        if not listen.callers:
            raise UsageError(
                f"{one_line(self.incoming.config.path)}: [listen] callers is empty, so nobody may send; "
                "list the titles that may"
            )
        here = network.AE(ae_title=listen.title)
        here.require_called_aet, here.require_calling_aet = True, list(listen.callers)
        here.network_timeout = here.dimse_timeout = STALE_SECONDS
        here.maximum_associations = listen.associations
        here.add_supported_context(VERIFY)
        for uid in MR_CLASSES:
            here.add_supported_context(uid, SYNTAXES)
        handlers = [
            (network.evt.EVT_CONN_OPEN, _bound_units),
            (network.evt.EVT_PDU_RECV, self._count),
            (network.evt.EVT_DIMSE_RECV, lambda event: self._sizes(event).whole()),
            (network.evt.EVT_C_ECHO, self._echo),
            (network.evt.EVT_C_STORE, self._store),
        ]
        try:
            with lenient():
                self._server = here.start_server(
                    (listen.host, listen.port), block=False, evt_handlers=handlers, ssl_context=self._tls()
                )
        except OSError as error:
            raise InputError(
                f"[listen] {one_line(listen.host)}:{listen.port}: cannot be listened on ({error.strerror or error}); "
                "choose another port"
            ) from None
        return int(self._server.socket.getsockname()[1])

    def _tls(self) -> ssl.SSLContext | None:
        listen = self.incoming.config.listen
        if listen.cert_file is None or listen.key_file is None:
            return None
        context = ssl.create_default_context(
            ssl.Purpose.CLIENT_AUTH, cafile=None if listen.ca_file is None else str(listen.ca_file)
        )
        context.load_cert_chain(listen.cert_file, listen.key_file)
        if listen.ca_file is not None:
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def stop(self) -> None:
        """Listen no more; what came is kept."""
        if self._server is not None:
            self._server.shutdown()
            self._server = None

    def run(self, stop: Event) -> None:
        """Take in what has come, until `stop`."""
        while not stop.is_set():
            self.step()
            stop.wait(max(0.05, min(5.0, self.incoming.config.rules.stable_seconds / 2)))

    def _sizes(self, event: Any) -> _Coming:
        return self._coming.setdefault(event.assoc, _Coming())

    def _count(self, event: Any) -> None:
        """End an association whose image grows beyond the limit, before more of it is in memory."""
        sizes, limit = self._sizes(event), self.incoming.config.listen.image_mb
        if sizes.add(len(event.pdu)) > limit * MB and not sizes.refused:
            sizes.refused = True
            self._turn_away(event, f"an image is larger than [listen] image_mb = {limit:g}; raise it, or send less")
            event.assoc.abort()

    def _echo(self, event: Any) -> int:
        self._sizes(event).handled()
        return SUCCESS

    def _store(self, event: Any) -> int:
        try:
            size = event.request.DataSet.getbuffer().nbytes
            if not self._room.take(size):
                limit = self.incoming.config.listen.disk_gb
                self._turn_away(event, f"[listen] disk_gb = {limit:g} is used up; raise it, or lower keep_hours")
                return FAILED
            return received(event, self._keep)
        finally:
            self._sizes(event).handled()

    def _turn_away(self, event: Any, reason: str) -> None:
        """One line for each sender and reason; each time is counted in the ledger."""
        caller = str(event.assoc.requestor.ae_title).strip()
        if (caller, reason) not in self._told:
            self._told.add((caller, reason))
            self.complain(f"{one_line(caller)}: turned away: {reason}")
        try:
            self.incoming.ledger.set_aside(LISTENED, one_line(caller), reason)
        except OSError as error:
            self.complain(str(error))

    def _keep(self, dataset: Any) -> None:
        """One instance is on the disk, and the ledger knows, before the sender hears of it."""
        self.incoming.ledger.arrived(self.incoming.take(dataset, LISTENED), LISTENED)

    def step(self) -> int:
        """Take in studies that are whole; how many came to an end."""
        ended = 0
        for row in self.incoming.ledger.studies("coming", "waiting"):
            if row.server == LISTENED and self._whole(row):
                fingerprint = self._fingerprint(row.study)
                if not self.incoming.ledger.begin(row.study, LISTENED, fingerprint):
                    outcome = Outcome(row.study, "refused", reason="ended the program too often")
                else:
                    outcome = self.incoming.admit(row.study, keep=True, progress=self.progress)
                    if self._fingerprint(row.study) != fingerprint:  # more came meanwhile
                        self.incoming.ledger.arrived(row.study, LISTENED)
                self.report(outcome)
                ended += outcome.state != "waiting"
        if self.now() - self._swept > SWEEP_SECONDS:
            self._swept = self.now()
            self.sweep()
            self._room.look()
        return ended

    def _whole(self, row: StudyRow) -> bool:
        if row.state == "waiting":
            return self.incoming.ledger.may_try(row.study, now=self.now())
        return self.now() - row.changed >= self.incoming.config.rules.stable_seconds

    def _fingerprint(self, study: str) -> str:
        names = sorted(path.stem for path in self.incoming.study_folder(study).glob("*/*.dcm"))
        return hashlib.blake2b("\n".join(names).encode(), digest_size=16).hexdigest()

    def sweep(self) -> int:
        """Let go of images of studies that came to an end long ago; how many."""
        limit = self.now() - 3600 * self.incoming.config.rules.keep_hours
        gone = 0
        for row in self.incoming.ledger.studies("done", "refused"):
            folder = self.incoming.study_folder(row.study)
            if row.server == LISTENED and row.changed < limit and folder.is_dir():
                shutil.rmtree(folder, ignore_errors=True)
                gone += 1
        return gone


class _Coming:
    """Bytes of one association that are in memory: what is coming, and whole messages that nobody has handled yet."""

    def __init__(self) -> None:
        self.refused = False
        self._part = 0
        self._whole: deque[int] = deque()

    def add(self, size: int) -> int:
        """Count a part; how many bytes there are now."""
        self._part += size
        return self._part + sum(self._whole)

    def whole(self) -> None:
        self._whole.append(self._part)
        self._part = 0

    def handled(self) -> None:
        if self._whole:
            self._whole.popleft()


class _Room:
    """Disk that images take below some folders, and whether one more has room; counted anew now and then."""

    def __init__(self, folders: tuple[Path, ...], limit_gb: float) -> None:
        self._folders = folders
        self._limit = limit_gb * GB
        self._lock = Lock()
        self._used: int | None = None

    def take(self, size: int) -> bool:
        with self._lock:
            if self._used is None:
                self._used = self._measure()
            if self._used + size > self._limit:
                return False
            self._used += size
            return True

    def look(self) -> None:
        """Count anew at the next image: some were let go, or sent twice."""
        with self._lock:
            self._used = None

    def _measure(self) -> int:
        return sum(_size(path) for folder in self._folders for path in folder.glob("*/*/*.dcm"))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # let go meanwhile
        return 0


def _bound_units(event: Any) -> None:
    """A unit that calls itself gigabytes long is not read: the connection is closed, as if it had ended there."""
    wire = event.assoc.dul.socket
    read = wire.recv

    def bounded(size: int) -> bytearray:
        if size > LONGEST_PDU:
            raise OSError(f"a unit of {size} bytes")
        return bytearray(read(size))

    wire.recv = bounded
