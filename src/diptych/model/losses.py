"""The training objective, one pure function per term (sections 3.1.2 to 3.1.5).

`network_losses` is the table of contents. Labels are integer maps `[B, H, W]`; images `[B, C, H, W]`. Knows nothing
about networks or optimisers; the critic is any function from codes to scores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from diptych.config import LossConfig
from diptych.model.network import ForwardResult

LESION_SAY = 0.5
"""What the lesion cells called quiet cost, against the healthy ones that are not."""

CriticFunction = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class NetworkLosses:
    """The terms of the network's loss before weighting, scalars; distribution matching is added by the trainer."""

    latent: Tensor
    segmentation: Tensor
    reconstruction: Tensor
    anatomy: Tensor
    twin: Tensor
    quiet: Tensor

    def total(self, config: LossConfig) -> Tensor:
        """The weighted sum λ₁L_lat + λ₂L_seg + λ₃L_rec, and our terms for anatomy and known twins."""
        return (
            config.latent_weight * self.latent
            + config.segmentation_weight * self.segmentation
            + config.reconstruction_weight * self.reconstruction
            + config.anatomy_weight * self.anatomy
            + config.twin_weight * self.twin
            + config.quiet_weight * self.quiet
        )


def network_losses(
    result: ForwardResult,
    images: Tensor,
    lesion: Tensor,
    *,
    config: LossConfig,
    anatomy: Tensor | None = None,
    has_anatomy: Tensor | None = None,
    twin: Tensor | None = None,
    has_twin: Tensor | None = None,
) -> NetworkLosses:
    """All terms that one forward pass gives.

    Args:
        result: what the network made of `images`.
        images: `[B, C, H, W]`.
        lesion: labels `[B, H, W]`, 0 for background.
        config: settings of the terms; weights are applied by `NetworkLosses.total`.
        anatomy: labels `[B, H, W]`, or None when no image of the batch has them.
        has_anatomy: which images have anatomy labels, bool `[B]`; None means all.
        twin: true healthy twins `[B, C, H, W]`, or None when none is known.
        has_twin: which images have a true twin, bool `[B]`; None means all.
    """
    if result.anatomy_logits is None or anatomy is None:
        unused = 0.0 if result.anatomy_logits is None else 0.0 * result.anatomy_logits.sum()
        anatomy_term = images.new_zeros(()) + unused
    else:
        anatomy_term = anatomy_loss(result.anatomy_logits, anatomy, has_anatomy, config=config)
    reconstruction_term = twin_term = images.new_zeros(())
    if result.reconstruction is not None and result.healthy_twin is not None:
        reconstruction_term = reconstruction_loss(
            result.reconstruction, result.healthy_twin, images, lesion > 0, data_range=config.data_range
        )
        if twin is not None:
            twin_term = twin_loss(result.healthy_twin, twin, lesion > 0, has_twin, data_range=config.data_range)
    voice = result.abnormal.voice
    return NetworkLosses(
        latent=result.normal.error + result.abnormal.error,
        segmentation=segmentation_loss(result.lesion_logits, lesion, config=config),
        reconstruction=reconstruction_term,
        anatomy=anatomy_term,
        twin=twin_term,
        quiet=images.new_zeros(()) if voice is None else quiet_loss(voice, lesion),
    )


def quiet_loss(voice: Tensor, lesion: Tensor) -> Tensor:
    """Healthy cells should have no voice, cells that hold lesion should: a logistic loss over logits `[B, h, w]`.

    Both kinds of cells count as means, lesions in the measure in which they fill their cell: a corner of oedema may
    go unsaid.
    """
    _, rows, columns = voice.shape
    share = F.adaptive_avg_pool2d((lesion > 0).float().unsqueeze(1), (rows, columns)).squeeze(1)  # [B, h, w]
    healthy, weight = share == 0, share.sqrt()
    false_alarm = (F.softplus(voice) * healthy).sum() / healthy.sum().clamp_min(1)
    missed = (F.softplus(-voice) * weight).sum() / weight.sum().clamp_min(1)
    return false_alarm + LESION_SAY * missed


def segmentation_loss(logits: Tensor, labels: Tensor, *, config: LossConfig) -> Tensor:
    """L_seg: generalised Dice plus focal loss, over logits `[B, S, H, W]`."""
    log_probabilities = logits.log_softmax(dim=1)
    dice = generalised_dice_loss(log_probabilities.exp(), labels, floor=config.dice_floor)
    return dice + focal_loss(log_probabilities, labels, gamma=config.focal_gamma)


