"""Every shape of appendix C, and parameter counts added up by hand from its tables."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from diptych.config import PRESETS, ModelConfig, get_preset
from diptych.model import Critic, FeatureDecomposingNetwork
from diptych.model.encoder import Encoder

PAPER = ["paper-4x4", "paper-8x8", "paper-16x16", "paper-32x32"]


def shapes_of(modules: nn.Module, *inputs: Tensor) -> list[tuple[int, ...]]:
    """Output shapes, without the batch, of the children of a sequence."""
    found: list[tuple[int, ...]] = []
    hooks = [
        child.register_forward_hook(lambda _module, _inputs, out: found.append(tuple(out.shape[1:])))
        for child in modules.children()
    ]
    modules(*inputs)
    for hook in hooks:
        hook.remove()
    return found


def test_encoder_has_the_shapes_of_table_c1() -> None:
    with torch.device("meta"):
        encoder = Encoder(get_preset("paper-8x8").model)
        trunk = shapes_of(encoder.trunk, torch.empty(1, 4, 256, 256))
        branches = [shapes_of(branch, torch.empty(1, 128, 64, 64)) for branch in (encoder.normal, encoder.abnormal)]
    assert trunk == [(32, 256, 256), (64, 128, 128), (64, 128, 128), (128, 64, 64)]
    branch = [(128, side, side) for side in (64, 32, 32, 16, 16, 8, 8)] + [(64, 8, 8)]
    assert branches == [branch, branch]


def test_segmentation_decoder_has_the_shapes_of_table_c2() -> None:
    with torch.device("meta"):
        decoder = FeatureDecomposingNetwork(get_preset("paper-8x8").model).segmentation_decoder
        shapes = shapes_of(decoder.climb, torch.empty(1, 64, 8, 8))
        logits = decoder(torch.empty(1, 64, 8, 8))
    levels = [(128, 16), (128, 32), (128, 64), (64, 128), (32, 256)]
    assert shapes[0] == (128, 8, 8)
    assert shapes[1:] == [(width, side, side) for width, side in levels for _ in ("upsample", "block")]
    assert logits.shape == (1, 4, 256, 256)


def test_image_decoder_has_the_shapes_of_table_c2() -> None:
    decoder = FeatureDecomposingNetwork(get_preset("paper-8x8").model).eval().image_decoder
    found: list[tuple[int, ...]] = []
    for module in (*decoder.stem, *decoder.upsamples, *decoder.blocks):
        module.register_forward_hook(lambda _module, _inputs, out: found.append(tuple(out.shape[1:])))
    with torch.no_grad():
        features = decoder.paint(decoder.stem(torch.zeros(1, 64, 8, 8)), torch.zeros(0, 4, 256, 256))
    levels = [(128, 16), (128, 32), (128, 64), (64, 128), (32, 256)]
    assert found == [(128, 8, 8)] + [(width, side, side) for width, side in levels for _ in ("upsample", "block")]
    assert decoder.out(features).shape == (1, 4, 256, 256)


@pytest.mark.parametrize(("name", "sides"), [("paper-4x4", [2, 1]), ("paper-8x8", [4, 2, 1])])
def test_critic_has_the_shapes_of_table_c3(name: str, sides: list[int]) -> None:
    config = get_preset(name).model
    critic = Critic(config)
    found: list[tuple[int, ...]] = []
    for conv in (*critic.convs, critic.out):
        conv.register_forward_hook(lambda _module, _inputs, out: found.append(tuple(out.shape[1:])))
    critic(torch.zeros(2, 64, *config.latent_size))
    assert found == [*((64, side, side) for side in sides), (64, 1, 1), (1, 1, 1)]


def conv(width_in: int, width_out: int, kernel: int = 3) -> int:
    return kernel * kernel * width_in * width_out + width_out


def norm_conv(width_in: int, width_out: int) -> int:
    return 2 * width_in + conv(width_in, width_out)


def res_block(width_in: int, width_out: int) -> int:
    skip = 0 if width_in == width_out else conv(width_in, width_out, 1)
    return norm_conv(width_in, width_out) + norm_conv(width_out, width_out) + skip


def spade_block(width: int, classes: int) -> int:
    return 2 * (conv(width, width) + conv(classes, width // 2) + conv(width // 2, 2 * width))


def parameters_by_hand(config: ModelConfig) -> int:
    """Tables C.1 and C.2 added up, for networks with the paper's 32-64-128-128… filters."""
    repeats = config.halvings - 2
    branch = repeats * (res_block(128, 128) + norm_conv(128, 128)) + res_block(128, 128) + res_block(128, 64)
    encoder = conv(4, 32) + norm_conv(32, 64) + res_block(64, 64) + norm_conv(64, 128) + 2 * branch
    start = res_block(64, 128)
    upsamples = repeats * conv(128, 128) + conv(128, 64) + conv(64, 32)
    segmentation = start + upsamples + repeats * res_block(128, 128) + res_block(64, 64) + res_block(32, 32)
    image = start + upsamples + repeats * spade_block(128, 4) + spade_block(64, 4) + spade_block(32, 4)
    return encoder + segmentation + image + 2 * conv(32, 4, 1)


@pytest.mark.parametrize("name", PAPER)
def test_parameters_of_paper_presets_add_up(name: str) -> None:
    config = get_preset(name).model
    with torch.device("meta"):
        network = FeatureDecomposingNetwork(config)
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters_by_hand(config)


@pytest.mark.parametrize("name", list(PRESETS))
def test_latent_grid_has_the_size_in_the_name(name: str) -> None:
    config = get_preset(name).model
    with torch.device("meta"):
        normal, abnormal = Encoder(config)(torch.empty(1, 4, *config.image_size))
    assert normal.shape == abnormal.shape == (1, config.code_width, *config.latent_size)


def test_small_preset_has_about_half_a_million_parameters() -> None:
    with torch.device("meta"):
        network = FeatureDecomposingNetwork(get_preset("cpu-8x8-small").model)
    assert 400_000 < sum(parameter.numel() for parameter in network.parameters()) < 700_000
