"""SPADE: a normalisation whose scale and shift are painted by a semantic map (Park et al., 2019).

The map is zero wherever no lesion is predicted, which is almost everywhere, and there scale and shift are the same at
every pixel. So they are worked out once on a 5x5 patch of zeros, and again only in tiles that a lesion reaches. An
image under the null condition has no such tile and pays for no SPADE convolution. Nothing is approximated.

Knows nothing about what the map means.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from diptych.model.blocks import group_count, leaky
from diptych.model.norm import normalise
from diptych.model.winograd import Conv3x3

__all__ = ["LesionTiles", "Spade", "SpadeResBlock"]

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
        if isinstance(self.norm, nn.GroupNorm):
            return normalise(self.norm, x)
        normalised: Tensor = self.norm(x)
        return normalised


class SpadeResBlock(nn.Module):
    """A residual block whose two norms are `Spade`."""

    def __init__(self, width: int, map_channels: int, *, norm: Literal["group", "batch"]) -> None:
        super().__init__()
        self.first_norm = Spade(width, map_channels, norm=norm)
        self.first = Conv3x3(width, width)
        self.second_norm = Spade(width, map_channels, norm=norm)
        self.second = Conv3x3(width, width)

    def forward(self, x: Tensor, tiles: LesionTiles) -> Tensor:
        inner = self.first(leaky(self.first_norm(x, tiles)))
        out: Tensor = self.second(leaky(self.second_norm(inner, tiles)))
        return out.add_(x)
