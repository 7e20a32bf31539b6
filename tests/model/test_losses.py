"""Each term against a value worked out by hand or by a library, and its gradients where Algorithm 1 lets them flow."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchmetrics.functional.image import structural_similarity_index_measure as library_ssim

from diptych.config import LossConfig
from diptych.model import Critic, FeatureDecomposingNetwork
from diptych.model.losses import (
    anatomy_loss,
    critic_loss,
    focal_loss,
    generalised_dice_loss,
    network_losses,
    quiet_loss,
    reconstruction_loss,
    regulariser_loss,
    ssim,
    twin_loss,
)
from tests.model.tiny import TINY, tiny_images, tiny_lesions, tiny_network

CONFIG = LossConfig()


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_dice_by_hand() -> None:
    labels = torch.tensor([[[0, 0, 0, 1]]])
    probabilities = torch.tensor([0.8, 0.6, 1.0, 0.3])  # of class 0
    both = torch.stack([probabilities, 1 - probabilities]).view(1, 2, 1, 4)
    # class 0: weight 1/9, shared 2.4, sizes 2.7 + 3; class 1: weight 1, shared 0.7, sizes 1.3 + 1
    expected = 1 - 2 * (2.4 / 9 + 0.7) / (5.7 / 9 + 2.3)
    assert generalised_dice_loss(both, labels, floor=0.0).item() == pytest.approx(expected, rel=1e-5)


def test_dice_leaves_absent_classes_out() -> None:
    labels = torch.zeros(2, 4, 6, dtype=torch.int64)
    probabilities = torch.full((2, 3, 4, 6), 1 / 3)
    expected = 1 - 2 * 16 / (16 + 48)  # of class 0 alone: shared 16, sizes 16 + 48
    assert generalised_dice_loss(probabilities, labels, floor=1.0).item() == pytest.approx(expected, rel=1e-5)


def test_the_papers_dice_is_ruled_by_an_absent_class() -> None:
    labels = torch.zeros(2, 4, 6, dtype=torch.int64)
    assert generalised_dice_loss(torch.full((2, 3, 4, 6), 1 / 3), labels, floor=0.0).item() > 0.999


def test_floor_bounds_the_weight_of_a_tiny_class() -> None:
    labels = torch.zeros(1, 10, 10, dtype=torch.int64)
    labels[0, 0, 0] = 1
    probabilities = torch.full((1, 2, 10, 10), 0.5)
    # weights 1/99² and 1/64²; shared 49.5 and 0.5; sizes 50 + 99 and 50 + 1
    expected = 1 - 2 * (49.5 / 99**2 + 0.5 / 64**2) / (149 / 99**2 + 51 / 64**2)
    assert generalised_dice_loss(probabilities, labels, floor=64.0).item() == pytest.approx(expected, rel=1e-5)


def test_focal_loss_by_hand() -> None:
    labels = torch.tensor([[[0, 1]]])
    p = torch.tensor([[0.9, 0.4], [0.1, 0.6]]).view(1, 2, 1, 2)
    expected = -(0.1**2 * torch.tensor(0.9).log() + 0.4**2 * torch.tensor(0.6).log()) / 2
    torch.testing.assert_close(focal_loss(p.log(), labels, gamma=2.0), expected)


@pytest.mark.parametrize("data_range", [1.0, 8.0])
def test_ssim_equals_the_library(data_range: float) -> None:
    first = random(2, 4, 32, 48)
    second = first + random(2, 4, 32, 48, seed=1)
    _, whole_map = library_ssim(second, first, data_range=data_range, sigma=1.5, return_full_image=True)
    expected = whole_map[..., 5:-5, 5:-5].mean()  # the library also counts windows that stick out, mirrored
    torch.testing.assert_close(ssim(second, first, data_range=data_range), expected, rtol=1e-4, atol=1e-5)


def test_reconstruction_loss_is_the_papers_sum() -> None:
    images, full, twin = (random(4, 4, 32, 48, seed=seed) for seed in range(3))
    inside = (tiny_lesions() > 0).unsqueeze(1).float()
    pairs = [
        ((1 - inside) * twin, (1 - inside) * images),
        (full, images),
        (inside * full, inside * images),
    ]
    expected = sum(F.mse_loss(a, b) + 1 - ssim(a, b, data_range=8.0) for a, b in pairs)
    found = reconstruction_loss(full, twin, images, tiny_lesions() > 0, data_range=8.0)
    torch.testing.assert_close(found, expected)


def test_lesion_of_the_twin_costs_nothing() -> None:
    lesion = tiny_lesions() > 0
    images = random(4, 4, 32, 48)
    twin = images + 5 * lesion.unsqueeze(1)
    assert reconstruction_loss(images, twin, images, lesion, data_range=8.0).item() == pytest.approx(0, abs=1e-5)


def test_healthy_batch_has_no_lesion_term() -> None:
    images, painted = random(2, 4, 32, 48), random(2, 4, 32, 48, seed=1)
    nothing = torch.zeros(2, 32, 48, dtype=torch.bool)
    expected = 2 * (F.mse_loss(painted, images) + 1 - ssim(painted, images, data_range=8.0))
    torch.testing.assert_close(reconstruction_loss(painted, painted, images, nothing, data_range=8.0), expected)


def test_anatomy_loss_sees_only_labelled_images() -> None:
    logits = random(3, 7, 8, 12).requires_grad_()
    labels = torch.randint(7, (3, 8, 12), generator=torch.Generator().manual_seed(1))
    loss = anatomy_loss(logits, labels, torch.tensor([True, False, True]), config=CONFIG)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert gradient.flatten(1).abs().sum(dim=1).ne(0).tolist() == [True, False, True]


def test_anatomy_loss_without_labels_is_zero() -> None:
    logits = random(2, 7, 8, 12)
    none = torch.zeros(2, dtype=torch.bool)
    assert anatomy_loss(logits, torch.zeros(2, 8, 12), none, config=CONFIG).item() == 0.0


def test_critic_loss_of_a_linear_critic_by_hand() -> None:
    slope = random(8, 4, 6)
    healthy, diseased = random(3, 8, 4, 6, seed=1), random(3, 8, 4, 6, seed=2)
    loss = critic_loss(lambda code: (code * slope).sum(dim=(1, 2, 3)), healthy, diseased, torch.rand(3), config=CONFIG)
    distance = ((diseased - healthy) * slope).sum(dim=(1, 2, 3)).mean()
    torch.testing.assert_close(loss, distance + 10.0 * (slope.norm() - 1) ** 2)


@pytest.mark.parametrize(("slope", "penalty"), [("norm", 2.0), ("squared", 32.0)])
def test_gradient_penalty_is_per_sample(slope: Literal["norm", "squared"], penalty: float) -> None:
    """Slopes 1 and 3 in two samples: norms miss 1 by 0 and 2, squares by 0 and 8, so the means are 2 and 32."""
    config = LossConfig(gradient_penalty=1.0, penalised_slope=slope)
    scales = torch.tensor([1.0, 3.0, 1.0, 3.0, 1.0, 3.0])
    zeros = torch.zeros(2, 1, 1, 1)
    loss = critic_loss(lambda code: code.sum(dim=(1, 2, 3)) * scales, zeros, zeros, torch.rand(2), config=config)
    assert loss.item() == pytest.approx(penalty)


def test_critic_takes_halves_of_unequal_size() -> None:
    loss = critic_loss(Critic(TINY), random(3, 8, 4, 6), random(5, 8, 4, 6), torch.rand(3), config=CONFIG)
    assert loss.isfinite()


def test_regulariser_is_the_negative_score() -> None:
    critic, code = Critic(TINY), random(3, 8, 4, 6)
    torch.testing.assert_close(regulariser_loss(critic, code), -critic(code).mean())


# Where gradients flow: sections 3.1.4 and 3.1.5, Algorithm 1.


def touched(loss: Tensor, network: FeatureDecomposingNetwork) -> set[str]:
    """Parts of the network in which some parameter receives a gradient that is not zero."""
    parts: dict[str, nn.Module] = {
        "trunk": network.encoder.trunk,
        "normal branch": network.encoder.normal,
        "abnormal branch": network.encoder.abnormal,
        "segmentation decoder": network.segmentation_decoder,
        "image decoder": network.image_decoder,
    }
    if network.anatomy_head is not None:
        parts["anatomy head"] = network.anatomy_head
    network.zero_grad()
    torch.autograd.backward(loss, retain_graph=True)
    return {
        name
        for name, part in parts.items()
        if any(parameter.grad is not None and parameter.grad.any() for parameter in part.parameters())
    }


def test_each_term_teaches_only_its_own_parts() -> None:
    network = tiny_network(anatomy_classes=7)
    images, lesion = tiny_images(), tiny_lesions()
    result = network(images)
    losses = network_losses(result, images, lesion, config=CONFIG, anatomy=lesion)
    critic = Critic(TINY)
    assert touched(losses.latent, network) == {"trunk", "normal branch", "abnormal branch"}
    assert touched(losses.segmentation, network) == {"trunk", "abnormal branch", "segmentation decoder"}
    assert touched(losses.reconstruction, network) == {"trunk", "normal branch", "image decoder"}
    assert touched(losses.anatomy, network) == {"trunk", "normal branch", "image decoder", "anatomy head"}
    assert touched(regulariser_loss(critic, result.normal.code), network) == {"trunk", "normal branch"}


def test_critic_loss_teaches_the_critic_alone() -> None:
    network, critic = tiny_network(), Critic(TINY)
    code = network(tiny_images()).normal.code
    loss = critic_loss(critic, code[:2], code[2:], torch.rand(2), config=CONFIG)
    torch.autograd.backward(loss)
    assert all(parameter.grad is None for parameter in network.parameters())
    assert all(parameter.grad is not None for parameter in critic.parameters())


def test_total_is_the_weighted_sum() -> None:
    network = tiny_network()
    images = tiny_images()
    losses = network_losses(network(images), images, tiny_lesions(), config=CONFIG)
    expected = 0.25 * losses.latent + 10 * losses.segmentation + 5 * losses.reconstruction
    torch.testing.assert_close(losses.total(CONFIG), expected)


def test_a_known_twin_counts_inside_the_lesion_only() -> None:
    truth, guess = random(2, 4, 16, 12), random(2, 4, 16, 12, seed=1)
    lesion = torch.zeros(2, 16, 12, dtype=torch.bool)
    lesion[:, 3:9, 2:8] = True
    outside = torch.where(lesion.unsqueeze(1), truth, guess)
    assert twin_loss(outside, truth, lesion, None, data_range=8.0).item() == pytest.approx(0, abs=1e-6)
    assert twin_loss(guess, truth, lesion, None, data_range=8.0) > 0.1


def test_unknown_twins_do_not_count() -> None:
    truth, guess = random(2, 4, 16, 12), random(2, 4, 16, 12, seed=1)
    lesion = torch.ones(2, 16, 12, dtype=torch.bool)
    first = torch.tensor([True, False])
    half = twin_loss(guess, truth, lesion, first, data_range=8.0)
    alone = twin_loss(guess[:1], truth[:1], lesion[:1], None, data_range=8.0)
    assert half.item() == pytest.approx(alone.item() / 2, rel=1e-5)
    assert twin_loss(guess, truth, lesion, ~first & first, data_range=8.0) == 0


def test_quiet_loss_is_small_when_healthy_cells_are_quiet_and_lesions_are_not() -> None:
    lesion = torch.zeros(1, 8, 12, dtype=torch.int64)
    lesion[0, :4, :4] = 2
    held = torch.zeros(1, 2, 3)
    held[0, 0, 0] = 1
    right = quiet_loss(10.0 * (2 * held - 1), lesion)
    wrong = quiet_loss(10.0 * (1 - 2 * held), lesion)
    assert right < 0.01 < 10 < wrong
