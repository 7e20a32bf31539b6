"""Every share of a scan is worked on once, by whichever thread is free."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from diptych.search.pool import SMALLEST_SHARE, Pool


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("lengths", [[], [1], [SMALLEST_SHARE] * 50, [10 * SMALLEST_SHARE, 1, 1]])
def test_every_range_is_worked_on_once(threads: int, lengths: list[int]) -> None:
    done = np.zeros(len(lengths), np.int64)

    def work(share: slice) -> None:
        done[share] += 1

    Pool(threads).run(work, np.array(lengths, np.int64))
    assert (done == 1).all()


def test_a_slow_thread_does_not_hold_the_others_up() -> None:
    others_done, shares = threading.Event(), 0

    def work(share: slice) -> None:
        nonlocal shares
        if share.start == 0:
            assert others_done.wait(10)
        else:
            shares += 1
            if shares == 15:
                others_done.set()

    Pool(2).run(work, np.full(16, SMALLEST_SHARE))
    assert shares == 15


def test_an_error_in_a_thread_is_raised() -> None:
    def work(share: slice) -> None:
        if share.start:
            raise MemoryError

    with pytest.raises(MemoryError):
        Pool(2).run(work, np.full(16, SMALLEST_SHARE))
