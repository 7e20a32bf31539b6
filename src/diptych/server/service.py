"""`Service`: everything a request may need, made once. Routes ask for it as `TheService`.

Knows how the parts fit together; nothing about HTTP but where FastAPI keeps things.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Annotated, TypeVar

import psutil
from anyio import CapacityLimiter, to_thread
from fastapi import Depends, Request

from diptych.processes import cores
from diptych.retrieval import Archive
from diptych.retrieval.sketch import SKETCH_FILE, Sketcher
from diptych.server.cache import Cache
from diptych.server.cases import Case, Cases
from diptych.server.exports import Exports
from diptych.server.jobs import Job, Jobs
from diptych.server.live_archive import Library
from diptych.server.prefetch import LookAhead
from diptych.server.problems import Problem
from diptych.server.settings import ServerSettings
from diptych.server.sign_in import SignIn
from diptych.server.uploads import Upload, Uploads
from diptych.server.users import Users

Result = TypeVar("Result")
FOLDER = "diptych-server-"
RECEIVING = 4
"""Uploads that may come in at a time: each may be large."""


class Service:
    """The archive, what was read of it, jobs and uploads."""

    def __init__(self, archive: Archive, settings: ServerSettings) -> None:
        self.settings = settings
        sweep()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{FOLDER}{os.getpid()}-"))
        self.library = Library(archive)
        self.cases = Cases(self.library, settings, self.folder)
        self.ahead = LookAhead(self.cases)
        self.jobs = Jobs(waiting=settings.max_waiting)
        self.uploads = Uploads(self.folder / "uploads", settings, forget=self.forget_upload)
        self.exports = Exports()
        self.pictures: Cache[bytes] = Cache(settings.picture_bytes, len)
        self.sign_in = SignIn(settings, Users.of_archive(archive.store.path))
        self.receiving = asyncio.Semaphore(RECEIVING)
        self._search_threads = CapacityLimiter(cores())
        self._labels: tuple[Archive | None, Job | None] = (None, None)
        self._sketcher: tuple[int | None, Sketcher | None] = (None, None)
        self._lock = Lock()

    def start(self) -> None:
        """Begin what can be done before anybody asks."""
        self.jobs.submit("prepare", "warm up", self.library.warm_up)
        if len(self.library.current.catalogue.index) <= self.settings.overlap_slices:
            self.label_job(self.library.current)

    def close(self) -> None:
        """Stop jobs, and leave nothing of any patient behind."""
        self.ahead.close()
        self.jobs.cancel_all()
        shutil.rmtree(self.folder, ignore_errors=True)

    async def in_turn(self, search: Callable[[], Result]) -> Result:
        """Run a search in a thread kept for searches: first come, first served, whatever pictures wait for decoders."""
        return await to_thread.run_sync(search, limiter=self._search_threads)

    def case(self, kind: str, key: str) -> Case:
        """A case by where it is served: volumes or uploads."""
        if kind == "volumes":
            return self.cases.volume(key)
        case = self.uploads.get(key).case
        if case is None:
            raise Problem(409, "the upload is not decomposed yet; see its job", code="not_ready")
        return case

    def forget_upload(self, upload: Upload) -> None:
        """Nothing of an upload stays in memory once its files are gone."""
        if upload.case is not None:
            tag = upload.case.tag
            self.cases.forget(tag)
            self.pictures.forget(lambda key: key[0] == tag)

    def label_job(self, archive: Archive) -> Job | None:
        """The job that decodes the archive's labels, begun now if it was not; None when nothing is left to do."""
        if archive.searcher.ready("overlap"):
            return None
        with self._lock:
            known, job = self._labels
            if known is not archive or job is None or job.state == "failed":
                job = self.jobs.submit("prepare", "decode labels", archive.decode_labels)
                self._labels = archive, job
        return job

    def label_job_known(self, archive: Archive) -> Job | None:
        """The same job, if it was begun and is not done."""
        known, job = self._labels
        return job if known is archive and not archive.searcher.ready("overlap") else None

    def require_labels(self, archive: Archive) -> None:
        """Refuse a question that compares labels while these are being decoded."""
        job = self.label_job(archive)
        if job is not None:
            raise Problem(
                409,
                "overlap and fusion: the archive's labels are still being decoded; use another metric meanwhile",
                code="not_ready",
                detail={"job": job.id},
            )

    def sketcher(self, archive: Archive) -> Sketcher:
        """The label encoder beside the model, read again only when it has changed: painting asks at every stroke."""
        path = None if archive.model_folder is None else archive.model_folder / SKETCH_FILE
        stamp = path.stat().st_mtime_ns if path is not None and path.is_file() else None
        known, sketcher = self._sketcher
        if sketcher is None or stamp is None or known != stamp or sketcher.network is not archive.network:
            sketcher = Sketcher.of(archive)
            self._sketcher = stamp, sketcher
        return sketcher


def sweep() -> None:
    """Take away folders of services that were killed before they could tidy up."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER}*-*"):
        pid = folder.name.removeprefix(FOLDER).partition("-")[0]
        if pid.isdigit() and folder.stat().st_uid == os.getuid() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)


async def of(request: Request) -> Service:
    """The service of the application that a request came to; asynchronous only to be spared a thread."""
    service: Service = request.app.state.service
    return service


TheService = Annotated[Service, Depends(of)]
