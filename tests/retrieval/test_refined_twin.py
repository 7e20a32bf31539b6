"""Refined twins: what is outside the lesion stays as scanned, what is inside is learnt from healthy tissue."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from diptych.errors import ModelError
from diptych.evaluation.context import Context
from diptych.evaluation.parts import inpainting, load_part
from diptych.fitting import refiner_fit
from diptych.fitting.refiner_fit import fit_refiner, healthy_voids, judge_fill, judge_refiner, lay_voids
from diptych.model import FeatureDecomposingNetwork, save_model
from diptych.model.losses import ssim, ssim_map
from diptych.model.refiner import Refiner, filled, void_of
from diptych.progress import silent
from diptych.retrieval.explanation import SlicePixels, view_slices
from diptych.retrieval.refined_twin import REFINER_FILE, TwinRefiner
from diptych.slices import FILL, PAPER_AUGMENTATION, SliceDataset, SliceStore
from tests.retrieval.making import tiny_network
from tests.retrieval.running import run
from tests.retrieval.spotted import seeing_network, spotted_store, spotted_volume


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> SliceStore:
    return spotted_store(tmp_path_factory.mktemp("refined") / "store", [spotted_volume(number) for number in range(8)])


@pytest.fixture(scope="module")
def network(store: SliceStore) -> FeatureDecomposingNetwork:
    return seeing_network(store)


@pytest.fixture(scope="module")
def refiner(store: SliceStore, network: FeatureDecomposingNetwork) -> TwinRefiner:
    return fit_refiner(network, SliceDataset(store, augmentation=PAPER_AUGMENTATION), steps=3)


def test_pixels_outside_the_lesion_stay_as_scanned(store: SliceStore, refiner: TwinRefiner) -> None:
    key = next(iter(store.patients))
    lesion = np.array(store.lesion(key))
    place = int(np.argmax((lesion > 0).sum(axis=(1, 2))))
    image = np.asarray(store.images(key)[place], dtype=np.float32)
    painted = refiner(image, lesion[place])
    void = void_of(torch.from_numpy(lesion[place])[None])[0].numpy() & (image > FILL).any(axis=0)
    assert np.array_equal(painted[:, ~void], image[:, ~void])
    assert not np.array_equal(painted[:, void], image[:, void])


def test_what_lies_in_the_void_is_never_seen(store: SliceStore, refiner: TwinRefiner) -> None:
    images = torch.from_numpy(np.asarray(store.images(next(iter(store.patients)))[:2], dtype=np.float32))
    void = torch.zeros(images.shape[0], *images.shape[2:], dtype=torch.bool)
    void[:, 20:30, 24:40] = True
    other = images.clone()
    other[:, :, 20:30, 24:40] += 1.5 * (images[:, :, 20:30, 24:40] > FILL)
    assert torch.equal(refiner.paint(images, void)[:, :, void[0]], refiner.paint(other, void)[:, :, void[0]])


def test_a_void_is_filled_with_the_mean_of_the_brain_around_it() -> None:
    images = torch.full((1, 1, 4, 6), FILL)
    images[0, 0, 1:3, 1:5] = torch.tensor([[1.0, 1.0, 9.0, 3.0], [1.0, 1.0, 9.0, 3.0]])
    void = images[:, 0] == 9.0
    assert filled(images, void, FILL)[0, 0, 1, 3] == pytest.approx(10 / 6)


def test_a_slices_own_lesion_is_not_judged() -> None:
    images, own, other = torch.zeros(1, 2, 16, 20), torch.zeros(1, 16, 20), torch.zeros(1, 16, 20)
    own[0, 2:4, 2:4], other[0, 10:12, 12:15] = 1, 1
    given = lay_voids(images, own, other)
    assert not (given.known & void_of(own)).any()
    assert torch.equal(given.void, void_of(own) | void_of(other))


def test_the_truth_is_a_perfect_fill(store: SliceStore) -> None:
    voided = healthy_voids(SliceDataset(store), count=3)
    assert judge_fill(lambda given: given.images, voided).ssim == pytest.approx((1.0,) * 4)


def test_maps_of_similarity_have_the_mean_of_ssim_inside() -> None:
    first, second = torch.rand(2, 1, 1, 24, 30, generator=torch.Generator().manual_seed(0))
    inner = ssim_map(first, second, data_range=1.0)[..., 5:-5, 5:-5].mean()
    assert float(inner) == pytest.approx(float(ssim(first, second, data_range=1.0)), abs=1e-6)


def test_a_file_belongs_to_its_model(tmp_path: Path, refiner: TwinRefiner) -> None:
    path = refiner.save(tmp_path)
    again = TwinRefiner.open(tmp_path, refiner.network)
    assert again is not None
    assert all(torch.equal(a, b) for a, b in zip(again.refiner.parameters(), refiner.refiner.parameters(), strict=True))
    with pytest.raises(ModelError, match=r"was made for model .* fit refiner"):
        TwinRefiner.open(tmp_path, tiny_network(seed=5))
    path.unlink()
    assert TwinRefiner.open(tmp_path, refiner.network) is None


def test_a_view_has_a_refined_twin_where_there_are_pixels(store: SliceStore, refiner: TwinRefiner) -> None:
    key = next(iter(store.patients))
    image = np.asarray(store.images(key)[3], dtype=np.float32)
    ids = refiner.network.encode(torch.from_numpy(image)[None])
    grids = ids.normal.repeat(2, 1, 1).numpy(), ids.abnormal.repeat(2, 1, 1).numpy()
    bare, seen = view_slices(refiner.network, *grids, [None, SlicePixels(image, None, None)], refiner=refiner)
    assert bare.refined_twin is None
    assert seen.refined_twin is not None
    assert seen.refined_twin.shape == image.shape


def test_a_part_of_the_evaluation_shows_it_beside_simpler_fills(
    tmp_path: Path, store: SliceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inpainting, "SLICES", 3)
    model = tmp_path / "model"
    save_model(tiny_network(), model)
    context = Context.open([store], model, cache=tmp_path / "cache")
    part = load_part("inpainting")
    assert "left_out" in part.run(context, silent).numbers
    TwinRefiner(context.network, Refiner(4)).save(model)
    section = part.run(context, silent)
    assert {row[0] for row in section.tables[0].rows} >= {"biharmonic", "mirror image", "refiner"}


def test_the_command_fits_one(tmp_path: Path, store: SliceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refiner_fit, "JUDGED", 3)
    model = tmp_path / "model"
    save_model(tiny_network(), model)
    done = run("fit", "refiner", str(store.path), "--model", str(model), "--steps", "1")
    assert done.exit_code == 0, done.output
    assert (model / REFINER_FILE).is_file()
    assert "SSIM" in done.output


def test_it_takes_any_number_of_channels_and_sizes() -> None:
    painted = Refiner(1)(torch.zeros(2, 1, 24, 40), torch.ones(2, 24, 40, dtype=torch.bool), torch.ones(2, 1, 24, 40))
    assert painted.shape == (2, 1, 24, 40)


def test_judging_needs_healthy_slices(store: SliceStore, refiner: TwinRefiner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refiner_fit, "JUDGED", 2)
    figures = judge_refiner(refiner, SliceDataset(store))
    assert figures is not None
    assert len(figures.psnr) == 4