def generalised_dice_loss(probabilities: Tensor, labels: Tensor, *, floor: float) -> Tensor:
    """L_dice with class weights 1 / n² (Sudre et al., 2017), n the pixels of a class in the batch.

    With `floor` > 0, n counts as at least that many pixels, and a class absent from the batch is left out. With 0 the
    weights are the paper's; an absent class then has a weight without bound (here 1 / ε²) and rules the loss.
    """
    classes = probabilities.shape[1]
    truth = F.one_hot(labels.long(), classes).movedim(-1, 1).to(probabilities.dtype)  # [B, S, H, W]
    true_pixels = truth.sum(dim=(0, 2, 3))  # [S]
    predicted_pixels = probabilities.sum(dim=(0, 2, 3))
    shared_pixels = (probabilities * truth).sum(dim=(0, 2, 3))
    weights = true_pixels.clamp_min(floor or 1e-5).pow(-2)
    if floor:
        weights = weights * (true_pixels > 0)
    return 1 - 2 * (weights * shared_pixels).sum() / (weights * (predicted_pixels + true_pixels)).sum()


def focal_loss(log_probabilities: Tensor, labels: Tensor, *, gamma: float) -> Tensor:
    """L_focal: cross-entropy weighted by (1 - p)^γ (Lin et al., 2017), summed over classes, mean over pixels."""
    log_p = log_probabilities.gather(1, labels.long().unsqueeze(1))
    return -((1 - log_p.exp()).pow(gamma) * log_p).mean()


def reconstruction_loss(
    reconstruction: Tensor, healthy_twin: Tensor, images: Tensor, lesion: Tensor, *, data_range: float
) -> Tensor:
    """L_rec: x̂⁻ is compared outside the lesion only, x̂⁺ everywhere and inside the lesion once more.

    Args:
        reconstruction: x̂⁺.
        healthy_twin: x̂⁻.
        images: x.
        lesion: M⁺, bool `[B, H, W]`.
        data_range: span of pixel values, for SSIM.
    """
    inside = lesion.unsqueeze(1).to(images.dtype)  # [B, 1, H, W]
    outside = 1 - inside
    diseased = lesion.flatten(1).any(dim=1)
    twin_term = _dissimilarity(outside * healthy_twin, outside * images, data_range)
    whole_term = _dissimilarity(reconstruction, images, data_range)
    lesion_term = images.new_zeros(())
    if diseased.any():  # elsewhere M⁺ is empty and both sides are zero: no loss, no work
        share = diseased.float().mean()
        mask = inside[diseased]
        lesion_term = share * _dissimilarity(mask * reconstruction[diseased], mask * images[diseased], data_range)
    return twin_term + whole_term + lesion_term


def twin_loss(
    healthy_twin: Tensor, truth: Tensor, lesion: Tensor, has_twin: Tensor | None, *, data_range: float
) -> Tensor:
    """How far x̂⁻ is from the true twin inside the lesion, over the diseased images that have one; mean over all."""
    counted = lesion.flatten(1).any(dim=1)
    if has_twin is not None:
        counted = counted & has_twin
    if not bool(counted.any()):
        return healthy_twin.new_zeros(())
    mask = lesion[counted].unsqueeze(1).to(truth.dtype)
    return counted.float().mean() * _dissimilarity(mask * healthy_twin[counted], mask * truth[counted], data_range)


def _dissimilarity(predicted: Tensor, target: Tensor, data_range: float) -> Tensor:
    """Mean squared error plus 1 - SSIM."""
    return F.mse_loss(predicted, target) + 1 - ssim(predicted, target, data_range=data_range)


def anatomy_loss(logits: Tensor, labels: Tensor, has_anatomy: Tensor | None, *, config: LossConfig) -> Tensor:
    """Dice plus focal loss of the anatomy head over the images that have labels; zero where none has."""
    if has_anatomy is not None and not bool(has_anatomy.all()):
        if not bool(has_anatomy.any()):
            return 0.0 * logits.sum()  # keeps the head in the graph, as distributed training wants
        logits, labels = logits[has_anatomy], labels[has_anatomy]
    log_probabilities = logits.log_softmax(dim=1)
    dice = generalised_dice_loss(log_probabilities.exp(), labels, floor=max(config.dice_floor, 1.0))
    return dice + focal_loss(log_probabilities, labels, gamma=config.focal_gamma)


