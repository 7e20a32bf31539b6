"""`Pool`: threads that share a scan.

Knows ranges and their lengths; nothing about what is done with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

__all__ = ["Pool"]

SMALLEST_SHARE = 4096
"""Rows below which a second thread costs more than it brings."""

SHARES = 8
"""Shares per thread: whoever is done takes the next one, so that nobody waits long for a thread that was held up."""


class Pool:
    """The calling thread and others that help it; one thread means no pool at all."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.helpers = ThreadPoolExecutor(threads - 1) if threads > 1 else None

    def shares(self, lengths: NDArray[np.integer]) -> list[slice]:
        """Cut a list of ranges into consecutive shares of about equal work."""
        done = np.cumsum(lengths)
        total = int(done[-1]) if len(done) else 0
        parts = max(1, min(SHARES * self.threads, total // SMALLEST_SHARE))
        cuts = np.searchsorted(done, np.arange(1, parts) * total / parts, side="right").tolist()
        return [slice(a, b) for a, b in zip([0, *cuts], [*cuts, len(lengths)], strict=True)]

    def run(self, work: Callable[[slice], None], lengths: NDArray[np.integer]) -> None:
        """Do `work` on every share of a list of ranges."""
        if self.helpers is None:
            work(slice(0, len(lengths)))
            return
        waiting = iter(self.shares(lengths))
        helping = [self.helpers.submit(_work_off, work, waiting) for _ in range(self.threads - 1)]
        _work_off(work, waiting)
        for helper in helping:
            helper.result()


def _work_off(work: Callable[[slice], None], waiting: Iterator[slice]) -> None:
    for share in waiting:  # a list's iterator hands each share to one thread alone
        work(share)
