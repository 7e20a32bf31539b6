"""Splits: by seed, by list, and never one person on both sides."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from diptych.errors import StoreError, UsageError
from diptych.slices import PatientRecord, SliceStore
from diptych.slices.splits import Split, check_split, given_split, read_keys, seeded_split
from tests.slices.making import make_store, make_volume


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> SliceStore:
    return make_store(tmp_path_factory.mktemp("splits") / "store", [make_volume("a")])


def people(store: SliceStore, **voxel_hashes: str) -> dict[str, PatientRecord]:
    """Records under other keys (`_` stands for `-`) with the given voxel hashes."""
    keys = {name.replace("_", "-"): voxels for name, voxels in voxel_hashes.items()}
    return {key: replace(store.patients["a"], patient_key=key, voxel_hash=voxels) for key, voxels in keys.items()}


def many(store: SliceStore, count: int) -> dict[str, PatientRecord]:
    return people(store, **{f"p{i:03d}": f"voxels {i}" for i in range(count)})


def test_a_seeded_split_takes_every_patient_once(store: SliceStore) -> None:
    split = seeded_split(many(store, 50), train=0.8, seed=3)
    assert (len(split.train), len(split.test)) == (40, 10)
    assert sorted(split.train + split.test) == sorted(many(store, 50))


def test_the_seed_decides(store: SliceStore) -> None:
    one, same, other = (seeded_split(many(store, 50), train=0.8, seed=seed) for seed in (3, 3, 4))
    assert one == same != other


def test_one_person_under_several_keys_stays_on_one_side(store: SliceStore) -> None:
    tied = people(store, BraTS_GLI_00001_000="x", BraTS_GLI_00001_001="y", copy="y", second_copy="x")
    patients = {**many(store, 8), **tied}
    for seed in range(20):
        split = seeded_split(patients, train=0.5, seed=seed)
        assert len(set(tied) & set(split.train)) in (0, 4)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -1.0, 80.0])
def test_an_impossible_fraction_is_refused(store: SliceStore, fraction: float) -> None:
    with pytest.raises(UsageError, match="must lie between 0 and 1"):
        seeded_split(many(store, 5), train=fraction, seed=0)


def test_an_empty_side_is_refused(store: SliceStore) -> None:
    with pytest.raises(UsageError, match="one side is empty"):
        seeded_split(many(store, 1), train=0.8, seed=0)


def test_a_key_on_both_sides_is_refused(store: SliceStore) -> None:
    with pytest.raises(StoreError, match="patient p001: listed for training and for testing"):
        given_split(many(store, 3), ["p000", "p001"], ["p001", "p002"])


def test_the_same_voxels_on_both_sides_are_refused_naming_both(store: SliceStore) -> None:
    patients = people(store, anna="x", berta="y", carla="x")
    with pytest.raises(StoreError, match=r"patients anna \(training\) and carla \(testing\) have the same voxels"):
        given_split(patients, ["anna", "berta"], ["carla"])


def test_two_time_points_on_both_sides_are_refused(store: SliceStore) -> None:
    patients = people(store, BraTS_GLI_00001_000="x", BraTS_GLI_00001_001="y")
    with pytest.raises(StoreError, match="are time points of one subject"):
        given_split(patients, ["BraTS-GLI-00001-000"], ["BraTS-GLI-00001-001"])


def test_an_unknown_key_is_refused(store: SliceStore) -> None:
    with pytest.raises(StoreError, match="patient nobody: in the split but not in the store"):
        check_split(Split(("p000",), ("nobody",)), many(store, 2))


def test_a_split_comes_back_from_its_file(tmp_path: Path) -> None:
    split = Split(("a", "b"), ("c",))
    split.save(tmp_path / "split.json")
    assert Split.load(tmp_path / "split.json") == split


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"train": 1, "test": 2}'])
def test_what_is_no_split_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "split.json").write_text(text)
    with pytest.raises(StoreError, match="not a split"):
        Split.load(tmp_path / "split.json")


def test_lists_may_have_comments_and_repeats(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("# training\np1\n\n  p2 \np1\n")
    assert read_keys(tmp_path / "list.txt") == ("p1", "p2")
