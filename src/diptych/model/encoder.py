"""The encoder e: one image in, two latent grids out (table C.1).

A common trunk halves the image twice (once where once is all) and then splits into two branches of the same build, one
for normal and one for abnormal anatomy. No skip connection leaves the encoder: the codes are the bottleneck.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from diptych.config import ModelConfig
from diptych.model.blocks import NormConv, ResBlock

TRUNK_HALVINGS = 2


class Encoder(nn.Module):
    """`[B, C, H, W]` to the continuous normal and abnormal grids `[B, D, h, w]` (z_e⁻, z_e⁺)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        full, half, *quarter = config.widths[: TRUNK_HALVINGS + 1]
        layers: list[nn.Module] = [nn.Conv2d(config.channels, full, 3, padding=1), NormConv(full, half, stride=2)]
        for width in quarter:
            layers += [ResBlock(half, half), NormConv(half, width, stride=2)]
        self.trunk = nn.Sequential(*layers)
        self.normal = _branch(config)
        self.abnormal = _branch(config)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        shared = self.trunk(images)
        return self.normal(shared), self.abnormal(shared)

    @torch.no_grad()
    def begin_as_nothing(self, blocks: int) -> None:
        """Let the last blocks of both branches pass on what they are given, until training finds a use for them."""
        for branch in (self.normal, self.abnormal):
            for block in list(branch)[len(branch) - blocks :]:
                assert isinstance(block, ResBlock)
                block.second.conv.weight.zero_()


def _branch(config: ModelConfig) -> nn.Sequential:
    widths = config.widths[min(TRUNK_HALVINGS, config.halvings) :]
    layers: list[nn.Module] = []
    for width, next_width in pairwise(widths):
        layers += [ResBlock(width, width), NormConv(width, next_width, stride=2)]
    layers += [ResBlock(widths[-1], widths[-1]), ResBlock(widths[-1], config.code_width)]
    layers += [ResBlock(config.code_width, config.code_width) for _ in range(config.deeper)]
    return nn.Sequential(*layers)
