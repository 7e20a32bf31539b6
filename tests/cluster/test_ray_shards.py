"""Shards in actors of a real Ray on this machine's loopback: the same answers, and what is missing is said."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from diptych.cluster.ray_session import LOOPBACK, connect
from diptych.cluster.ray_shards import RayCalls, RayOptions, ray_calls
from diptych.cluster.resharding import split_archive
from diptych.cluster.sharded_archive import ShardedArchive
from diptych.errors import ClusterError, MissingExtraError, UsageError
from diptych.retrieval import Archive, EncodedSlice, Question
from tests.cluster.making import ONE_RAY, make_whole, save_with_tables, told
from tests.retrieval.making import tiny_network

pytestmark = ONE_RAY
ASKED = Question(metric="euclidean", top=8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, network = tmp_path_factory.mktemp("ray"), tiny_network()
    save_with_tables(network, folder / "model")
    make_whole(folder / "one", network, labels=True)
    split_archive(folder / "one", folder / "many", shards=2)
    return folder


@pytest.fixture(scope="module")
def whole(folder: Path) -> Archive:
    return Archive.open(folder / "one", model=folder / "model")


@pytest.fixture(scope="module")
def subject(whole: Archive) -> EncodedSlice:
    return whole.stored("V00", z_index=4)


@pytest.fixture
def ray() -> Iterator[Any]:
    ray = connect("auto")
    yield ray
    ray.shutdown()


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
def test_actors_answer_as_one_archive_does(ray: Any, folder: Path, whole: Archive, subject: EncodedSlice) -> None:
    assert {node["NodeManagerAddress"] for node in ray.nodes()} == {LOOPBACK}
    sharded = ShardedArchive.open(
        folder / "many", model=folder / "model", calls=ray_calls("auto", RayOptions(timeout=120.0))
    )
    for question in (ASKED, Question(), Question(metric="overlap", by="lesion"), Question(metric="angular", top=0)):
        if question.top:
            assert told(sharded.query(subject, question)) == told(whole.query(subject, question))
        else:
            with pytest.raises(UsageError, match="at least one match"):
                sharded.query(subject, question)
    assert sharded.trust(subject) == whole.trust(subject)
    sharded.close()


def _kill(ray: Any, calls: RayCalls, shard: int, replica: int = 0) -> None:
    pid, _ = ray.get(calls.actors[shard][replica].process.remote())
    os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_killed_shard_is_missing_until_it_is_back(
    ray: Any, folder: Path, whole: Archive, subject: EncodedSlice
) -> None:
    sharded = ShardedArchive.open(
        folder / "many", model=folder / "model", calls=ray_calls("auto", RayOptions(timeout=120.0))
    )
    calls = sharded.group.calls
    assert isinstance(calls, RayCalls)
    _kill(ray, calls, 1)
    partial = sharded.query(subject, ASKED)
    assert partial.missing[0].startswith("shard-01 did not answer")
    assert {sharded.manifest.owner(match.volume.patient_key) for match in partial.matches} == {0}
    until = time.monotonic() + 120
    while time.monotonic() < until and (answer := sharded.query(subject, ASKED)).missing:
        time.sleep(0.2)
    assert told(answer) == told(whole.query(subject, ASKED))
    sharded.close()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
def test_with_two_replicas_nothing_is_missing(ray: Any, folder: Path, whole: Archive, subject: EncodedSlice) -> None:
    start = ray_calls("auto", RayOptions(replicas=2))
    sharded = ShardedArchive.open(folder / "many", model=folder / "model", calls=start)
    calls = sharded.group.calls
    assert isinstance(calls, RayCalls)
    expected = told(whole.query(subject, ASKED))
    assert all(told(sharded.query(subject, ASKED)) == expected for _ in range(4))
    _kill(ray, calls, 0)
    _kill(ray, calls, 1, replica=1)
    assert all(told(sharded.query(subject, ASKED)) == expected for _ in range(8))
    sharded.close()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_slow_shard_is_timed_out_and_said(ray: Any, folder: Path, subject: EncodedSlice) -> None:
    start = ray_calls("auto", RayOptions(timeout=1.0))
    sharded = ShardedArchive.open(folder / "many", model=folder / "model", calls=start)
    calls = sharded.group.calls
    assert isinstance(calls, RayCalls)
    sharded.query(subject, ASKED)
    pid, _ = ray.get(calls.actors[0][0].process.remote())
    os.kill(pid, signal.SIGSTOP)
    try:
        assert "no answer within 1 s" in sharded.query(subject, ASKED).missing[0]
    finally:
        os.kill(pid, signal.SIGCONT)
    sharded.close()


def test_addresses_that_cannot_be_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ClusterError, match=r"127\.0\.0\.1:1: nobody answers there .*ray start"):
        connect("127.0.0.1:1")
    with pytest.raises(UsageError, match="give auto, or an address"):
        connect("somewhere")
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"diptych\[cluster\]"):
        connect("auto")


def test_a_network_in_memory_cannot_be_sent_away(folder: Path) -> None:
    with pytest.raises(UsageError, match="folder of a model"):
        ShardedArchive.open(folder / "many", model=tiny_network(), calls=ray_calls("auto", RayOptions(timeout=120.0)))
