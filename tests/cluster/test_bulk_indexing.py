"""Patients into shards: the same archive as without shards, whoever encodes and whatever dies meanwhile."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from diptych.archive import ArchiveStore, ArchiveWriter
from diptych.archive.indexing import IndexOptions, IndexReport, index_patients
from diptych.archive.pseudonyms import SECRET
from diptych.cluster.bulk_indexing import Bulk, loaded, make_shards
from diptych.cluster.ray_session import connect
from diptych.cluster.resharding import merge_archive, verify_shards
from diptych.cluster.shard_manifest import read_manifest
from diptych.errors import ArchiveError
from diptych.model import save_model
from diptych.model.stored_model import StoredModel
from diptych.volumes import PatientFiles
from diptych.volumes.sources import find_sources
from tests.archive.patients import write_patient
from tests.cluster.making import ONE_RAY
from tests.conftest import Run
from tests.retrieval.making import tiny_network

pytestmark = ONE_RAY
QUIET = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six patients, one of them unreadable, and a model."""
    folder = tmp_path_factory.mktemp("bulk")
    save_model(tiny_network(), folder / "model")
    for number in range(6):
        write_patient(folder / "source", f"BraTS-GLI-0000{number}-000", seed=number)
    bad = next((folder / "source").glob("*4-000/*t2w*"))
    bad.write_bytes(bad.read_bytes()[:200])
    return folder


@pytest.fixture
def ray() -> Iterator[Any]:
    ray = connect("auto")
    yield ray
    ray.shutdown()


def patients(folder: Path) -> list[PatientFiles]:
    return find_sources([folder / "source"])


def bulk(folder: Path, out: Path, shards: int = 2, options: IndexOptions = IndexOptions()) -> Bulk:
    make_shards(out, StoredModel.open(folder / "model"), shards)
    return Bulk(read_manifest(out), folder / "model", options)


def version_of_one(folder: Path, out: Path) -> str:
    """The twin: everybody in one archive, one after the other."""
    encoder, decode, check = loaded(folder / "model")
    with ArchiveWriter.open(out, model=encoder.identity) as writer:
        index_patients(writer, encoder, patients(folder), decode=decode, check=check)
        return writer.version


def counts(report: IndexReport) -> tuple[int, int, int]:
    return len(report.added), len(report.unchanged), len(report.failed)


def require_same(folder: Path, sharded: Path, tmp_path: Path) -> None:
    assert verify_shards(sharded) == ()
    merge_archive(sharded, tmp_path / "merged")
    assert ArchiveStore.open(tmp_path / "merged").version == version_of_one(folder, tmp_path / "one")


def test_shards_hold_what_one_archive_would(folder: Path, tmp_path: Path) -> None:
    run = bulk(folder, tmp_path / "many", 3)
    told: list[tuple[int, int]] = []
    report = run.index(patients(folder), progress=lambda done, total, note="": told.append((done, total)))
    assert counts(report) == (5, 0, 1)
    assert told == [(done, 6) for done in range(1, 7)]
    require_same(folder, tmp_path / "many", tmp_path)
    assert counts(Bulk(run.manifest, folder / "model").index(patients(folder))) == (0, 5, 1)


def test_one_secret_for_all_shards(folder: Path, tmp_path: Path) -> None:
    run = bulk(folder, tmp_path / "many", 3, IndexOptions(keys="pseudonyms", pixels="none"))
    report = run.index(patients(folder))
    assert report.renamed == 6
    assert len({(shard.path / SECRET).read_bytes() for shard in run.manifest.shards}) == 1
    (run.manifest.shards[1].path / SECRET).write_text("ab" * 32)
    with pytest.raises(ArchiveError, match="is another secret"):
        run.index(patients(folder))


def test_the_command_makes_and_fills_shards(diptych: Run, folder: Path, tmp_path: Path) -> None:
    given = ("index", folder / "source", "--archive", "many", "--model", folder / "model")
    refused = diptych(*given, "--cluster", "auto")
    assert (refused.returncode, "not sharded" in refused.stderr) == (2, True)
    assert diptych(*given, "--shards", 2, "--cluster", "127.0.0.1:1").returncode == 9
    assert not (tmp_path / "many").exists()
    done = diptych(*given, "--shards", 2)
    assert (done.returncode, done.stdout.splitlines()[0]) == (4, "many: 5 volumes of 5 patients, 35 slices")
    assert "5 unchanged" in diptych(*given).stdout
    assert "there already" in diptych(*given, "--shards", 2).stderr


@QUIET
def test_a_cluster_makes_the_same(ray: Any, folder: Path, tmp_path: Path) -> None:
    run = bulk(folder, tmp_path / "many")
    report = run.index_on("auto", patients(folder))
    assert counts(report) == (5, 0, 1)
    assert "t2w" in report.failed["BraTS-GLI-00004-000"]
    require_same(folder, tmp_path / "many", tmp_path)
    assert counts(Bulk(run.manifest, folder / "model").index_on("auto", patients(folder))) == (0, 5, 1)


@QUIET
@pytest.mark.slow
@pytest.mark.parametrize("what", ["ray::encode_patient", "ray::ShardWriterActor"])
def test_what_dies_meanwhile_is_done_again(ray: Any, folder: Path, tmp_path: Path, what: str) -> None:
    run = bulk(folder, tmp_path / "many")
    killed: list[int] = []
    killer = Thread(target=kill_first, args=(what, killed))
    killer.start()
    report = run.index_on("auto", patients(folder))
    killer.join()
    assert killed
    assert counts(report) == (5, 0, 1)
    require_same(folder, tmp_path / "many", tmp_path)


def kill_first(title: str, killed: list[int]) -> None:
    """Kill the first process of this session's Ray that has this title."""
    import psutil

    until = time.monotonic() + 60
    while not killed and time.monotonic() < until:
        for process in psutil.Process().children(recursive=True):
            try:
                if process.cmdline()[:1] and process.cmdline()[0].startswith(title):
                    os.kill(process.pid, signal.SIGKILL)
                    killed.append(process.pid)
                    return
            except (psutil.NoSuchProcess, ProcessLookupError):
                continue
        time.sleep(0.01)
