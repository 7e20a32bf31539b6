"""`PacsDesk`: what the reading room knows of a study's PACS: its address in the viewer, results sent, older studies.

There only where the administrator starts the service with `pacs.toml`. The page never names a server or an address: it
names a volume, and the vault knows the way back. Knows jobs, the pacs package and the archive; nothing about HTTP.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from diptych.errors import DiptychError, UsageError
from diptych.progress import Progress
from diptych.retrieval import Archive
from diptych.server.jobs import Job, Jobs
from diptych.server.problems import Problem

if TYPE_CHECKING:
    from diptych.pacs.incoming import Incoming
    from diptych.pacs.send import Desk


@dataclass(frozen=True)
class PacsPlace:
    """Where a volume is in a PACS."""

    known: bool
    server: str | None = None
    viewer: str | None = None
    sent: tuple[str, ...] = ()
    """Kinds of results that were sent."""
    job: Job | None = None
    """The job that looks for older studies, where the rules want them."""


NOWHERE = PacsPlace(known=False)


class PacsDesk:
    """The desk of the service's archive; safe to use from many threads."""

    def __init__(self, archive: Path, config: Path | None) -> None:
        self.archive = archive
        self.config = config
        self._lock = Lock()
        self._sending: dict[str, Job] = {}
        self._priors: dict[str, Job] = {}
        if config is not None:
            from diptych.pacs.servers import read_config

            read_config(config)  # a wrong file is a clear line at the start, not at the first click

    @cached_property
    def _desk(self) -> Desk:
        from diptych.pacs.send import Desk
        from diptych.pacs.servers import read_config

        assert self.config is not None
        return Desk.open(self.archive, read_config(self.config))

    def place(self, jobs: Jobs, archive: Archive, key: str) -> PacsPlace:
        """Where a volume is; the search for its older studies begins with the first question."""
        if self.config is None:
            return NOWHERE
        from diptych.pacs.send import viewer_address

        try:
            row = self._desk.row(key)
            server = self._desk.server(self._desk.vault.original(row.study)).name
            viewer = viewer_address(self._desk, key)
        except DiptychError:  # a volume that no PACS knows, or a vault that was moved away: no button
            return NOWHERE
        sent = tuple(sorted({kind.partition(".")[0] for kind in self._desk.ledger.sent(row.study).values()}))
        return PacsPlace(True, server, viewer, sent, self._look_for_priors(jobs, archive, key, row.study))

    def send(self, jobs: Jobs, archive: Archive, key: str) -> Job:
        """The job that sends a volume's results; one at a time for each."""
        if self.config is None:
            raise Problem(409, "this service knows no PACS; start it with --pacs pacs.toml", code="no_pacs")
        from diptych.pacs.send import send_study

        try:
            self._desk.row(key)
        except UsageError as error:
            raise Problem(404, str(error)) from None

        def work(progress: Progress) -> None:
            send_study(self._desk, key, archive=archive, progress=progress)

        with self._lock:
            job = self._sending.get(key)
            if job is None or job.over:
                job = self._sending[key] = jobs.submit("export", "send results", work)
            return job

    def _look_for_priors(self, jobs: Jobs, archive: Archive, key: str, study: str) -> Job | None:
        """Once for each study that is opened, where the rules want priors."""
        if self._desk.config.rules.priors < 1:
            return None
        with self._lock:
            if key not in self._priors:
                self._priors[key] = jobs.submit(
                    "decompose", "fetch older studies", lambda progress: self._fetch_priors(archive, study, progress)
                )
            return self._priors[key]

    def _fetch_priors(self, archive: Archive, study: str, progress: Progress) -> None:
        from diptych.pacs.fetch import fetch_study, prior_uids
        from diptych.pacs.remote import connect

        desk = self._desk
        original = desk.vault.original(study)
        remote, incoming = connect(desk.server(original)), self._incoming(archive)
        for uid in prior_uids(remote, original.study_uid, incoming, most=desk.config.rules.priors):
            fetch_study(remote, uid, incoming, progress=progress)

    def _incoming(self, archive: Archive) -> Incoming:
        from diptych.pacs.incoming import Incoming

        return Incoming(self.archive, self._desk.config, model=archive.model_folder)
