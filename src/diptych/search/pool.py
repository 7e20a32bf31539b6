"""`Pool`: threads that share a scan.

Knows ranges and their lengths; nothing about what is done with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

SMALLEST_SHARE = 4096
"""Rows below which a share costs more to hand out than it brings."""


class Pool:
    """The calling thread and others that help it; one thread means no pool at all."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.helpers = ThreadPoolExecutor(threads - 1) if threads > 1 else None

    def shares(self, lengths: NDArray[np.integer]) -> list[slice]:
        """Cut a list of ranges into consecutive shares, large ones first.

        Whoever is done takes the next one. Small shares at the end let all threads stop at about the same time, also
        when one of them began late or was held up.
        """
        done = np.cumsum(lengths)
        left = total = int(done[-1]) if len(done) else 0
        ends = []
        while (share := left // (2 * self.threads)) >= SMALLEST_SHARE:
            left -= share
            ends.append(total - left)
        cuts = np.searchsorted(done, ends, side="right").tolist()
        return [slice(a, b) for a, b in zip([0, *cuts], [*cuts, len(lengths)], strict=True)]

    def run(self, work: Callable[[slice], None], lengths: NDArray[np.integer]) -> None:
        """Do `work` on every share of a list of ranges."""
        if self.helpers is None:
            work(slice(0, len(lengths)))
            return
        shares = self.shares(lengths)
        waiting = iter(shares)
        helping = [self.helpers.submit(_work_off, work, waiting) for _ in range(min(self.threads, len(shares)) - 1)]
        _work_off(work, waiting)
        for helper in helping:
            if not helper.cancel():  # whoever has not begun by now is busy elsewhere and not needed
                helper.result()


def _work_off(work: Callable[[slice], None], waiting: Iterator[slice]) -> None:
    for share in waiting:  # a list's iterator hands each share to one thread alone
        work(share)
