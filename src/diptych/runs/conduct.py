"""How a run behaves: it stops when asked, after a whole step, and computes the same bits each time.

Knows signals and torch's switches, nothing about networks.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

import torch
from torch.utils import deterministic

__all__ = ["Interruption", "repeatable"]


class Interruption:
    """Turns Ctrl-C and SIGTERM into a wish to stop after the current step; a second one stops at once."""

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


@contextmanager
def repeatable(threads: int) -> Iterator[None]:
    """Fixed threads, and deterministic algorithms where torch has them; leaves torch as it was."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    torch.set_num_threads(threads)
    torch.set_deterministic_debug_mode("warn")  # unlike use_deterministic_algorithms, imports no compiler
    deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # it only costs time
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        torch.set_deterministic_debug_mode(before[1])
