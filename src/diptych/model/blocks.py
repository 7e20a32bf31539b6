"""The pieces that encoder and decoders are made of (appendix C of the paper): residual blocks, resampling, SPADE.

SPADE is a normalisation whose scale and shift are painted by a semantic map (Park et al., 2019). Where the map is
empty they are the same everywhere, which is what makes the healthy twin cheap to decode.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

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
        self.conv = nn.Conv2d(width_in, width_out, 3, stride, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.conv(leaky(self.norm(x)))
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
        self.conv = nn.Conv2d(width_in, width_out, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return F.interpolate(self.conv(x), scale_factor=2.0, mode="bilinear", align_corners=False)


REACH = 2
"""Pixels that two 3x3 convolutions look past each side."""
TILE = 8
"""Largest side of a tile, in pixels of its level."""


@dataclass(frozen=True)
class LesionTiles:
    """The tiles of one level of the image decoder that a lesion reaches."""

    side: int
    """Rows and columns of a tile."""
    places: tuple[Tensor, Tensor, Tensor]
    """Image, tile row and tile column of each of the n tiles."""
    patches: Tensor
    """The semantic map in each tile and `REACH` pixels around it, `[n, M, side + 4, side + 4]`."""

    @classmethod
    def cut(cls, level_map: Tensor) -> LesionTiles:
        """Tiles of a map `[B, M, H, W]`, beyond whose border nothing is lesion."""
        side = gcd(TILE, *level_map.shape[-2:])
        window = side + 2 * REACH
        padded = F.pad(level_map, (REACH,) * 4)
        patches = padded.unfold(2, window, side).unfold(3, window, side)  # [B, M, rows, columns, window, window]
        image, row, column = patches.ne(0).any(dim=5).any(dim=4).any(dim=1).nonzero(as_tuple=True)
        chosen = patches[image, :, row, column].contiguous(memory_format=torch.channels_last)
        return cls(side, (image, row, column), chosen)

    def view(self, features: Tensor) -> Tensor:
        """Features `[B, C, H, W]` seen as `[B, rows, columns, side, side, C]`; index it with `places`."""
        batch, channels, height, width = features.shape
        side = self.side
        grid = features.permute(0, 2, 3, 1).view(batch, height // side, side, width // side, side, channels)
        return grid.transpose(2, 3)


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

    def forward(self, x: Tensor, tiles: LesionTiles) -> Tensor:
        """Modulate `[B, width, H, W]`; images without a tile have the null condition."""
        normalised = self._normalise(x).contiguous(memory_format=torch.channels_last)
        scale, shift = self.modulation(self._empty_patch())  # [1, width, 1, 1] each
        out = torch.addcmul(shift, normalised, scale)
        if len(tiles.patches):
            scale, shift = (part.permute(0, 2, 3, 1) for part in self.modulation(tiles.patches))
            tiles.view(out)[tiles.places] = torch.addcmul(shift, tiles.view(normalised)[tiles.places], scale)
        return out

    def modulation(self, patches: Tensor) -> tuple[Tensor, Tensor]:
        """1 + γ and β, `[n, width, H, W]`, from patches of the map `[n, M, H + 4, W + 4]`."""
        hidden = F.relu_(self.hidden(patches))
        scale, shift = self.scale_and_shift(hidden).chunk(2, dim=1)
        return 1 + scale, shift

    def _empty_patch(self) -> Tensor:
        side = 2 * REACH + 1
        return self.hidden.weight.new_zeros(1, self.hidden.in_channels, side, side)

    def _normalise(self, x: Tensor) -> Tensor:
        """Batch statistics are those of one condition at a time, as in the paper's two passes."""
        if isinstance(self.norm, nn.BatchNorm2d) and self.training:
            return torch.cat([self.norm(condition) for condition in x.chunk(2)])
        normalised: Tensor = self.norm(x)
        return normalised


class SpadeResBlock(nn.Module):
    """A residual block whose two norms are `Spade`."""

    def __init__(self, width: int, map_channels: int, *, norm: Literal["group", "batch"]) -> None:
        super().__init__()
        self.first_norm = Spade(width, map_channels, norm=norm)
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second_norm = Spade(width, map_channels, norm=norm)
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor, tiles: LesionTiles) -> Tensor:
        inner = self.first(leaky(self.first_norm(x, tiles)))
        out: Tensor = self.second(leaky(self.second_norm(inner, tiles)))
        return out.add_(x)
