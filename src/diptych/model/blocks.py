"""The small pieces that encoder and decoders are made of (appendix C of the paper).

Everything is pre-activated: normalise, LeakyReLU, then convolve. Knows nothing about codes, lesions or losses.
"""

from __future__ import annotations

from math import gcd

import torch.nn.functional as F
from torch import Tensor, nn

from diptych.model.norm import normalise
from diptych.model.winograd import Conv3x3

__all__ = ["LEAK", "NormConv", "ResBlock", "Upsample", "group_count", "he_init_", "leaky"]

LEAK = 0.2
"""Slope of LeakyReLU below zero."""


def group_count(width: int) -> int:
    """Groups for GroupNorm: eight, or for narrow layers the largest power of two that divides the width.

    >>> [group_count(width) for width in (128, 12, 6)]
    [8, 4, 2]
    """
    return gcd(8, width)


def leaky(x: Tensor) -> Tensor:
    """LeakyReLU in place: only ever called on a tensor that nothing else needs, such as the output of a norm."""
    return F.leaky_relu_(x, LEAK)


def he_init_(module: nn.Module) -> None:
    """He et al.'s initialisation of one convolution, for use with `Module.apply`."""
    if isinstance(module, nn.Conv2d) and not module.weight.is_meta:  # drawing there would load torch's compiler: 1 s
        nn.init.kaiming_normal_(module.weight, a=LEAK, nonlinearity="leaky_relu")
        if module.bias is not None:
            nn.init.zeros_(module.bias)


class NormConv(nn.Module):
    """GroupNorm, LeakyReLU, 3x3 convolution; with stride 2 it is the paper's StridedConv."""

    def __init__(self, width_in: int, width_out: int, *, stride: int = 1) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(group_count(width_in), width_in)
        self.conv = Conv3x3(width_in, width_out) if stride == 1 else nn.Conv2d(width_in, width_out, 3, stride, 1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.conv(normalise(self.norm, x, slope=LEAK))
        return out


class ResBlock(nn.Module):
    """Two `NormConv`s beside a skip connection, which is a 1x1 convolution where the width changes."""

    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__()
        self.first = NormConv(width_in, width_out)
        self.second = NormConv(width_out, width_out)
        self.skip = nn.Identity() if width_in == width_out else nn.Conv2d(width_in, width_out, 1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.second(self.first(x)).add_(self.skip(x))
        return out


class Upsample(nn.Module):
    """3x3 convolution, then bilinear doubling: convolving first costs a quarter."""

    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__()
        self.conv = Conv3x3(width_in, width_out)

    def forward(self, x: Tensor) -> Tensor:
        return F.interpolate(self.conv(x), scale_factor=2.0, mode="bilinear", align_corners=False)
