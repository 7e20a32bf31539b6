"""SPADE: a normalisation whose scale and shift are painted by a semantic map (Park et al., 2019).

Knows the map as `[B, M, H, W]`, or None for the null condition in which nothing is lesion. There, scale and shift are
the same at every pixel, so they are worked out once on a 5x5 patch of zeros and handed to the normalisation as its
ordinary per-channel weights: the healthy twin pays for no SPADE convolution at all.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from diptych.model.blocks import group_count, leaky

__all__ = ["REACH", "Spade", "SpadeResBlock"]

REACH = 2
"""Pixels that two 3x3 convolutions look past each side."""


class Spade(nn.Module):
    """`norm(x)·(1 + γ) + β`, with γ and β from two convolutions over the semantic map.

    The map is padded once, with "no lesion"; the convolutions themselves do not pad. That is why the null condition
    is exactly constant up to the image border.
    """

    def __init__(self, width: int, map_channels: int, *, norm: Literal["group", "batch"]) -> None:
        super().__init__()
        hidden = max(1, width // 2)
        self.hidden = nn.Conv2d(map_channels, hidden, 3)
        self.scale_and_shift = nn.Conv2d(hidden, 2 * width, 3)
        self.norm: nn.GroupNorm | nn.BatchNorm2d
        if norm == "group":
            self.norm = nn.GroupNorm(group_count(width), width, affine=False)
        else:
            self.norm = nn.BatchNorm2d(width, affine=False)

    def forward(self, x: Tensor, padded_map: Tensor | None) -> Tensor:
        if padded_map is None:
            scale, shift = self.modulation(self._empty_patch())  # [1, width, 1, 1] each
            return self._normalise(x, 1 + scale.flatten(), shift.flatten())
        scale, shift = self.modulation(padded_map)
        normalised = self._normalise(x)
        return torch.addcmul(normalised + shift, normalised, scale)

    def modulation(self, padded_map: Tensor) -> tuple[Tensor, Tensor]:
        """γ and β, `[B, width, H, W]`, from a map with a margin of `REACH` on each side."""
        hidden = F.relu_(self.hidden(padded_map))
        scale, shift = self.scale_and_shift(hidden).chunk(2, dim=1)
        return scale, shift

    def _empty_patch(self) -> Tensor:
        side = 2 * REACH + 1
        return self.hidden.weight.new_zeros(1, self.hidden.in_channels, side, side)

    def _normalise(self, x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
        norm = self.norm
        if isinstance(norm, nn.GroupNorm):
            return F.group_norm(x, norm.num_groups, weight, bias, norm.eps)
        momentum = norm.momentum or 0.0
        return F.batch_norm(x, norm.running_mean, norm.running_var, weight, bias, norm.training, momentum, norm.eps)


class SpadeResBlock(nn.Module):
    """A residual block whose two norms are `Spade`."""

    def __init__(self, width: int, map_channels: int, *, norm: Literal["group", "batch"]) -> None:
        super().__init__()
        self.first_norm = Spade(width, map_channels, norm=norm)
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second_norm = Spade(width, map_channels, norm=norm)
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor, padded_map: Tensor | None) -> Tensor:
        inner = self.first(leaky(self.first_norm(x, padded_map)))
        out: Tensor = self.second(leaky(self.second_norm(inner, padded_map)))
        return out.add_(x)
