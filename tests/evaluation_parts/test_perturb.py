from __future__ import annotations

import numpy as np
import pytest
import torch

from diptych.evaluation.parts.robustness import (
    bias_field,
    brighten,
    drop_channel,
    noise,
    perturbations,
    relative_noise,
    rotate,
)
from diptych.slices import FILL, Batch, SliceDataset
from diptych.volumes import CHANNELS
from tests.slices.making import make_store, make_volume


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Batch:
    """Three diseased slices that are not square."""
    store = make_store(tmp_path_factory.mktemp("perturb"), [make_volume()])
    dataset = SliceDataset(store)
    return dataset.batch(np.flatnonzero(dataset.table.diseased))


def test_nothing_changes_outside_the_brain(batch: Batch) -> None:
    outside = batch.image == FILL
    for changed in (noise(batch, 0.5, seed=0), brighten(batch, 0.3), bias_field(batch, 0.2)):
        assert torch.equal(changed.image[outside], batch.image[outside])


def test_relative_noise_is_a_share_of_the_signal(batch: Batch) -> None:
    middling = (batch.image > -1) & (batch.image < 1)
    signal = (batch.image - FILL)[middling]
    share = ((relative_noise(batch, 0.02, seed=0).image - batch.image)[middling] / signal).std()
    assert float(share) == pytest.approx(0.02, rel=0.1)


def test_a_bias_field_darkens_the_front_and_brightens_the_back(batch: Batch) -> None:
    change = bias_field(batch, 0.2).image - batch.image
    assert change[:, :, :8].sum() < 0 < change[:, :, -8:].sum()


def test_a_rotation_turns_labels_with_the_image(batch: Batch) -> None:
    turned = rotate(batch, 10.0)
    assert not torch.equal(turned.image, batch.image)
    assert not torch.equal(turned.lesion, batch.lesion)
    assert int((turned.lesion > 0).sum()) == pytest.approx(int((batch.lesion > 0).sum()), rel=0.25)


def test_a_lost_channel_is_blank_and_the_others_stay(batch: Batch) -> None:
    image = drop_channel(batch, 1).image
    assert (image[:, 1] == FILL).all()
    assert torch.equal(image[:, [0, 2, 3]], batch.image[:, [0, 2, 3]])


def test_each_change_is_the_same_every_time(batch: Batch) -> None:
    for first, second in zip(perturbations(CHANNELS), perturbations(CHANNELS), strict=True):
        assert torch.equal(first.apply(batch).image, second.apply(batch).image)
