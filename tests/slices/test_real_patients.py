"""Slices of real patients, at 2 mm and at full size. Needs the data beside the repository."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from diptych.slices import MatchedSampler, SliceDataset, SliceStack, SliceStore, slice_volume
from diptych.slices.preparation import prepare
from diptych.slices.splits import given_split, read_keys
from diptych.volumes import find_patients, read_patient

pytestmark = pytest.mark.data


@pytest.fixture(scope="module")
def sources(brats: Path) -> list[Path]:
    return sorted((brats / "patients").iterdir())[:8]


@pytest.fixture(scope="module")
def store(sources: list[Path], tmp_path_factory: pytest.TempPathFactory) -> SliceStore:
    out = tmp_path_factory.mktemp("real") / "store"
    report = prepare(sources, out)
    assert (report.failed, report.warnings) == ({}, {})
    return SliceStore.open(out, verify=True)


def test_brains_fill_the_field_without_leaving_it(store: SliceStore) -> None:
    for key in store.patients:
        brain = store.images(key).max(axis=(0, 1)) > -2.9  # [H, W], seen from above
        rows, columns = np.flatnonzero(brain.any(axis=1)), np.flatnonzero(brain.any(axis=0))
        assert rows[-1] - rows[0] > 0.75 * 128
        assert columns[-1] - columns[0] > 0.75 * 128


def test_left_labels_are_on_the_right_of_the_picture(store: SliceStore) -> None:
    for key in store.patients:
        anatomy = np.asarray(store.anatomy(key))
        columns = np.arange(anatomy.shape[-1])
        left, right = (
            (np.isin(anatomy, side) * columns).sum() / np.isin(anatomy, side).sum() for side in ((1, 3), (2, 4))
        )
        assert left > right


def test_the_cerebellum_is_low_and_at_the_back(store: SliceStore) -> None:
    for key in store.patients:
        slices, rows, _ = np.nonzero(np.isin(np.asarray(store.anatomy(key)), (3, 4)))
        assert slices.mean() < 0.35 * store.patients[key].slices
        assert rows.mean() > 128 / 2


def test_oedema_is_bright_on_flair(store: SliceStore) -> None:
    flair = np.concatenate(
        [np.asarray(store.images(key))[:, 3][np.asarray(store.lesion(key)) == 2] for key in store.patients]
    )
    assert flair.mean() > 1.0


def test_half_of_a_batch_is_diseased(store: SliceStore) -> None:
    dataset = SliceDataset(store)
    sampler = MatchedSampler(dataset.table, batch_size=32, seed=0)
    assert dataset.batch(sampler.draw(0).indices).diseased.sum() == 16


def test_the_given_lists_share_nobody(store: SliceStore, brats: Path) -> None:
    train, test = (set(read_keys(brats / f"{side}.txt")) for side in ("train", "test"))
    given_split(store.patients, sorted(train & set(store.patients)), sorted(test & set(store.patients)))
    assert not train & test


@pytest.fixture(scope="module")
def both_sizes(brats: Path) -> tuple[SliceStack, SliceStack]:
    full = find_patients(brats / "full")[0]
    small = next(files for files in find_patients(brats / "patients") if files.patient_key == full.patient_key)
    return slice_volume(read_patient(full)), slice_volume(read_patient(small))


def test_full_size_and_2_mm_show_the_same_brain(both_sizes: tuple[SliceStack, SliceStack]) -> None:
    full, small = both_sizes
    middle = int(np.argmin(np.abs(small.position - 0.5)))
    nearest = int(np.argmin(np.abs(full.z_mm - small.z_mm[middle])))
    for channel in range(4):
        one, two = full.images[nearest, channel].ravel(), small.images[middle, channel].ravel()
        assert np.corrcoef(one, two)[0, 1] > 0.95


def test_full_size_and_2_mm_lie_in_the_same_place(both_sizes: tuple[SliceStack, SliceStack]) -> None:
    full, small = both_sizes
    np.testing.assert_allclose(full.affine[:2, 3], small.affine[:2, 3], atol=3.0)
    np.testing.assert_allclose(full.pixel_spacing, small.pixel_spacing)
