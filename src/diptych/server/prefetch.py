"""`LookAhead`: while a reader looks at a slice, its neighbours are decoded, so that scrolling need not wait.

Knows cases and one thread. Only the newest slice counts: whoever scrolls on leaves the old neighbourhood behind.
"""

from __future__ import annotations

import logging
from threading import Condition, Thread

import numpy as np

from diptych.server.cases import Case, Cases

PATIENCE = 10.0
"""Seconds that a slice may take to decode."""
REACH = 4
"""Slices to each side."""
log = logging.getLogger("diptych.server")


class LookAhead:
    """Decodes around the last slice that was looked at."""

    def __init__(self, cases: Cases) -> None:
        self.cases = cases
        self._changed = Condition()
        self._newest: tuple[Case, int] | None = None
        self._ended = False
        self._thread: Thread | None = None

    def note(self, case: Case, z: int) -> None:
        """Somebody looks at this slice."""
        with self._changed:
            if self._thread is None and not self._ended:
                self._thread = Thread(target=self._run, name="diptych-ahead", daemon=True)
                self._thread.start()
            self._newest = case, z
            self._changed.notify()

    def close(self) -> None:
        """Stop after the slice at hand, and wait for it: a thread inside torch must not outlive the interpreter."""
        with self._changed:
            self._ended = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(PATIENCE)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ended or self._newest is not None)
                if self._ended or self._newest is None:
                    return
                (case, z), self._newest = self._newest, None
            for neighbour in around(case, z):
                if self._overtaken():
                    break
                try:
                    self.cases.view(case, neighbour)
                except Exception:
                    log.exception("decoding ahead failed")
                    break

    def _overtaken(self) -> bool:
        return self._ended or self._newest is not None


def around(case: Case, z: int) -> list[int]:
    """Neighbours of a slice, the nearest first."""
    near = case.record.z_index[np.abs(case.record.z_index.astype(int) - z) <= REACH].tolist()
    return sorted((one for one in near if one != z), key=lambda one: (abs(one - z), -one))
