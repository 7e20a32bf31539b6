"""Ask all shards at once, and keep account of those that do not answer.

`ShardCalls` is who carries the questions: `LocalCalls` in this process, `RayCalls` (ray_shards.py) to actors anywhere.
`ShardGroup` is what everything else talks to: it raises what a shard refuses, and notes what did not answer for
whoever collects that (`collecting`). Knows numbers of shards and versions; nothing about what is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Protocol

from diptych.cluster.shard_manifest import Manifest
from diptych.cluster.shard_worker import Model, Refusal, ShardWorker, Stale, Unanswered
from diptych.errors import ClusterError
from diptych.processes import cores

Call = tuple[str, str | None, Sequence[Any]]
"""Method, version, arguments."""

_missing: ContextVar[dict[int, str] | None] = ContextVar("missing", default=None)


class ShardCalls(Protocol):
    """Carries questions to shards."""

    def gather(self, calls: Mapping[int, Call], *, patient: bool = False) -> dict[int, Any]:
        """An answer, `Refusal`, `Stale` or `Unanswered` for each; `patient` calls may take as long as they need."""

    def close(self) -> None:
        """Let go of everything."""


class LocalCalls:
    """All shards in this process, asked by as many threads as there are cores."""

    def __init__(self, workers: Sequence[ShardWorker]) -> None:
        self.workers = workers
        self._threads = ThreadPoolExecutor(max(1, min(cores(), len(workers))), thread_name_prefix="shard")

    def gather(self, calls: Mapping[int, Call], *, patient: bool = False) -> dict[int, Any]:
        if len(calls) == 1:
            return {number: self.workers[number].call(*call) for number, call in calls.items()}
        asked = {number: self._threads.submit(self.workers[number].call, *call) for number, call in calls.items()}
        return {number: future.result() for number, future in asked.items()}

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def local_calls(manifest: Manifest, model: Model = None, *, threads: int = 1) -> LocalCalls:
    """The shards of a manifest in this process."""
    folder = Path(manifest.folder)
    return LocalCalls(
        [ShardWorker(one, folder, model, identity=manifest.model, threads=threads) for one in manifest.shards]
    )


class StaleVersionError(Exception):
    """A shard has moved on; open the newest version and ask again. Never leaves the cluster package."""


class ShardGroup:
    """All shards of one archive.

    Args:
        calls: carries the questions.
        names: of the shards.
    """

    def __init__(self, calls: ShardCalls, names: Sequence[str]) -> None:
        self.calls = calls
        self.names = names

    def __len__(self) -> int:
        return len(self.names)

    def ask(self, calls: Mapping[int, Call], *, patient: bool = False) -> dict[int, Any]:
        """Answers of those that answer. The others are noted; that nobody answers is an error, as is a refusal."""
        answers = self.calls.gather(calls, patient=patient)
        found = {}
        for number, answer in sorted(answers.items()):
            if isinstance(answer, Refusal):
                raise answer.error()
            if isinstance(answer, Stale):
                raise StaleVersionError(self.names[number])
            if isinstance(answer, Unanswered):
                self.note(number, answer.reason)
            else:
                found[number] = answer
        if calls and not found:
            reason = next(answer.reason for answer in answers.values() if isinstance(answer, Unanswered))
            raise ClusterError(f"no shard answers ({self.names[min(calls)]}: {reason}); see 'diptych cluster verify'")
        return found

    def note(self, number: int, reason: str) -> None:
        """Remember that a shard did not answer."""
        collected = _missing.get()
        if collected is not None:
            collected.setdefault(number, reason)


@contextmanager
def collecting() -> Iterator[dict[int, str]]:
    """Shards that do not answer within the block, with the reason; an outer block learns of them, too."""
    outer, own = _missing.get(), dict[int, str]()
    token = _missing.set(own)
    try:
        yield own
    finally:
        _missing.reset(token)
        if outer is not None:
            outer.update({number: reason for number, reason in own.items() if number not in outer})


def any_missing() -> bool:
    """Whether a shard did not answer since the innermost `collecting` began."""
    return bool(_missing.get())
