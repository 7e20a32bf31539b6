"""`RayCalls`: every shard in an actor of its own, or in several, somewhere on a Ray cluster.

An actor that dies is restarted by Ray, on another node if its own is gone; until it is back, another replica answers,
or the shard counts as unanswered. A replica that is slow is hedged: another one is asked too, and the first answer
counts. Who has not answered when time is up is unanswered. Knows Ray, replicas and time; nothing about what is asked.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from diptych.cluster.ray_session import connect, import_ray
from diptych.cluster.shard_calls import Call
from diptych.cluster.shard_manifest import Manifest, Shard
from diptych.cluster.shard_worker import Model, ShardWorker, Stale, Unanswered
from diptych.errors import UsageError

AT_A_TIME = 8
"""Questions that an actor works on at once; more wait."""
A_LITTLE = 0.001
"""Share of a core that an actor asks for: it need not wait for room, yet is spread over the nodes."""
AVOID_SECONDS = 2.0
"""How long a replica that failed is asked last."""


@dataclass(frozen=True)
class RayOptions:
    """How shards are held and asked."""

    replicas: int = 1
    """Actors per shard; with two, nothing is missing while one of them is restarted."""
    timeout: float = 10.0
    """Seconds after which a shard that has not answered counts as unanswered."""
    hedge_after: float = 0.5
    """Seconds after which a second replica is asked as well."""
    opening: float = 600.0
    """Seconds that shards may take to be opened, or to decode all their labels."""
    threads: int = 1
    """Threads that one question is worked on with."""


class ShardActor:
    """What runs in a process of its own."""

    def __init__(self, shard: Shard, folder: Path, model: Model, identity: Any, threads: int) -> None:
        self.worker = ShardWorker(shard, folder, model, identity=identity, threads=threads)
        self.worker.call("newest", None, ())

    def call(self, method: str, version: str | None, arguments: Sequence[Any]) -> Any:
        return self.worker.call(method, version, arguments)

    def process(self) -> tuple[int, str]:
        """Process id and node: for tests, and for whoever looks after a cluster."""
        import ray

        return os.getpid(), str(ray.get_runtime_context().get_node_id())


@dataclass
class _Asked:
    """One shard while it is asked."""

    call: Call
    replicas: list[int]
    """Those not asked yet, best first."""
    since: float
    refs: set[Any] = field(default_factory=set)


class RayCalls:
    """Asks the actors of all shards."""

    def __init__(self, ray: Any, actors: Sequence[Sequence[Any]], options: RayOptions, *, own: bool) -> None:
        self.ray, self.actors, self.options = ray, actors, options
        self._own = own
        self._turn = count()
        self._failed: dict[tuple[int, int], float] = {}

    def gather(self, calls: Mapping[int, Call], *, patient: bool = False) -> dict[int, Any]:
        """An answer, `Refusal`, `Stale` or `Unanswered` for each shard."""
        now = time.monotonic()
        limit = self.options.opening if patient else self.options.timeout
        open_calls = {shard: _Asked(call, self._order(shard), now) for shard, call in calls.items()}
        where: dict[Any, tuple[int, int]] = {}
        answers: dict[int, Any] = {}
        for shard in open_calls:
            self._send(shard, open_calls[shard], where)
        while open_calls and (left := now + limit - time.monotonic()) > 0:
            ready, _ = self.ray.wait(
                list(where), num_returns=1, timeout=min(left, self._next_hedge(open_calls, patient))
            )
            for ref in ready:
                shard, replica = where.pop(ref)
                if shard in open_calls:
                    self._receive(ref, shard, replica, open_calls, where, answers)
            if not patient:
                self._hedge(open_calls, where)
        seconds = f"no answer within {limit:g} s"
        return answers | {shard: Unanswered(seconds) for shard in open_calls}

    def close(self) -> None:
        """End the actors, and the connection where it was made for them."""
        if not self.ray.is_initialized():
            return
        for actor in (one for replicas in self.actors for one in replicas):
            self.ray.kill(actor)
        if self._own:
            self.ray.shutdown()

    def _order(self, shard: int) -> list[int]:
        """Replicas in turn, those that failed just now last."""
        number, turn, now = len(self.actors[shard]), next(self._turn), time.monotonic()
        order = [(turn + step) % number for step in range(number)]
        return sorted(order, key=lambda one: now - self._failed.get((shard, one), -AVOID_SECONDS) < AVOID_SECONDS)

    def _send(self, shard: int, asked: _Asked, where: dict[Any, tuple[int, int]]) -> None:
        replica = asked.replicas.pop(0)
        ref = self.actors[shard][replica].call.remote(*asked.call)
        where[ref] = shard, replica
        asked.refs.add(ref)
        asked.since = time.monotonic()

    def _receive(
        self,
        ref: Any,
        shard: int,
        replica: int,
        open_calls: dict[int, _Asked],
        where: dict[Any, tuple[int, int]],
        answers: dict[int, Any],
    ) -> None:
        """Take an answer, or ask the next replica where it is none."""
        asked = open_calls[shard]
        asked.refs.discard(ref)
        try:
            answer = self.ray.get(ref)
        except self.ray.exceptions.RayError as error:
            answer = Unanswered(_reason(error))
            self._failed[shard, replica] = time.monotonic()
        if isinstance(answer, Stale | Unanswered) and (asked.replicas or asked.refs):
            if asked.replicas:
                self._send(shard, asked, where)
            return
        answers[shard] = answer
        del open_calls[shard]

    def _next_hedge(self, open_calls: Mapping[int, _Asked], patient: bool) -> float:
        waiting = [asked.since for asked in open_calls.values() if asked.replicas and not patient]
        return max(0.0, min(waiting) + self.options.hedge_after - time.monotonic()) if waiting else float("inf")

    def _hedge(self, open_calls: Mapping[int, _Asked], where: dict[Any, tuple[int, int]]) -> None:
        now = time.monotonic()
        for shard, asked in open_calls.items():
            if asked.replicas and now - asked.since >= self.options.hedge_after:
                self._send(shard, asked, where)


def _reason(error: Exception) -> str:
    """Why an actor did not answer, in a few words."""
    known = {"ActorUnavailableError": "its worker is being restarted", "ActorDiedError": "its worker died"}
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip().splitlines()
    return known.get(type(error).__name__) or (text[0][:160] if text else type(error).__name__)


def ray_calls(cluster: str, options: RayOptions = RayOptions()) -> Callable[[Manifest, Model], RayCalls]:
    """Holds the shards of a manifest on a cluster, for `ShardedArchive.open`."""

    def start(manifest: Manifest, model: Model) -> RayCalls:
        if not isinstance(model, Path):  # what is restarted elsewhere must be able to read it again
            raise UsageError("a cluster needs the folder of a model, not a network in memory; save it first")
        own = not import_ray().is_initialized()
        ray = connect(cluster)
        actor = ray.remote(ShardActor).options(
            max_restarts=-1,
            max_task_retries=0,
            max_concurrency=AT_A_TIME,
            num_cpus=A_LITTLE,
            scheduling_strategy="SPREAD",
        )
        folder = Path(manifest.folder).absolute()
        actors = [
            [
                actor.remote(
                    Shard(shard.name, shard.path.absolute()), folder, model.absolute(), manifest.model, options.threads
                )
                for _ in range(options.replicas)
            ]
            for shard in manifest.shards
        ]
        return RayCalls(ray, actors, options, own=own)

    return start
