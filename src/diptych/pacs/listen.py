"""`Listener`: a small C-STORE and C-ECHO provider: what a scanner or PACS sends is de-identified, taken in and indexed.

Titles that may send are listed; nobody else is answered. The sender is told that an instance is kept only when it is on
the disk. A study to which nothing was added for a while is whole; what came is kept for some hours, in case more
follows. All of it is in the ledger, so a kill at any point is made good at the next start. Knows pynetdicom and the
door.
"""

from __future__ import annotations

import hashlib
import shutil
import ssl
import time
from collections.abc import Callable
from threading import Event
from typing import Any

from diptych.errors import InputError, UsageError
from diptych.intake.dicom_files import lenient
from diptych.pacs.deidentify import MR_CLASSES
from diptych.pacs.dimse import SYNTAXES, VERIFY, received
from diptych.pacs.incoming import Incoming, Outcome
from diptych.pacs.ledger import StudyRow
from diptych.pacs.remote import require
from diptych.progress import Progress, silent
from diptych.volumes.layout import one_line

__all__ = ["LISTENED", "Listener"]

LISTENED = "[listen]"
"""Stands for a server in the ledger; no server can be called so."""
SWEEP_SECONDS = 60.0
STALE_SECONDS = 30.0


class Listener:
    """The provider of one archive; `start` and `stop`, with `step` in between."""

    def __init__(
        self,
        incoming: Incoming,
        *,
        report: Callable[[Outcome], None] = lambda outcome: None,
        progress: Progress = silent,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.incoming = incoming
        self.report = report
        self.progress = progress
        self.now = now
        self._server: Any = None
        self._swept = 0.0

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
        here.add_supported_context(VERIFY)
        for uid in MR_CLASSES:
            here.add_supported_context(uid, SYNTAXES)
        handlers = [(network.evt.EVT_C_STORE, lambda event: received(event, self._keep))]
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
