"""Label decoders: small maps that are nearer to the truth, kept beside their model and used by its searches."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from diptych.cli.app import app
from diptych.config import ModelConfig
from diptych.errors import ModelError, StoreError, UsageError
from diptych.fitting import label_fit as label_fitting
from diptych.fitting.fit_data import under_other_conditions
from diptych.fitting.label_fit import fit_label_decoders, judge_labels
from diptych.metrics.decoded_planes import PlaneDecoder
from diptych.metrics.label_decoders import LABEL_DECODERS, LabelDecoders
from diptych.model import FeatureDecomposingNetwork, save_model
from diptych.model.label_networks import GRID, LabelDecoder, label_shares
from diptych.model.losses import label_loss
from diptych.retrieval import Archive
from diptych.slices import PAPER_AUGMENTATION, SliceDataset, SliceGeometry, SliceStore
from tests.retrieval.making import CONFIG, make_record, tiny_network, write_archive
from tests.retrieval.spotted import seeing_network, spotted_store, spotted_volume
from tests.slices.making import make_store, make_volume

IDS = torch.randint(20, (3, *CONFIG.latent_size), generator=torch.Generator().manual_seed(1))


def untrained(network: FeatureDecomposingNetwork, *, seed: int = 0) -> LabelDecoders:
    torch.manual_seed(seed)
    decoders = {"normal": LabelDecoder(CONFIG, classes=6), "abnormal": LabelDecoder(CONFIG, classes=3)}
    return LabelDecoders(network, {panel: decoder.eval() for panel, decoder in decoders.items()})


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_fitting, "BATCH_SIZE", 8)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> SliceStore:
    return spotted_store(tmp_path_factory.mktemp("labels") / "store", [spotted_volume(number) for number in range(30)])


@pytest.fixture(scope="module")
def seeing(store: SliceStore) -> FeatureDecomposingNetwork:
    return seeing_network(store)


@pytest.mark.parametrize("grid", [(4, 4), (4, 8), (8, 8), (16, 16), (6, 12), (32, 32), (64, 64)])
def test_every_grid_gives_maps_of_one_size(grid: tuple[int, int]) -> None:
    config = ModelConfig(
        image_size=(4 * grid[0], 4 * grid[1]), latent_size=grid, widths=(4, 4, 4), code_width=5, codebook_size=7
    )
    ids = torch.randint(7, (2, *grid))
    assert LabelDecoder(config, classes=3)(ids, torch.randn(7, 5)).shape == (2, 4, *GRID)


def test_shares_add_up_to_one_and_count_pixels() -> None:
    labels = torch.zeros(1, 64, 64, dtype=torch.long)
    labels[0, 0, 0], labels[0, :2, 2:4] = 2, 1
    shares = label_shares(labels, classes=2)
    torch.testing.assert_close(shares.sum(dim=1), torch.ones(1, *GRID))
    assert shares[0, :, 0, 0].tolist() == [0.75, 0, 0.25]
    assert shares[0, :, 0, 1].tolist() == [0, 1, 0]


def test_the_loss_is_least_at_the_truth() -> None:
    truth = label_shares(torch.randint(3, (2, 32, 32)), classes=2)
    right, undecided = (truth + 1e-6).log(), torch.zeros_like(truth)
    assert label_loss(right, truth) < 0.01
    assert label_loss(undecided, truth) > 1
    healthy = label_shares(torch.zeros(2, 32, 32, dtype=torch.long), classes=2)
    assert torch.isfinite(label_loss(undecided, healthy))


def test_decoders_learn_what_codes_stand_for(store: SliceStore, seeing: FeatureDecomposingNetwork) -> None:
    fitted = fit_label_decoders(seeing, SliceDataset(store, augmentation=PAPER_AUGMENTATION), steps=40)
    assert set(fitted.decoders) == {"abnormal"}, "these patients have no anatomy labels"
    figures = judge_labels(fitted, SliceDataset(store))
    assert figures is not None
    assert figures.after["abnormal"] > 0.5 > figures.before["abnormal"]


def test_fitting_by_steps_always_gives_the_same(store: SliceStore, seeing: FeatureDecomposingNetwork) -> None:
    dataset = SliceDataset(store, augmentation=PAPER_AUGMENTATION)
    assert len({fit_label_decoders(seeing, dataset, steps=2, seed=5).version for _ in range(2)}) == 1


def test_a_length_of_nothing_is_refused(store: SliceStore, seeing: FeatureDecomposingNetwork) -> None:
    with pytest.raises(UsageError, match="length of fitting 0: must be above 0"):
        fit_label_decoders(seeing, SliceDataset(store), steps=0)


def test_slices_of_another_geometry_are_refused(tmp_path: Path, seeing: FeatureDecomposingNetwork) -> None:
    other = make_store(tmp_path / "s", [make_volume("P")], SliceGeometry(size=(16, 16), field=CONFIG.field_mm))
    with pytest.raises(StoreError, match="prepare them with the model's preset"):
        fit_label_decoders(seeing, SliceDataset(other), steps=1)


def test_saved_decoders_come_back(network: FeatureDecomposingNetwork, tmp_path: Path) -> None:
    decoders = untrained(network)
    decoders.save(tmp_path)
    opened = LabelDecoders.open(tmp_path, network)
    assert opened is not None
    assert opened.version == decoders.version
    for panel in ("normal", "abnormal"):
        torch.testing.assert_close(opened.shares(panel, IDS), decoders.shares(panel, IDS), atol=2e-3, rtol=0)


def test_a_model_without_decoders_has_none(network: FeatureDecomposingNetwork, tmp_path: Path) -> None:
    assert LabelDecoders.open(tmp_path, network) is None
    assert LabelDecoders.open(None, network) is None


def test_decoders_of_another_model_are_refused(network: FeatureDecomposingNetwork, tmp_path: Path) -> None:
    untrained(network).save(tmp_path)
    with pytest.raises(
        ModelError, match=r"was made for model .*; delete it, or make it again with 'diptych fit labels"
    ):
        LabelDecoders.open(tmp_path, tiny_network(seed=9))


def test_decoders_of_another_shape_are_refused(network: FeatureDecomposingNetwork, tmp_path: Path) -> None:
    LABEL_DECODERS.write(tmp_path, {"normal.place": np.zeros(3)}, fingerprint=network.fingerprint)
    with pytest.raises(ModelError, match=r"label-decoders.safetensors: its tensors do not fit the model"):
        LabelDecoders.open(tmp_path, network)


def test_an_archive_compares_by_the_decoders_beside_its_model(
    network: FeatureDecomposingNetwork, tmp_path: Path
) -> None:
    save_model(network, tmp_path / "model")
    path = write_archive(tmp_path / "A", network, [make_record(number) for number in range(2)])

    def planes() -> tuple[int, ...]:
        decoded = Archive.open(path, model=tmp_path / "model").searcher.planes
        assert decoded is not None
        areas = decoded.planes()["normal"].areas
        return tuple(map(int, areas.sum(axis=0)))

    by_network = planes()
    untrained(network).save(tmp_path / "model")
    first = planes()
    assert first != by_network
    untrained(network, seed=1).save(tmp_path / "model")
    assert planes() != first, "maps of other decoders were taken from the cache"
    (tmp_path / "model" / LABEL_DECODERS.file).unlink()
    assert planes() == by_network


def test_a_model_without_an_anatomy_head_gets_anatomy_to_compare(tmp_path: Path) -> None:
    headless = tiny_network(config=replace(CONFIG, anatomy_classes=0))
    volumes = [make_volume(f"P{number}", seed=number) for number in range(2)]
    store = make_store(tmp_path / "s", volumes, SliceGeometry(size=CONFIG.image_size, field=CONFIG.field_mm))
    fitted = fit_label_decoders(headless, SliceDataset(store), steps=1)
    figures = judge_labels(fitted, SliceDataset(store))
    assert figures is not None
    assert (set(figures.before), set(figures.after)) == ({"abnormal"}, {"normal", "abnormal"})
    assert PlaneDecoder(headless).panels == ("abnormal",)
    assert PlaneDecoder(headless, fitted).panels == ("normal", "abnormal")


def test_the_command_says_how_much_is_gained(tmp_path: Path) -> None:
    save_model(tiny_network(), tmp_path / "model")
    volumes = [make_volume(f"P{number}", seed=number, lesion_at=(4, 5, 4 + number)) for number in range(4)]
    make_store(tmp_path / "store", volumes, SliceGeometry(size=CONFIG.image_size, field=CONFIG.field_mm))
    command = ["fit-labels", str(tmp_path / "store"), "--model", str(tmp_path / "model"), "--steps", "2", "--json"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["judged"]["after"].keys() == report["judged"]["before"].keys() == {"normal", "abnormal"}
    assert (tmp_path / "model" / LABEL_DECODERS.file).exists()


def test_fitting_goes_on_from_given_decoders(seeing: FeatureDecomposingNetwork, store: SliceStore) -> None:
    dataset = SliceDataset(store, augmentation=PAPER_AUGMENTATION)
    first = fit_label_decoders(seeing, dataset, steps=20)
    again = fit_label_decoders(seeing, dataset, steps=1, start=first)
    fresh = fit_label_decoders(seeing, dataset, steps=1)
    figures = [judge_labels(decoders, dataset) for decoders in (first, again, fresh)]
    before, after, nothing = (one.after["abnormal"] for one in figures if one is not None)
    assert after > 0.8 * before > nothing


def test_label_decoders_of_a_model_that_can_do_without_channels_see_such_slices() -> None:
    assert under_other_conditions(CONFIG) == PAPER_AUGMENTATION
    changes = under_other_conditions(replace(CONFIG, sufficient_channels=(1, 3)))
    assert changes.channel_dropout > 0
    assert changes.sufficient_channels == (1, 3)
