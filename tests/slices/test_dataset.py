"""The dataset: the right pixels under the right index, from one store or several."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from diptych.errors import StoreError
from diptych.slices import FILL, PAPER_AUGMENTATION, SliceDataset, SliceStore
from tests.slices.making import SMALL, make_store, make_volume


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> SliceStore:
    volumes = [make_volume("a", seed=1), make_volume("b", seed=2, lesion_at=()), make_volume("c", seed=3)]
    volumes[2] = replace(volumes[2], anatomy=None, twin=None)
    return make_store(tmp_path_factory.mktemp("dataset") / "store", volumes)


def test_a_batch_holds_the_stored_slices_in_the_order_asked_for(store: SliceStore) -> None:
    batch = SliceDataset(store, ["c", "a"]).batch([13, 2, 7])
    expected = np.stack([store.images("a")[3], store.images("c")[2], store.images("c")[7]])
    np.testing.assert_array_equal(batch.image, expected.astype(np.float32))
    lesions = [store.lesion("a")[3], store.lesion("c")[2], store.lesion("c")[7]]  # type: ignore[index]
    np.testing.assert_array_equal(batch.lesion, np.stack(lesions))


def test_shapes_and_types(store: SliceStore) -> None:
    batch = SliceDataset(store).batch([0, 15])
    assert (batch.image.shape, batch.image.dtype) == ((2, 4, 24, 16), torch.float32)
    assert (batch.lesion.shape, batch.lesion.dtype) == ((2, 24, 16), torch.int64)
    assert (batch.anatomy.shape, batch.anatomy.dtype) == ((2, 24, 16), torch.int64)
    torch.testing.assert_close(batch.pixel_spacing, torch.tensor([[2.0, 2.5], [2.0, 2.5]]))


def test_a_patient_without_anatomy_has_background_and_says_so(store: SliceStore) -> None:
    batch = SliceDataset(store).batch([5, 25])
    assert batch.has_anatomy.tolist() == [True, False]
    assert batch.anatomy[0].any()
    assert not batch.anatomy[1].any()


def test_a_batch_with_no_anatomy_at_all(store: SliceStore) -> None:
    assert SliceDataset(store, ["c"]).batch([0, 1]).anatomy.shape == (2, 24, 16)


def test_diseased_follows_the_labels(store: SliceStore) -> None:
    dataset = SliceDataset(store)
    batch = dataset.batch(range(len(dataset)))
    assert torch.equal(batch.diseased, batch.lesion.flatten(1).any(dim=1))
    assert dataset.table.diseased.sum() == 6


def test_twins_come_when_asked_for_and_say_who_has_one(store: SliceStore) -> None:
    batch = SliceDataset(store, with_twin=True).batch([3, 25])
    assert batch.twin is not None
    assert batch.has_twin.tolist() == [True, False]
    np.testing.assert_array_equal(batch.twin[0], store.twin("a")[3].astype(np.float32))  # type: ignore[index]
    assert torch.equal(batch.twin[1], batch.image[1])


def test_no_twins_unless_asked_for(store: SliceStore) -> None:
    assert SliceDataset(store).batch([3]).twin is None


def test_a_dataset_with_grafts_has_more_known_twins(store: SliceStore) -> None:
    dataset = SliceDataset(store, ["c"], augmentation=PAPER_AUGMENTATION, graft_share=1.0)
    diseased, healthy = (int(np.flatnonzero(dataset.table.diseased == kind)[0]) for kind in (True, False))
    assert dataset.batch([healthy, diseased], [1, 2]).has_twin.tolist() == [False, True]


def test_in_order_gives_every_slice_once(store: SliceStore) -> None:
    indices = [index for batch in SliceDataset(store).in_order(7) for index in batch.index.tolist()]
    assert indices == list(range(30))


def test_seeds_switch_augmentation_on(store: SliceStore) -> None:
    dataset = SliceDataset(store, augmentation=PAPER_AUGMENTATION)
    plain, turned, again = dataset.batch([3]), dataset.batch([3], [11]), dataset.batch([3], [11])
    assert not torch.equal(plain.image, turned.image)
    assert torch.equal(turned.image, again.image)


def test_an_item_is_a_dict_for_any_data_loader(store: SliceStore) -> None:
    torch.manual_seed(0)
    loader = DataLoader(SliceDataset(store, augmentation=PAPER_AUGMENTATION), batch_size=4, shuffle=True)
    batch = next(iter(loader))
    assert batch["image"].shape == (4, 4, 24, 16)
    assert len(batch["patient_key"]) == 4


def test_background_stays_fill_through_augmentation(store: SliceStore) -> None:
    batch = SliceDataset(store, augmentation=PAPER_AUGMENTATION).batch(range(10), range(10))
    assert torch.all(batch.image >= FILL - 1e-4)
    assert batch.image[:, :, 0, 0] == pytest.approx(FILL)


def test_stores_can_be_combined(store: SliceStore, tmp_path: Path) -> None:
    other = make_store(tmp_path / "other", [make_volume("z", seed=9)])
    dataset = SliceDataset([store, other], ["z", "b"])
    np.testing.assert_array_equal(dataset.batch([4]).image[0], other.images("z")[4].astype(np.float32))


def test_stores_of_other_geometry_cannot(store: SliceStore, tmp_path: Path) -> None:
    other = make_store(tmp_path / "other", [make_volume("z")], replace(SMALL, field=None))
    with pytest.raises(StoreError, match="channels or geometry differ"):
        SliceDataset([store, other])


def test_a_patient_in_two_stores_is_refused(store: SliceStore, tmp_path: Path) -> None:
    other = make_store(tmp_path / "other", [make_volume("a")])
    with pytest.raises(StoreError, match="patient a: both in"):
        SliceDataset([store, other])


def test_an_unknown_patient_is_named(store: SliceStore) -> None:
    with pytest.raises(StoreError, match="patient nobody: not in"):
        SliceDataset(store, ["nobody"])


def test_a_patient_without_lesion_labels_is_refused_not_called_healthy(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", [replace(make_volume("a"), lesion=None)])
    with pytest.raises(StoreError, match="patient a: has no lesion labels"):
        SliceDataset(store)


def test_a_pickled_dataset_maps_its_files_anew(store: SliceStore) -> None:
    dataset = SliceDataset(store)
    before = dataset.batch([3])
    pickled = pickle.dumps(dataset)
    assert len(pickled) < 20_000
    assert torch.equal(pickle.loads(pickled).batch([3]).image, before.image)  # noqa: S301
