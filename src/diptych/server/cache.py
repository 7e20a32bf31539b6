"""`Cache`: the most recently used things, up to so many bytes, each made once however many ask for it at a time.

Knows nothing about what it keeps.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from threading import Lock
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")


class Cache(Generic[Value]):
    """Keeps values by key; the least recently used go first. Safe to use from many threads."""

    def __init__(self, capacity: int, size: Callable[[Value], int]) -> None:
        self.capacity = capacity
        self._size = size
        self._kept: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()
        self._making: dict[Hashable, Future[Value]] = {}
        self._lock = Lock()
        self._total = 0

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of a key; made now if it is not kept. A failure reaches all who wait, and is not kept."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key][0]
            future = self._making.get(key)
            mine = future is None
            if future is None:
                future = self._making[key] = Future()
        if mine:
            self._make(key, make, future)
        return future.result()

    @property
    def used(self) -> int:
        """Bytes of what is kept now."""
        return self._total

    def forget(self, belongs: Callable[[Any], bool]) -> None:
        """Let everything go whose key `belongs` says so of."""
        with self._lock:
            for key in [key for key in self._kept if belongs(key)]:
                self._total -= self._kept.pop(key)[1]

    def __contains__(self, key: Hashable) -> bool:
        with self._lock:
            return key in self._kept

    def _make(self, key: Hashable, make: Callable[[], Value], future: Future[Value]) -> None:
        try:
            value = make()
        except BaseException as error:
            with self._lock:
                del self._making[key]
            future.set_exception(error)
            return
        with self._lock:
            del self._making[key]
            self._keep(key, value)
        future.set_result(value)

    def _keep(self, key: Hashable, value: Value) -> None:
        size = self._size(value)
        if size > self.capacity:
            return
        self._kept[key] = (value, size)
        self._total += size
        while self._total > self.capacity:
            _, (_, freed) = self._kept.popitem(last=False)
            self._total -= freed
