"""One piece of work, shared among as many threads as torch uses. For kernels that hold no lock; knows none of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise
from typing import Any

import torch

__all__ = ["in_threads", "shares"]


def shares(count: int) -> list[tuple[int, int]]:
    """Cut `count` pieces into even shares, from and to, one for each of torch's threads."""
    threads = max(1, min(torch.get_num_threads(), count))
    return list(pairwise(count * part // threads for part in range(threads + 1)))


def in_threads(work: Callable[..., None], *arguments: Iterable[Any]) -> None:
    """Call `work` for each share, as `map` would: the first one here, the others in threads."""
    first, *others = zip(*arguments, strict=True)
    waiting = [_helpers(len(others)).submit(work, *share) for share in others]
    work(*first)
    for helper in waiting:
        helper.result()


@lru_cache(maxsize=1)
def _helpers(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="share")


os.register_at_fork(after_in_child=_helpers.cache_clear)  # threads do not survive a fork
