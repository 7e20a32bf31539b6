"""The network as a whole: one pass equals two plain ones, and ids do not depend on the company an image keeps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from diptych.config import get_preset
from diptych.errors import UsageError
from diptych.model import FeatureDecomposingNetwork
from diptych.model.blocks import SpadeResBlock
from diptych.model.decoders import ImageDecoder, semantic_map
from diptych.model.network import fingerprint
from tests.model.tiny import tiny_images, tiny_lesions, tiny_network


def with_known_lesions(network: FeatureDecomposingNetwork, labels: Tensor) -> FeatureDecomposingNetwork:
    """Make the segmentation decoder predict `labels`, as a trained one would."""
    known = 50.0 * F.one_hot(labels, 4).permute(0, 3, 1, 2)
    network.segmentation_decoder.register_forward_hook(lambda _module, _inputs, logits: logits + known)
    return network


def plain_paint(decoder: ImageDecoder, code: Tensor, semantics: Tensor) -> Tensor:
    """One pass under one condition, with SPADE evaluated at every pixel."""
    x = decoder.stem(code)
    for level, block in enumerate(decoder.blocks):
        assert isinstance(block, SpadeResBlock)
        x = decoder.upsamples[level - 1](x) if level else x
        level_map = F.pad(F.adaptive_avg_pool2d(semantics, x.shape[-2:]), (2, 2, 2, 2))
        inner = x
        for spade, conv in ((block.first_norm, block.first), (block.second_norm, block.second)):
            scale, shift = spade.modulation(level_map)
            inner = conv(F.leaky_relu(spade.norm(inner) * scale + shift, 0.2))
        x = x + inner
    image: Tensor = decoder.out(x)
    return image


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_one_pass_equals_two_plain_passes(norm: str) -> None:
    network = with_known_lesions(tiny_network(spade_norm=norm), tiny_lesions())
    result = network(tiny_images())
    semantics = semantic_map(result.lesion_logits, with_background=False)
    full = plain_paint(network.image_decoder, result.normal.code, semantics)
    null = plain_paint(network.image_decoder, result.normal.code, torch.zeros_like(semantics))
    torch.testing.assert_close(result.reconstruction, full, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(result.healthy_twin, null, rtol=1e-4, atol=1e-4)


def test_without_a_predicted_lesion_reconstruction_and_twin_are_one() -> None:
    network = with_known_lesions(tiny_network(), tiny_lesions())
    result = network(tiny_images())
    same = (result.reconstruction == result.healthy_twin).flatten(1).all(dim=1)
    assert same.tolist() == [False, True, False, True]


def test_semantic_map_is_zero_where_background_wins() -> None:
    logits = torch.randn(2, 4, 8, 12, requires_grad=True)
    found = semantic_map(logits, with_background=False)
    lesion = logits.argmax(dim=1, keepdim=True) > 0
    torch.testing.assert_close(found, logits.detach().softmax(dim=1)[:, 1:] * lesion)
    assert not found.requires_grad


def test_the_papers_semantic_map_keeps_the_background_channel() -> None:
    logits = torch.randn(2, 4, 8, 12)
    found = semantic_map(logits, with_background=True)
    torch.testing.assert_close(found, logits.softmax(dim=1) * (logits.argmax(dim=1, keepdim=True) > 0))


@pytest.mark.parametrize("batch", [1, 3, 8, 64])
def test_ids_do_not_depend_on_the_batch(batch: int) -> None:
    network = tiny_network().eval()
    images = tiny_images(64)
    network.start_codebooks([images])
    whole = network.encode(images)
    parts = [network.encode(part) for part in images.split(batch)]  # type: ignore[no-untyped-call]
    assert torch.equal(torch.cat([part.normal for part in parts]), whole.normal)
    assert torch.equal(torch.cat([part.abnormal for part in parts]), whole.abnormal)


def test_grids_are_bitwise_the_same_at_any_place_in_a_batch() -> None:
    network = FeatureDecomposingNetwork(get_preset("cpu-8x8-small").model).eval()
    images = torch.randn(8, 4, 64, 64)
    grids = network.decompose(images).normal_error
    moved = network.decompose(images.roll(3, dims=0)).normal_error
    assert torch.equal(moved, grids.roll(3, dims=0))


def test_decompose_and_encode_give_the_same_ids() -> None:
    network, images = tiny_network().eval(), tiny_images(5)
    found, ids = network.decompose(images), network.encode(images)
    assert torch.equal(found.normal_ids, ids.normal)
    assert torch.equal(found.abnormal_ids, ids.abnormal)


def test_decompose_sees_what_forward_sees() -> None:
    network, images = tiny_network(anatomy_classes=7).eval(), tiny_images()
    found, result = network.decompose(images), network(images)
    torch.testing.assert_close(found.reconstruction, result.reconstruction, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.healthy_twin, result.healthy_twin, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.lesion_probabilities, result.lesion_logits.softmax(dim=1), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.normal_error.mean() / 8, result.normal.error)


def test_shapes_follow_a_config_that_is_not_square() -> None:
    found = tiny_network(anatomy_classes=7).eval().decompose(tiny_images(2))
    assert found.normal_ids.shape == found.abnormal_error.shape == (2, 4, 6)
    assert found.normal_code.shape == (2, 8, 4, 6)
    assert found.reconstruction.shape == found.healthy_twin.shape == (2, 4, 32, 48)
    assert found.anatomy_probabilities is not None
    assert found.anatomy_probabilities.shape == (2, 7, 32, 48)


def test_codes_are_the_only_way_through() -> None:
    """No skip connections: images with equal ids are painted equally."""
    network, images = tiny_network().eval(), tiny_images(2)
    network.normal_quantizer.codebook.zero_()
    network.abnormal_quantizer.codebook.zero_()
    twins = network.decompose(images).healthy_twin
    assert torch.equal(twins[0], twins[1])


def test_anatomy_comes_from_the_normal_code_alone() -> None:
    network, images = tiny_network(anatomy_classes=7).eval(), tiny_images(2)
    before = network.decompose(images).anatomy_probabilities
    network.abnormal_quantizer.codebook.normal_()
    after = network.decompose(images).anatomy_probabilities
    assert before is not None
    assert after is not None
    assert torch.equal(before, after)


def test_wrong_images_are_refused_with_the_right_shape() -> None:
    with pytest.raises(UsageError, match=r"\(1, 4, 48, 32\).*\[B, 4, 32, 48\]"):
        tiny_network().encode(torch.zeros(1, 4, 48, 32))


def test_a_few_steps_lower_the_loss() -> None:
    network, images = tiny_network(), tiny_images()
    network.start_codebooks([images])
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)
    history = []
    for _ in range(12):
        loss = F.mse_loss(network(images).reconstruction, images)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        network.update_codebooks()
        history.append(loss.item())
    assert history[-1] < 0.95 * history[0]


def test_the_fingerprint_is_worked_out_once_and_again_after_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    network, plain, hashed = tiny_network(), fingerprint, list[str]()

    def counted(*of: Any) -> str:
        hashed.append(plain(*of))
        return hashed[-1]

    monkeypatch.setattr("diptych.model.network.fingerprint", counted)
    first = network.fingerprint
    assert (network.fingerprint, len(hashed)) == (first, 1)
    with torch.no_grad():
        network.normal_quantizer.codebook[0, 0] += 1
    assert network.fingerprint != first
    assert network.fingerprint == plain(network.config, network.state_dict())


def test_panels_decode_alone_as_they_do_together() -> None:
    network = tiny_network().eval()
    images = torch.randn(2, network.config.channels, *network.config.image_size)
    whole = network.decompose(images)
    lesion = network.decode_lesion(whole.abnormal_ids).softmax(dim=1)
    torch.testing.assert_close(lesion, whole.lesion_probabilities)
    if network.anatomy_head is not None:
        anatomy = network.decode_anatomy(whole.normal_ids).softmax(dim=1)
        torch.testing.assert_close(anatomy, whole.anatomy_probabilities)
