"""Figures on validation patients, against hand-counted ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from diptych.config import get_preset
from diptych.model import Decomposition, FeatureDecomposingNetwork
from diptych.slices import SliceDataset
from diptych.training.pictures import choose_examples, make_examples
from diptych.training.training_options import override
from diptych.training.validation import validate
from tests.training.tiny import SETTINGS, tiny_store

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> SliceDataset:
    store = tiny_store(tmp_path_factory.mktemp("validate") / "store")
    return SliceDataset(store, ["patient-1", "patient-4"], with_twin=True)


class Oracle(FeatureDecomposingNetwork):
    """Knows the truth of a dataset, and gives it with a chosen error."""

    def __init__(self, dataset: SliceDataset, *, error: float, missed: bool, anatomy: bool = False) -> None:
        super().__init__(override(get_preset("cpu-8x8"), SETTINGS).model)
        self.batches = dataset.in_order(32)
        self.error, self.missed, self.anatomy = error, missed, anatomy

    def decompose(self, images: torch.Tensor) -> Decomposition:
        batch = next(self.batches)
        assert batch.twin is not None
        lesion = torch.zeros_like(batch.lesion) if self.missed else batch.lesion
        ids = torch.arange(len(images) * 24).reshape(-1, 6, 4) % 4
        code = self.normal_quantizer.lookup(ids)
        return Decomposition(
            normal_ids=ids,
            abnormal_ids=torch.zeros_like(ids),
            normal_code=code,
            abnormal_code=code,
            lesion_probabilities=torch.nn.functional.one_hot(lesion, 4).movedim(-1, 1).float(),
            anatomy_probabilities=torch.nn.functional.one_hot(batch.anatomy, 7).movedim(-1, 1).float()
            if self.anatomy
            else None,
            reconstruction=batch.image + self.error,
            healthy_twin=batch.twin,
            normal_error=torch.zeros(len(images), 6, 4),
            abnormal_error=torch.zeros(len(images), 6, 4),
        )


def test_truth_scores_full_marks(dataset: SliceDataset) -> None:
    figures = validate(Oracle(dataset, error=0.25, missed=False), dataset, device=CPU)
    assert figures["dice_whole"] == figures["dice_ed"] == figures["dice_et"] == 1
    assert figures["dice_net"] != figures["dice_net"]  # no patient has that class, nor was it predicted
    assert figures["reconstruction_error"] == pytest.approx(0.25, rel=1e-5)
    assert figures["score"] == pytest.approx(0.75, rel=1e-5)


def test_anatomy_counts_where_it_is_known_and_predicted(dataset: SliceDataset) -> None:
    without = validate(Oracle(dataset, error=0.0, missed=False), dataset, device=CPU)
    with_it = validate(Oracle(dataset, error=0.0, missed=False, anatomy=True), dataset, device=CPU)
    assert "dice_anatomy" not in without
    assert with_it["dice_anatomy"] == 1
    assert with_it["score"] == pytest.approx(without["score"] + 1)


def test_missed_lesion_scores_zero(dataset: SliceDataset) -> None:
    figures = validate(Oracle(dataset, error=0.0, missed=True), dataset, device=CPU)
    assert figures["dice_whole"] == 0


def test_true_twin_is_told_from_the_input(dataset: SliceDataset) -> None:
    figures = validate(Oracle(dataset, error=0.0, missed=False), dataset, device=CPU)
    assert figures["twin_error"] == 0
    assert figures["twin_error_of_input"] == figures["lesion_change"] > 1


def test_use_of_codebooks_is_counted(dataset: SliceDataset) -> None:
    figures = validate(Oracle(dataset, error=0.0, missed=False), dataset, device=CPU)
    assert (figures["normal_usage"], figures["abnormal_usage"]) == (4 / 16, 1 / 16)
    assert figures["normal_perplexity"] == pytest.approx(4, rel=1e-5)


def test_dice_is_taken_by_volume(dataset: SliceDataset) -> None:
    """Against a few lines that count voxels patient by patient."""
    torch.manual_seed(0)
    network = FeatureDecomposingNetwork(override(get_preset("cpu-8x8"), SETTINGS).model)
    with torch.no_grad():
        network.segmentation_decoder.out.weight.mul_(100)
    figures = validate(network, dataset, device=CPU)
    network.eval()
    expected = []
    for patient in range(2):
        batch = dataset.batch((dataset.table.patient == patient).nonzero()[0])
        predicted = network.decompose(batch.image).lesion_probabilities.argmax(dim=1)
        shared = ((predicted > 0) & (batch.lesion > 0)).sum()
        expected.append(2 * shared / ((predicted > 0).sum() + (batch.lesion > 0).sum()))
    assert figures["dice_whole"] == pytest.approx(float(torch.stack(expected).mean()))


def test_network_keeps_its_mode(dataset: SliceDataset) -> None:
    network = FeatureDecomposingNetwork(override(get_preset("cpu-8x8"), SETTINGS).model).train()
    validate(network, dataset, device=CPU)
    assert network.training


def test_examples_show_lesions_and_one_healthy_slice(dataset: SliceDataset, tmp_path: Path) -> None:
    indices = choose_examples(dataset)
    assert dataset.table.diseased[indices].tolist() == [True, True, False]
    network = FeatureDecomposingNetwork(override(get_preset("cpu-8x8"), SETTINGS).model)
    first = make_examples(network, dataset, indices, device=CPU)[0]
    assert first.true_twin is not None
    assert first.healthy_twin.shape == first.image.shape == (4, 48, 32)
