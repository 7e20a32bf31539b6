"""`Jobs`: long work in threads of its own, with progress that anybody may ask for.

Knows nothing about the work. Each lane does one job at a time, so that a long one never keeps another kind waiting;
queues are bounded, and finished jobs are remembered for a while. Work that reports progress can be cancelled there.
"""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import Full, Queue
from threading import Event, Lock, Thread
from typing import Literal, get_args

from diptych.errors import DiptychError, UsageError
from diptych.progress import Progress
from diptych.server.problems import Problem, not_found

Lane = Literal["decompose", "export", "prepare"]
State = Literal["queued", "running", "done", "failed"]
Work = Callable[[Progress], None]

PATIENCE = 10.0
"""Seconds that running work has to come to its next report when the service ends."""
KEPT = 256
"""Jobs that are remembered."""
log = logging.getLogger("diptych.server")


class Cancelled(DiptychError):
    """Raised inside work whose result nobody wants any more."""


@dataclass(eq=False)
class Job:
    """A piece of long work."""

    kind: str
    work: Work = field(repr=False)
    id: str = field(default_factory=lambda: secrets.token_urlsafe(9))
    state: State = "queued"
    done: int = 0
    total: int = 0
    message: str = ""
    error: str | None = None
    cancelled: Event = field(default_factory=Event, repr=False)
    seconds: float = math.inf
    """How long it may take once it has begun."""
    began: float = 0.0

    @property
    def over(self) -> bool:
        return self.state in ("done", "failed")

    def report(self, done: int, total: int, note: str = "") -> None:
        """A `Progress`; this is also where a job stops that was cancelled, or has taken its time."""
        if self.cancelled.is_set():
            raise Cancelled("cancelled")
        if time.monotonic() - self.began > self.seconds:
            raise UsageError(
                f"{self.kind}: took longer than {self.seconds:g} seconds and was stopped; send less at a time"
            )
        self.done, self.total, self.message = done, total, note


class Jobs:
    """Runs jobs lane by lane; its threads start with the first job and end with the process."""

    def __init__(self, *, waiting: int) -> None:
        self.waiting = waiting
        self._lanes: dict[Lane, Queue[Job]] = {}
        self._known: OrderedDict[str, Job] = OrderedDict()
        self._lock = Lock()

    def submit(self, lane: Lane, kind: str, work: Work, *, seconds: float = math.inf) -> Job:
        """Queue some work, which may take so long; a full queue is refused."""
        job = Job(kind, work, seconds=seconds)
        with self._lock:
            queue = self._lanes.get(lane) or self._open(lane)
            try:
                queue.put_nowait(job)
            except Full:
                raise Problem(429, f"{self.waiting} jobs are waiting already; try again in a minute") from None
            self._known[job.id] = job
            for old in [key for key, one in self._known.items() if one.over][: max(0, len(self._known) - KEPT)]:
                del self._known[old]
        return job

    def get(self, job_id: str) -> Job:
        with self._lock:
            if job_id in self._known:
                return self._known[job_id]
        raise not_found(f"job {job_id[:40]!r}: there is none, or it was finished long ago")

    def states(self) -> dict[str, int]:
        """How many of the remembered jobs are in which state."""
        with self._lock:
            known = [job.state for job in self._known.values()]
        return {state: known.count(state) for state in get_args(State)}

    def cancel_all(self) -> None:
        """Stop whatever runs at its next report, let nothing else begin, and wait a little for the former.

        A thread inside torch that outlives the interpreter takes the whole process down with a C++ abort.
        """
        with self._lock:
            running = list(self._known.values())
        for job in running:
            job.cancelled.set()
        until = time.monotonic() + PATIENCE
        while any(job.state == "running" for job in running) and time.monotonic() < until:
            time.sleep(0.02)

    def _open(self, lane: Lane) -> Queue[Job]:
        queue: Queue[Job] = Queue(self.waiting)
        self._lanes[lane] = queue
        Thread(target=_run, args=(queue,), name=f"diptych-{lane}", daemon=True).start()
        return queue


def _run(queue: Queue[Job]) -> None:
    while True:
        _do(queue.get())


def _do(job: Job) -> None:
    """One job to its end; whatever happens, it ends in a state that can be told."""
    if job.cancelled.is_set():
        job.error, job.state = "cancelled", "failed"
        return
    job.state, job.began = "running", time.monotonic()
    try:
        job.work(job.report)
    except DiptychError as error:
        job.error, job.state = str(error), "failed"
    except Exception:
        if not job.cancelled.is_set():  # its files may be gone already
            log.exception("job %s failed", job.kind)
        job.error, job.state = "failed unexpectedly; the service's log tells more", "failed"
    else:
        job.done, job.state = job.total, "done"
