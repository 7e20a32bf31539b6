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
    pool, lengths = Pool(2), np.full(40, SMALLEST_SHARE)
    first, *others = pool.shares(lengths)
    others_done, left = threading.Event(), len(others)

    def work(share: slice) -> None:
        nonlocal left
        if share == first:
            assert others_done.wait(10)
        else:
            left -= 1
            if not left:
                others_done.set()

    pool.run(work, lengths)
    assert not left


def test_the_last_shares_are_small() -> None:
    sizes = [share.stop - share.start for share in Pool(2).shares(np.full(400, SMALLEST_SHARE))]
    assert sizes[0] == 100
    assert max(sizes[-3:]) <= 4


def test_an_error_in_a_thread_is_raised() -> None:
    def work(share: slice) -> None:
        if share.start:
            raise MemoryError

    with pytest.raises(MemoryError):
        Pool(2).run(work, np.full(16, SMALLEST_SHARE))
