"""One piece of work, shared among as many threads as torch uses, and scratch room for each of them.

For kernels that hold no lock; knows none of them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch

__all__ = ["in_threads", "scratch", "shares"]


def shares(count: int) -> list[tuple[int, int]]:
    """Cut `count` pieces into even shares, from and to, one for each of torch's threads."""
    threads = max(1, min(torch.get_num_threads(), count))
    return list(pairwise(count * part // threads for part in range(threads + 1)))


def in_threads(work: Callable[..., None], *arguments: Iterable[Any]) -> None:
    """Call `work` for each share, as `map` would: the first one here, the others in threads."""
    first, *others = zip(*arguments, strict=True)
    waiting = [_helpers(torch.get_num_threads() - 1).submit(work, *share) for share in others]
    work(*first)
    for helper in waiting:
        helper.result()


def scratch(name: str, size: int) -> np.ndarray:
    """A flat float32 array of some size with anything in it, this thread's own; the next call may give the same one.

    New memory costs more than most of the work done in it: the system hands it out page by page.
    """
    found: np.ndarray | None = _rooms.__dict__.get(name)
    if found is None or len(found) < size:
        found = np.empty(size, np.float32)
        _rooms.__dict__[name] = found
    return found[:size]


_rooms = threading.local()


@lru_cache(maxsize=1)
def _helpers(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="share")


os.register_at_fork(after_in_child=_helpers.cache_clear)  # threads do not survive a fork