def label_loss(logits: Tensor, truth: Tensor) -> Tensor:
    """Cross-entropy plus two kinds of one minus soft Dice, for logits and shares `[B, C + 1, 32, 32]`."""
    entropy = -(truth * logits.log_softmax(dim=1)).sum(dim=1).mean()
    found, true = logits.softmax(dim=1)[:, 1:], truth[:, 1:]
    shared = torch.minimum(found, true).sum(dim=(2, 3))  # [B, C]
    areas = found.sum(dim=(2, 3)) + true.sum(dim=(2, 3))
    of_batch = (2 * shared.sum(dim=0) + 1) / (areas.sum(dim=0) + 1)
    of_slices = ((2 * shared + 0.5) / (areas + 0.5))[true.sum(dim=(2, 3)) > 0]
    slice_term = 1 - of_slices.mean() if len(of_slices) else logits.new_zeros(())
    return entropy + (1 - of_batch.mean()) + slice_term


def critic_loss(
    critic: CriticFunction, healthy: Tensor, diseased: Tensor, mixing: Tensor, *, config: LossConfig
) -> Tensor:
    """L_critic: the estimated Wasserstein distance with its gradient penalty (Gulrajani et al., 2017).

    The norm of the gradient, or as the paper writes its square, is taken per sample and drawn towards 1. Codes are cut
    from the gradient here.

    Args:
        critic: codes `[B, D, h, w]` to scores `[B]`.
        healthy: normal codes of healthy images, `[n, D, h, w]`.
        diseased: normal codes of diseased images, `[m, D, h, w]`.
        mixing: ε, uniform in [0, 1], `[min(n, m)]`.
        config: λ_gp, and what it weighs.
    """
    healthy, diseased = healthy.detach(), diseased.detach()
    pairs = min(len(healthy), len(diseased))
    between = torch.lerp(diseased[:pairs], healthy[:pairs], mixing.view(-1, 1, 1, 1)).requires_grad_()
    scores = critic(torch.cat([healthy, diseased, between]))
    healthy_scores, diseased_scores, between_scores = torch.split(scores, [len(healthy), len(diseased), pairs])
    (slopes,) = torch.autograd.grad(between_scores.sum(), between, create_graph=True)
    squared = slopes.flatten(1).square().sum(dim=1)
    steepness = squared if config.penalised_slope == "squared" else torch.linalg.vector_norm(slopes.flatten(1), dim=1)
    penalty: Tensor = (steepness - 1).square().mean()
    distance: Tensor = diseased_scores.mean() - healthy_scores.mean()
    return distance + config.gradient_penalty * penalty


def regulariser_loss(critic: CriticFunction, diseased: Tensor) -> Tensor:
    """L_reg: normal codes of diseased images should look healthy to the critic."""
    return -critic(diseased).mean()


WINDOW = 11
SIGMA = 1.5


def ssim(first: Tensor, second: Tensor, *, data_range: float) -> Tensor:
    """Mean SSIM of two batches `[B, C, H, W]`, over windows that lie wholly inside the image."""
    return _similarity(first, second, data_range).mean()


def ssim_map(first: Tensor, second: Tensor, *, data_range: float) -> Tensor:
    """SSIM around each pixel, `[B, C, H, W]`; at the border the image is mirrored."""
    around = [WINDOW // 2] * 4
    first, second = (F.pad(images, around, mode="reflect") for images in (first, second))
    return _similarity(first, second, data_range)


def _similarity(first: Tensor, second: Tensor, data_range: float) -> Tensor:
    maps = torch.cat([first, second, first.square() + second.square(), first * second], dim=1)
    mean_1, mean_2, squares, product = _blur(maps).chunk(4, dim=1)
    c1, c2 = (0.01 * data_range) ** 2, (0.03 * data_range) ** 2
    means_product = mean_1 * mean_2
    means_squared = mean_1.square() + mean_2.square()
    similarity = (2 * means_product + c1) * (2 * (product - means_product) + c2)
    return similarity / ((means_squared + c1) * (squares - means_squared + c2))


def _blur(maps: Tensor) -> Tensor:
    """Rows, then columns, channel by channel: 22 products per pixel instead of 121."""
    channels = maps.shape[1]
    window = _window().to(maps)
    across = window.view(1, 1, 1, -1).expand(channels, 1, 1, WINDOW)
    down = window.view(1, 1, -1, 1).expand(channels, 1, WINDOW, 1)
    maps = maps.contiguous(memory_format=torch.channels_last)
    return F.conv2d(F.conv2d(maps, across, groups=channels), down, groups=channels)


@lru_cache(maxsize=1)
def _window() -> Tensor:
    offsets = torch.arange(WINDOW, dtype=torch.float64) - WINDOW // 2
    weights = torch.exp(-offsets.square() / (2 * SIGMA**2))
    return weights / weights.sum()
