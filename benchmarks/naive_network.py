"""A straightforward reading of the paper, written plainly, as the baseline of `benchmarks/training.py`.

Two full passes of the image decoder, BatchNorm SPADE evaluated on a map of zeros, SSIM with an 11x11 window, three
separate critic calls in each of five steps, contiguous tensors, fp32. Nothing in the package uses it.
"""

from __future__ import annotations

from itertools import pairwise
from math import gcd

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from diptych.config import LossConfig, ModelConfig

__all__ = ["NaiveNetwork", "naive_critic_loss", "naive_losses"]


class NaiveConv(nn.Sequential):
    def __init__(self, width_in: int, width_out: int, stride: int = 1) -> None:
        super().__init__(
            nn.GroupNorm(gcd(8, width_in), width_in),
            nn.LeakyReLU(0.2),
            nn.Conv2d(width_in, width_out, 3, stride=stride, padding=1),
        )


class NaiveResBlock(nn.Module):
    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(NaiveConv(width_in, width_out), NaiveConv(width_out, width_out))
        self.skip = nn.Identity() if width_in == width_out else nn.Conv2d(width_in, width_out, 1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.skip(x) + self.inner(x)
        return out


class NaiveUpsample(nn.Sequential):
    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__(nn.Conv2d(width_in, width_out, 3, padding=1), nn.Upsample(scale_factor=2, mode="bilinear"))


class NaiveSpade(nn.Module):
    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(width, affine=False)
        self.shared = nn.Sequential(nn.Conv2d(classes, width // 2, 3, padding=1), nn.ReLU())
        self.gamma = nn.Conv2d(width // 2, width, 3, padding=1)
        self.beta = nn.Conv2d(width // 2, width, 3, padding=1)

    def forward(self, x: Tensor, semantics: Tensor) -> Tensor:
        hidden = self.shared(F.adaptive_avg_pool2d(semantics, (x.shape[-2], x.shape[-1])))
        out: Tensor = self.norm(x) * (1 + self.gamma(hidden)) + self.beta(hidden)
        return out


class NaiveSpadeBlock(nn.Module):
    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.spades = nn.ModuleList([NaiveSpade(width, classes) for _ in range(2)])
        self.convs = nn.ModuleList([nn.Conv2d(width, width, 3, padding=1) for _ in range(2)])

    def forward(self, x: Tensor, semantics: Tensor) -> Tensor:
        out = x
        for spade, conv in zip(self.spades, self.convs, strict=True):
            out = conv(F.leaky_relu(spade(out, semantics), 0.2))
        return x + out


class NaiveQuantizer(nn.Module):
    codebook: Tensor
    counts: Tensor
    sums: Tensor

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.register_buffer("codebook", torch.randn(size, width))
        self.register_buffer("counts", torch.zeros(size))
        self.register_buffer("sums", self.codebook.clone())

    def forward(self, encoded: Tensor) -> tuple[Tensor, Tensor]:
        rows = encoded.permute(0, 2, 3, 1).reshape(-1, encoded.shape[1])
        ids = torch.cdist(rows.detach(), self.codebook).argmin(dim=1)
        code = self.codebook[ids].view(*encoded.permute(0, 2, 3, 1).shape).permute(0, 3, 1, 2)
        with torch.no_grad():
            one_hot = F.one_hot(ids, len(self.codebook)).float()
            self.counts.mul_(0.99).add_(one_hot.sum(dim=0), alpha=0.01)
            self.sums.mul_(0.99).add_(one_hot.T @ rows, alpha=0.01)
            total = self.counts.sum()
            smoothed = (self.counts + 1e-5) / (total + len(self.codebook) * 1e-5) * total
            updated = self.sums / smoothed.unsqueeze(1)
        loss = F.mse_loss(encoded, code.detach())
        self.codebook = updated
        return encoded + (code - encoded).detach(), loss


class NaiveNetwork(nn.Module):
    """Encoder, quantisers and decoders as tables C.1 and C.2 list them."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        widths, classes = config.widths, config.lesion_classes
        self.trunk = nn.Sequential(
            nn.Conv2d(config.channels, widths[0], 3, padding=1),
            NaiveConv(widths[0], widths[1], 2),
            NaiveResBlock(widths[1], widths[1]),
            NaiveConv(widths[1], widths[2], 2),
        )
        self.branches = nn.ModuleList(self._branch(config) for _ in range(2))
        self.quantizers = nn.ModuleList(NaiveQuantizer(config.codebook_size, config.code_width) for _ in range(2))
        up = widths[::-1]
        self.image_in, self.lesion_in = (
            nn.Sequential(nn.Conv2d(config.code_width, up[0], 3, padding=1), NaiveResBlock(up[0], up[0]))
            for _ in range(2)
        )
        self.lesion_levels = nn.Sequential(
            *(nn.Sequential(NaiveUpsample(a, b), NaiveResBlock(b, b)) for a, b in pairwise(up))
        )
        self.lesion_out = nn.Conv2d(up[-1], classes, 1)
        self.image_ups = nn.ModuleList(NaiveUpsample(a, b) for a, b in pairwise(up))
        self.image_blocks = nn.ModuleList(NaiveSpadeBlock(b, classes) for b in up[1:])
        self.image_out = nn.Conv2d(up[-1], config.channels, 1)

    @staticmethod
    def _branch(config: ModelConfig) -> nn.Sequential:
        layers: list[nn.Module] = []
        for a, b in pairwise(config.widths[2:]):
            layers += [NaiveResBlock(a, a), NaiveConv(a, b, 2)]
        last = config.widths[-1]
        return nn.Sequential(*layers, NaiveResBlock(last, last), NaiveResBlock(last, config.code_width))

    def paint(self, code: Tensor, semantics: Tensor) -> Tensor:
        x = self.image_in(code)
        for up, block in zip(self.image_ups, self.image_blocks, strict=True):
            x = block(up(x), semantics)
        image: Tensor = self.image_out(x)
        return image

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Normal code, latent loss, lesion logits, x̂⁺ and x̂⁻."""
        shared = self.trunk(images)
        (normal, normal_loss), (abnormal, abnormal_loss) = (
            quantizer(branch(shared)) for quantizer, branch in zip(self.quantizers, self.branches, strict=True)
        )
        logits = self.lesion_out(self.lesion_levels(self.lesion_in(abnormal)))
        foreground = (logits.argmax(dim=1, keepdim=True) > 0).float()
        semantics = (logits.softmax(dim=1) * foreground).detach()
        reconstruction = self.paint(normal, semantics)
        healthy_twin = self.paint(normal, torch.zeros_like(semantics))
        return normal, normal_loss + abnormal_loss, logits, reconstruction, healthy_twin


def naive_losses(
    latent: Tensor, logits: Tensor, reconstruction: Tensor, healthy_twin: Tensor, images: Tensor, lesion: Tensor
) -> Tensor:
    """The weighted sum of Algorithm 1 without distribution matching, term by term as the paper writes it."""
    truth = F.one_hot(lesion, logits.shape[1]).permute(0, 3, 1, 2).float()
    p = logits.softmax(dim=1)
    weights = 1 / truth.sum(dim=(0, 2, 3)).clamp_min(1.0) ** 2
    overlap = (weights * (p * truth).sum(dim=(0, 2, 3))).sum()
    dice = 1 - 2 * overlap / (weights * (p + truth).sum(dim=(0, 2, 3))).sum()
    focal = -(truth * (1 - p) ** 2 * torch.log(p + 1e-8)).sum(dim=1).mean()
    inside = (lesion > 0).float().unsqueeze(1)
    outside = 1 - inside
    pairs = [
        (outside * healthy_twin, outside * images),
        (reconstruction, images),
        (inside * reconstruction, inside * images),
    ]
    rec = sum((F.mse_loss(a, b) + 1 - naive_ssim(a, b) for a, b in pairs), torch.zeros(()))
    weight = LossConfig()
    return (
        weight.latent_weight * latent
        + weight.segmentation_weight * (dice + focal)
        + (weight.reconstruction_weight * rec)
    )


def naive_ssim(first: Tensor, second: Tensor) -> Tensor:
    channels = first.shape[1]
    line = torch.exp(-((torch.arange(11) - 5.0) ** 2) / (2 * 1.5**2))
    window = (torch.outer(line, line) / line.sum() ** 2).expand(channels, 1, 11, 11)

    def blur(x: Tensor) -> Tensor:
        return F.conv2d(x, window, groups=channels)

    mu1, mu2 = blur(first), blur(second)
    var1, var2 = blur(first * first) - mu1**2, blur(second * second) - mu2**2
    covariance = blur(first * second) - mu1 * mu2
    c1, c2 = (0.01 * 8) ** 2, (0.03 * 8) ** 2
    ratio = ((2 * mu1 * mu2 + c1) * (2 * covariance + c2)) / ((mu1**2 + mu2**2 + c1) * (var1 + var2 + c2))
    return ratio.mean()


def naive_critic_loss(critic: nn.Module, healthy: Tensor, diseased: Tensor) -> Tensor:
    epsilon = torch.rand(len(healthy), 1, 1, 1)
    mixed = (epsilon * healthy + (1 - epsilon) * diseased).requires_grad_()
    (gradient,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
    penalty = ((gradient.flatten(1).norm(dim=1) - 1) ** 2).mean()
    loss: Tensor = critic(diseased).mean() - critic(healthy).mean() + 10 * penalty
    return loss
