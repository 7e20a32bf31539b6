"""The moving average of the weights follows the network as a plain formula says."""

from __future__ import annotations

import torch

from diptych.config import get_preset
from diptych.model import FeatureDecomposingNetwork
from diptych.training.step import AveragedNetwork
from diptych.training.training_options import override
from tests.training.tiny import SETTINGS


def make_network() -> FeatureDecomposingNetwork:
    torch.manual_seed(0)
    return FeatureDecomposingNetwork(override(get_preset("cpu-8x8"), SETTINGS).model)


def test_weights_and_codebooks_are_averaged() -> None:
    network = make_network()
    average = AveragedNetwork(network, decay=0.5)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    with torch.no_grad():
        for value in (*network.parameters(), network.normal_quantizer.codebook):
            value += 1
    average.follow(network, step=1000)
    for name in ("normal_quantizer.codebook", "encoder.trunk.0.weight"):
        torch.testing.assert_close(average.network.state_dict()[name], before[name] + 0.5)


def test_counts_are_copied() -> None:
    network = make_network()
    average = AveragedNetwork(network, decay=0.5)
    network.normal_quantizer.counts += 7
    average.follow(network, step=1000)
    assert torch.equal(average.network.normal_quantizer.counts, network.normal_quantizer.counts)


def test_the_start_is_forgotten_at_once() -> None:
    network = make_network()
    average = AveragedNetwork(network, decay=0.99)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(1)
    average.follow(network, step=0)
    for ours, theirs in zip(average.network.parameters(), network.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_the_average_learns_nothing_by_itself() -> None:
    assert not any(parameter.requires_grad for parameter in AveragedNetwork(make_network(), 0.9).network.parameters())
