"""`Service`: everything a request may need, made once. Routes ask for it as `TheService`.

Knows how the parts fit together; nothing about HTTP but where FastAPI keeps things.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Annotated, Any, TypeVar

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, Request

from diptych.archive.audit import AuditLog
from diptych.files import FolderLock
from diptych.processes import cores
from diptych.retrieval import Archive
from diptych.retrieval.sketch import SKETCH_FILE, Sketcher
from diptych.server.cache import Cache
from diptych.server.cases import Case, Cases
from diptych.server.exports import Exports
from diptych.server.jobs import Job, Jobs
from diptych.server.live_archive import Library
from diptych.server.observation import Observation, touch
from diptych.server.pacs_desk import PacsDesk
from diptych.server.prefetch import LookAhead
from diptych.server.problems import Problem
from diptych.server.settings import ServerSettings
from diptych.server.sign_in import SignIn
from diptych.server.study_changes import Changes
from diptych.server.uploads import Upload, Uploads
from diptych.server.users import Users

Result = TypeVar("Result")
log = logging.getLogger("diptych.server")
FOLDER = "diptych-server-"
TIDY_SECONDS = 20.0
LOCK = "owner.lock"


@dataclass(frozen=True)
class Neighbour:
    """One of several archives that are served side by side."""

    name: str
    disease: str
    path: str
    """Where its page is."""


class Service:
    """The archive, what was read of it, jobs and uploads; `sign_in` where several archives share one door."""

    def __init__(self, archive: Archive, settings: ServerSettings, *, sign_in: SignIn | None = None) -> None:
        self.settings = settings
        sweep()
        self.folder = Path(tempfile.mkdtemp(prefix=FOLDER))
        self._owner = FolderLock(self.folder / LOCK)
        self._owner.acquire()
        self.library = Library(archive)
        self.cases = Cases(self.library, settings, self.folder)
        self.ahead = LookAhead(self.cases)
        self.jobs = Jobs(waiting=settings.max_waiting)
        self.uploads = Uploads(self.folder / "uploads", settings, forget=self.forget_upload)
        self.exports = Exports()
        self.changes = Changes()
        self.pacs = PacsDesk(archive.store.path, settings.pacs)
        self.pictures: Cache[bytes] = Cache(settings.picture_bytes, len)
        self.sign_in = sign_in or SignIn(settings, Users.of_archive(archive.store.path))
        self.beside: tuple[Neighbour, ...] = ()
        """All archives of this server, this one too; empty where it is the only one."""
        self.receiving: Counter[str] = Counter()
        """Uploads that come in at the moment, by user."""
        self.observation = Observation(
            AuditLog(archive.store.path) if settings.audit else None, json_log=settings.json_log
        )
        self._closed = Event()
        self._search_threads = CapacityLimiter(cores())
        self._labels: tuple[Archive | None, Job | None] = (None, None)
        self._sketcher: tuple[int | None, Sketcher | None] = (None, None)
        self._warm_up: Job | None = None
        self._lock = Lock()

    def start(self) -> None:
        """Begin what can be done before anybody asks."""
        if self.observation.audit is not None:
            self.observation.audit.record("start", "diptych", {"archive": self.library.current.store.path.name})
        Thread(target=self._tidy, name="diptych-tidy", daemon=True).start()
        self._warm_up = self.jobs.submit("prepare", "warm up", self.library.warm_up)
        if len(self.library.current.catalogue.index) <= self.settings.overlap_slices:
            self.label_job(self.library.current)

    def close(self) -> None:
        """Stop jobs, and leave nothing of any patient behind."""
        self._closed.set()
        self.ahead.close()
        self.jobs.cancel_all()
        if self.observation.audit is not None:
            self.observation.audit.record("stop", "diptych")
            self.observation.audit.flush()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._owner.release()

    def caches(self) -> dict[str, Cache[Any]]:
        """Everything that grows with use, each with its bound in bytes."""
        return {"pictures": self.pictures, **self.cases.caches()}

    def problems(self) -> list[str]:
        """What is wrong with what the service stands on, without a path of this machine."""
        self.library.current  # noqa: B018  looks for changes
        audit = self.observation.audit
        found = [self.library.problem, None if audit is None else audit.problem]
        private = str(self.library.current.store.path)
        return [text.replace(private, "archive") for text in found if text]

    def warming(self) -> bool:
        """Whether the first searches would still have to wait."""
        return self._warm_up is not None and not self._warm_up.over

    @contextmanager
    def receive(self, who: str) -> Iterator[None]:
        """One of the few places for uploads that come in; one user has only some of them."""
        settings = self.settings
        with self._lock:
            mine, all_of_them = self.receiving[who], self.receiving.total()
            if mine >= settings.max_receiving_per_user or all_of_them >= settings.max_receiving:
                raise Problem(429, "other uploads are coming in; try again in a moment")
            self.receiving[who] += 1
        try:
            yield
        finally:
            with self._lock:
                self.receiving[who] -= 1

    def _tidy(self) -> None:
        """Forget what is over though nobody asks: uploads that expired, exports of volumes that were removed."""
        version = self.library.current.catalogue.version
        while not self._closed.wait(TIDY_SECONDS):
            try:
                self.uploads.expire()
                now = self.library.current.catalogue.version
                if now != version:
                    version = now
                    self.forget_removed()
            except Exception:
                log.exception("tidying failed")

    def forget_removed(self) -> None:
        """Files made from volumes that are not in the archive any more, or not as they were, go."""
        shutil.rmtree(self.folder / "exports", ignore_errors=True)
        shutil.rmtree(self.folder / "volumes", ignore_errors=True)
        self.cases.caches()["records"].forget(lambda key: True)

    async def in_turn(self, search: Callable[[], Result]) -> Result:
        """Run a search in a thread kept for searches: first come, first served, whatever pictures wait for decoders."""
        return await to_thread.run_sync(search, limiter=self._search_threads)

    def case(self, kind: str, key: str) -> Case:
        """A case by where it is served: volumes or uploads."""
        if kind == "volumes":
            found = self.cases.volume(key)
            touch(key)  # only now: what somebody asks for in vain may be anything
            return found
        case = self.uploads.get(key).case
        touch(key)
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
    """Take away folders of services that were killed before they could tidy up.

    A lock that the system gives back with the process tells who lives, in containers and across namespaces too, where
    process numbers tell nothing. A folder without one is just being made, or made by no service of this version.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER}*"):
        try:
            if folder.lstat().st_uid != os.getuid() or not (folder / LOCK).is_file():
                continue
            lock = FolderLock(folder / LOCK)
            if lock.acquire() is None:
                shutil.rmtree(folder, ignore_errors=True)
                lock.release()
        except OSError:
            continue


async def of(request: Request) -> Service:
    """The service of the application that a request came to; asynchronous only to be spared a thread."""
    service: Service = request.app.state.service
    return service


TheService = Annotated[Service, Depends(of)]
