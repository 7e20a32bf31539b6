"""Structural similarity with a separable Gaussian window, 11x11 and σ = 1.5 (Wang et al., 2004)."""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["ssim"]

WINDOW = 11
SIGMA = 1.5


def ssim(first: Tensor, second: Tensor, *, data_range: float) -> Tensor:
    """Mean SSIM of two batches `[B, C, H, W]`, over windows that lie wholly inside the image."""
    maps = torch.cat([first, second, first.square() + second.square(), first * second], dim=1)
    mean_1, mean_2, squares, product = _blur(maps).chunk(4, dim=1)
    c1, c2 = (0.01 * data_range) ** 2, (0.03 * data_range) ** 2
    means_product = mean_1 * mean_2
    means_squared = mean_1.square() + mean_2.square()
    similarity = (2 * means_product + c1) * (2 * (product - means_product) + c2)
    return (similarity / ((means_squared + c1) * (squares - means_squared + c2))).mean()


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
