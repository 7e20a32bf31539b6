"""Work spread over processes. Knows nothing about the work."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from diptych.errors import DiptychError

Job = TypeVar("Job")
Result = TypeVar("Result")

ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
"""Set for workers: threads inside processes only get in each other's way."""


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_all(work: Callable[[Job], Result], jobs: Sequence[Job], workers: int) -> Iterator[Result]:
    """Apply `work` to every job, in this process or in several; results come as they are finished."""
    if workers <= 1 or len(jobs) <= 1:
        yield from map(work, jobs)
        return
    context = multiprocessing.get_context("spawn")
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(ONE_THREAD)
    try:
        with ProcessPoolExecutor(min(workers, len(jobs)), mp_context=context, initializer=_live_with_parent) as pool:
            try:
                for future in as_completed([pool.submit(work, job) for job in jobs]):
                    yield future.result()
            except BrokenProcessPool as error:
                lack = "a worker process was killed, perhaps for lack of memory; use fewer --workers"
                raise DiptychError(lack) from error
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _live_with_parent() -> None:
    """Make a worker leave Ctrl-C to its parent, and go at once when the parent is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None, "runs in worker processes only"

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
