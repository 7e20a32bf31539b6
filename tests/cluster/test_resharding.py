"""Split, merge, move and verify: nothing is lost, nothing doubled, and what cannot be is one clear line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from diptych.archive import ArchiveStore, ArchiveWriter
from diptych.cluster.resharding import merge_archive, move_shard, split_archive, stat_shards, verify_shards
from diptych.cluster.shard_manifest import MANIFEST, read_manifest
from diptych.errors import ArchiveError, ArchiveMismatchError, UsageError
from tests.archive.samples import make_archive, make_record
from tests.conftest import Run


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    return split_archive(make_archive(tmp_path / "one", 12), tmp_path / "many", shards=3).path


def test_split_and_merged_again_it_is_the_same_archive(tmp_path: Path, sharded: Path) -> None:
    merge_archive(sharded, tmp_path / "again")
    assert ArchiveStore.open(tmp_path / "again").version == ArchiveStore.open(tmp_path / "one").version


def test_each_patient_lies_in_the_shard_that_its_key_says(sharded: Path) -> None:
    manifest = read_manifest(sharded)
    for number, store in enumerate(manifest.stores()):
        assert {manifest.owner(info.patient_key) for info in store.listing().volumes} <= {number}
    assert sum(one.volumes for _, one in stat_shards(sharded)) == 12
    assert verify_shards(sharded) == ()


def test_other_numbers_of_shards_come_from_shards_too(tmp_path: Path, sharded: Path) -> None:
    other = split_archive(sharded, tmp_path / "other", shards=5).path
    assert merge_archive(other, tmp_path / "again").volumes == 12
    assert ArchiveStore.open(tmp_path / "again").version == ArchiveStore.open(tmp_path / "one").version


def test_labels_and_secrets_go_along(tmp_path: Path) -> None:
    from diptych.archive.metadata import DateShift
    from diptych.archive.rows import StoredLabels

    path = make_archive(tmp_path / "one", 4)
    with ArchiveWriter.open(path) as writer:
        writer.add_labels("P-000", StoredLabels("v", b"maps"))
    secret = DateShift.of_archive(path).secret
    manifest = read_manifest(split_archive(path, tmp_path / "many", shards=2).path)
    assert {DateShift.of_archive(shard.path).secret for shard in manifest.shards} == {secret}
    versions = [v for store in manifest.stores() for v in store.listing().label_versions]
    assert sorted(versions, key=str) == [None, None, None, "v"]


def test_a_moved_shard_is_found_and_the_old_one_gone(tmp_path: Path, sharded: Path) -> None:
    move_shard(sharded, "shard-01", tmp_path / "elsewhere")
    assert not (sharded / "shard-01").exists()
    assert verify_shards(sharded) == ()
    (tmp_path / "elsewhere").rename(tmp_path / "by hand")
    move_shard(sharded, "shard-01", tmp_path / "by hand", moved=True)
    assert merge_archive(sharded, tmp_path / "again").volumes == 12


def test_the_whole_folder_can_be_moved(tmp_path: Path, sharded: Path) -> None:
    sharded.rename(tmp_path / "renamed")
    assert verify_shards(tmp_path / "renamed") == ()


def test_what_cannot_be_is_refused_by_name(tmp_path: Path, sharded: Path) -> None:
    with pytest.raises(ArchiveError, match="there already"):
        split_archive(tmp_path / "one", sharded, shards=2)
    with pytest.raises(UsageError, match="--shards 0"):
        split_archive(tmp_path / "one", tmp_path / "none", shards=0)
    with pytest.raises(UsageError, match="has the shards shard-00"):
        move_shard(sharded, "shard-9", tmp_path / "x")
    with pytest.raises(ArchiveError, match="one archive, not a sharded one"):
        read_manifest(tmp_path / "one")
    assert not (tmp_path / "none").exists()


def test_a_patient_in_two_shards_is_told_with_both(sharded: Path) -> None:
    manifest = read_manifest(sharded)
    key = manifest.store(0).listing().volumes[0].volume_key
    with ArchiveWriter.open(manifest.shards[1].path) as writer:
        writer.add(manifest.store(0).record(key))
    assert any("is in shard-00 and in shard-01" in problem for problem in verify_shards(sharded))
    with pytest.raises(ArchiveError, match="is in shard-00 and in shard-01"):
        merge_archive(sharded, sharded.with_name("again"))


def test_a_missing_shard_and_one_of_another_model_are_named(tmp_path: Path, sharded: Path) -> None:
    shutil.rmtree(sharded / "shard-02")
    with pytest.raises(ArchiveError, match=r"names shard-02 at .*cluster move"):
        read_manifest(sharded).stores()
    from dataclasses import replace

    from tests.archive.samples import MODEL

    with ArchiveWriter.open(sharded / "shard-02", model=replace(MODEL, fingerprint="b" * 64)) as writer:
        writer.add(make_record(1))
    with pytest.raises(ArchiveMismatchError, match=r"bbbbbbbb.*shard"):
        read_manifest(sharded).stores()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": "x"}', '{"format": "diptych-cluster", "version": 1}'])
def test_a_damaged_manifest_is_one_line(sharded: Path, text: str) -> None:
    (sharded / MANIFEST).write_text(text)
    with pytest.raises(ArchiveError, match=r"cluster\.json"):
        read_manifest(sharded)


def test_two_shards_cannot_share_a_folder(sharded: Path) -> None:
    values = json.loads((sharded / MANIFEST).read_text())
    values["shards"][1]["path"] = values["shards"][0]["path"]
    (sharded / MANIFEST).write_text(json.dumps(values))
    with pytest.raises(ArchiveError, match="two shards have the folder"):
        read_manifest(sharded)


def test_the_commands_do_the_same(diptych: Run, tmp_path: Path) -> None:
    make_archive(tmp_path / "one", 6)
    done = diptych("cluster", "split", "one", "--shards", "2")
    assert (done.returncode, done.stdout) == (0, "one-sharded: 6 volumes, 72 slices in 2 shards\n")
    assert "2 shards, 6 volumes of 3 patients" in diptych("cluster", "stat", "one-sharded").stdout
    assert diptych("cluster", "verify", "one-sharded").returncode == 0
    assert diptych("archive", "stat", "one-sharded/shard-00").returncode == 0
    assert diptych("cluster", "move", "one-sharded", "shard-00", "elsewhere").returncode == 0
    assert diptych("cluster", "merge", "one-sharded", "--out", "again").returncode == 0
    assert diptych("cluster", "split", "nowhere", "--shards", "2").returncode == 6
