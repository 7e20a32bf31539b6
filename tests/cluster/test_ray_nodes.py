"""Several Ray nodes on this machine: what a lost node held comes back on another, and nothing acknowledged is lost."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from diptych.archive import ArchiveStore
from diptych.archive.schema import DATABASE
from diptych.cluster.bulk_indexing import Bulk, make_shards
from diptych.cluster.ray_session import LOOPBACK, import_ray
from diptych.cluster.ray_shards import RayCalls, RayOptions, ray_calls
from diptych.cluster.resharding import merge_archive, split_archive, verify_shards
from diptych.cluster.shard_manifest import read_manifest
from diptych.cluster.sharded_archive import ShardedArchive
from diptych.model.stored_model import StoredModel
from diptych.retrieval import Archive, Question
from diptych.volumes.sources import find_sources
from tests.archive.patients import write_patient
from tests.cluster.making import ONE_RAY, make_whole, save_with_tables, told
from tests.retrieval.making import tiny_network

pytestmark = [
    pytest.mark.slow,
    ONE_RAY,
    pytest.mark.timeout(280),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
]
ASKED = Question(metric="euclidean", top=8)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Any]:
    """A head without cores, and two nodes of two: whatever one held finds room on the other."""
    ray = import_ray()
    from ray.cluster_utils import Cluster

    small = {"object_store_memory": 100 << 20, "node_ip_address": LOOPBACK, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **small})
    for _ in range(2):
        cluster.add_node(num_cpus=2, **small)
    cluster.wait_for_nodes()
    ray.init(address=cluster.address, log_to_driver=False, _node_ip_address=LOOPBACK)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    network = tiny_network()
    save_with_tables(network, tmp_path / "model")
    make_whole(tmp_path / "one", network, labels=True)
    split_archive(tmp_path / "one", tmp_path / "many", shards=2)
    return tmp_path


def remove(cluster: Any, node_id: str) -> None:
    cluster.remove_node(next(node for node in cluster.list_all_nodes() if node.node_id == node_id), False)


def node_of(ray: Any, actor: Any) -> str | None:
    """Where an actor is, if it is anywhere."""
    try:
        return str(ray.get(actor.process.remote(), timeout=20)[1])
    except (ray.exceptions.RayError, TimeoutError):
        return None


def test_shards_of_a_lost_node_come_back_on_another(nodes: Any, folder: Path) -> None:
    ray = import_ray()
    whole = Archive.open(folder / "one", model=folder / "model")
    subject = whole.stored("V00", z_index=4)
    start = ray_calls("auto", RayOptions(timeout=60.0))
    sharded = ShardedArchive.open(folder / "many", model=folder / "model", calls=start)
    calls = sharded.group.calls
    assert isinstance(calls, RayCalls)
    expected = told(whole.query(subject, ASKED))
    assert told(sharded.query(subject, ASKED)) == expected
    held = [ray.get(replicas[0].process.remote())[1] for replicas in calls.actors]
    assert len(set(held)) == 2
    remove(nodes, held[1])
    until = time.monotonic() + 120
    while (now := node_of(ray, calls.actors[1][0])) != held[0] and time.monotonic() < until:
        answer = sharded.query(subject, ASKED)  # a worker lives on for a moment after its node
        assert answer.missing[0].startswith("shard-01 did not answer") if answer.missing else told(answer) == expected
        time.sleep(0.3)
    assert now == held[0]
    assert told(sharded.query(subject, ASKED)) == expected
    sharded.close()


def test_a_node_lost_while_indexing_loses_and_doubles_nothing(nodes: Any, folder: Path) -> None:
    for number in range(8):
        write_patient(folder / "source", f"BraTS-GLI-0000{number}-000", seed=number)
    patients = find_sources([folder / "source"])
    manifest = make_shards(folder / "filled", StoredModel.open(folder / "model"), 2)
    there = [node for node in nodes.list_all_nodes() if node is not nodes.head_node]

    def lose_one(done: int, total: int, note: str = "") -> None:
        if done == 2:
            nodes.remove_node(there[0], False)

    first = Bulk(manifest, folder / "model").index_on("auto", patients, progress=lose_one)
    stored = {info.volume_key for store in manifest.stores() for info in store.listing().volumes}
    assert set(first.added) <= stored
    again = Bulk(manifest, folder / "model").index_on("auto", patients)
    assert (again.failed, len(again.added) + len(again.unchanged)) == ({}, 8)
    assert verify_shards(folder / "filled") == ()
    merge_archive(folder / "filled", folder / "merged")
    Bulk(one := make_shards(folder / "calm", StoredModel.open(folder / "model"), 1), folder / "model").index(patients)
    assert ArchiveStore.open(folder / "merged").version == read_manifest(one.folder).store(0).version


def test_a_damaged_shard_is_said_and_the_others_answer(folder: Path) -> None:
    file = folder / "many" / "shard-01" / DATABASE
    os.truncate(file, 5000)
    sharded = ShardedArchive.open(folder / "many", model=folder / "model")
    assert sharded.problems[0].startswith("shard-01 did not answer, and nothing of it was searched")
    key = next(info.volume_key for info in sharded.catalogue.volumes)
    answer = sharded.query(sharded.stored(key), ASKED)
    assert answer.missing == sharded.lost
    assert answer.matches
