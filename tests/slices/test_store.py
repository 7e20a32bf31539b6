"""The store gives back what was put in, and notices when it cannot."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from diptych.errors import StoreError
from diptych.slices import SliceGeometry, SliceStore, slice_volume
from tests.slices.making import SMALL, make_store, make_volume


@pytest.fixture
def store(tmp_path: Path) -> SliceStore:
    return make_store(tmp_path / "store", [make_volume("a", seed=1), make_volume("b", seed=2)])


def file_of(store: SliceStore, key: str, name: str) -> Path:
    (found,) = (p.parent for p in store.path.rglob("patient.json") if json.loads(p.read_text())["patient_key"] == key)
    return found / name


def test_arrays_come_back(store: SliceStore) -> None:
    stack = slice_volume(make_volume("b", seed=2), SMALL).without_blank()
    np.testing.assert_allclose(store.images("b"), stack.images, atol=2e-3)
    np.testing.assert_array_equal(store.lesion("b"), stack.lesion)
    np.testing.assert_array_equal(store.anatomy("b"), stack.anatomy)
    np.testing.assert_allclose(store.twin("b"), stack.twin, atol=2e-3)  # type: ignore[arg-type]


def test_images_are_memory_mapped_halves(store: SliceStore) -> None:
    images = store.images("a")
    assert isinstance(images, np.memmap)
    assert images.dtype == np.float16


def test_records_come_back(store: SliceStore) -> None:
    record = store.patients["a"]
    assert record.z_index == tuple(range(1, 11))
    assert record.lesion_pixels is not None
    assert [n > 0 for n in record.lesion_pixels] == [z in (4, 5, 6) for z in range(1, 11)]
    assert record.pixel_spacing == pytest.approx((2.0, 2.5))


def test_the_manifest_says_how_the_store_was_made(store: SliceStore) -> None:
    manifest = json.loads((store.path / "manifest.json").read_text())
    assert manifest["geometry"] == {"size": [24, 16], "field": [48.0, 40.0]}
    assert (manifest["fill"], manifest["clip"]) == (-3.0, [-3.0, 5.0])
    assert manifest["channels"] == ["t1", "t1gd", "t2", "flair"]
    assert manifest["patients"] == {"a": "hash of a", "b": "hash of b"}
    assert set(manifest["versions"]) == {"python", "diptych", "numpy", "scipy", "nibabel"}


def test_the_same_data_have_the_same_fingerprint(store: SliceStore, tmp_path: Path) -> None:
    volumes = [make_volume("b", seed=2), make_volume("a", seed=1)]
    assert make_store(tmp_path / "again", volumes).fingerprint == store.fingerprint
    assert make_store(tmp_path / "less", volumes[:1]).fingerprint != store.fingerprint


def test_other_geometry_is_refused(store: SliceStore) -> None:
    with pytest.raises(StoreError, match="24x16 pixels over 48x40 mm, not 32x32 pixels over the whole frame"):
        SliceStore.create(store.path, SliceGeometry((32, 32), None), store.channels)


def test_other_channels_are_refused(store: SliceStore) -> None:
    with pytest.raises(StoreError, match="has channels t1, t1gd, t2, flair, not t1"):
        SliceStore.create(store.path, store.geometry, ("t1",))


def test_a_folder_with_other_things_is_not_made_a_store(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(StoreError, match="neither empty nor a slice store"):
        SliceStore.create(tmp_path, SMALL, ("t1",))


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"no manifest\.json"):
        SliceStore.open(tmp_path)


def test_a_newer_format_is_refused(store: SliceStore) -> None:
    manifest = json.loads((store.path / "manifest.json").read_text())
    (store.path / "manifest.json").write_text(json.dumps({**manifest, "format_version": 99}))
    with pytest.raises(StoreError, match="format 99, this program reads 1"):
        SliceStore.open(store.path)


@pytest.mark.parametrize("damage", ["{", "[]", "{}", '{"patient_key": "a"}'])
def test_a_damaged_record_is_noticed(store: SliceStore, damage: str) -> None:
    file_of(store, "a", "patient.json").write_text(damage)
    with pytest.raises(StoreError, match="prepare"):
        SliceStore.open(store.path)


@pytest.mark.parametrize(
    ("name", "value"), [("files", {}), ("z_mm", [1.0]), ("lesion_pixels", [0]), ("pixel_spacing", 2), ("sources", [1])]
)
def test_a_record_that_contradicts_itself_is_noticed(store: SliceStore, name: str, value: object) -> None:
    file = file_of(store, "a", "patient.json")
    file.write_text(json.dumps({**json.loads(file.read_text()), name: value}))
    with pytest.raises(StoreError, match="prepare"):
        SliceStore.open(store.path)


def test_a_missing_file_is_noticed(store: SliceStore) -> None:
    file_of(store, "a", "lesion.npy").unlink()
    with pytest.raises(StoreError, match=r"lesion\.npy: missing"):
        SliceStore.open(store.path)


def test_a_missing_patient_is_noticed(store: SliceStore) -> None:
    file_of(store, "b", "patient.json").unlink()
    with pytest.raises(StoreError, match="patient b is gone"):
        SliceStore.open(store.path)


def test_a_truncated_file_is_noticed(store: SliceStore) -> None:
    file = file_of(store, "a", "images.npy")
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(StoreError, match="bytes instead of"):
        SliceStore.open(store.path)


def test_an_array_of_another_shape_is_noticed(store: SliceStore) -> None:
    images = store.images("a")
    np.save(file_of(store, "a", "images.npy"), np.ascontiguousarray(images.transpose(0, 1, 3, 2)))
    with pytest.raises(StoreError, match="instead of"):
        SliceStore.open(store.path).images("a")


def test_a_flipped_bit_is_noticed_by_verify(store: SliceStore) -> None:
    file = file_of(store, "a", "images.npy")
    data = bytearray(file.read_bytes())
    data[-5] ^= 1
    file.write_bytes(data)
    SliceStore.open(store.path)
    with pytest.raises(StoreError, match="its bytes have changed"):
        SliceStore.open(store.path, verify=True)


def test_an_unknown_patient_is_named(store: SliceStore) -> None:
    with pytest.raises(StoreError, match="no patient z"):
        store.images("z")


def test_hostile_keys_stay_inside_the_store(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", [make_volume("../../outside")])
    assert list(store.patients) == ["../../outside"]
    assert {path.name for path in tmp_path.iterdir()} == {"store"}
