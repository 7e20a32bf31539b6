"""The decoders: lesion labels from the abnormal code, images from the normal code (table C.2).

Both climb from the latent grid to the image in doublings. The image decoder is told where the lesion is by a semantic
map (`semantic_map`), or told nothing (None) and then paints the healthy twin.
"""

from __future__ import annotations

from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from diptych.config import ModelConfig
from diptych.model.blocks import LesionTiles, NormConv, ResBlock, SpadeResBlock, Upsample, group_count, leaky


class SegmentationDecoder(nn.Module):
    """The paper's s: abnormal code `[B, D, h, w]` to class logits `[B, S, H, W]`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        widths = config.widths[::-1]
        layers = _entry(config)
        for width, next_width in pairwise(widths):
            layers += [Upsample(width, next_width), ResBlock(next_width, next_width)]
        self.climb = nn.Sequential(*layers)
        self.out = nn.Conv2d(widths[-1], config.lesion_classes, 1)

    def forward(self, abnormal_code: Tensor) -> Tensor:
        logits: Tensor = self.out(self.climb(abnormal_code))
        return logits


class ImageDecoder(nn.Module):
    """The paper's f: normal code `[B, D, h, w]`, with or without a semantic map, to an image `[B, C, H, W]`.

    `stem` is what both conditions have in common, `paint` is what the condition changes, `out` turns painted features
    into pixels.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        widths = config.widths[::-1]
        map_channels = config.lesion_classes if config.condition_on_background else config.lesion_classes - 1
        pairs = list(pairwise(widths))
        self.stem = nn.Sequential(*_entry(config), Upsample(*pairs[0]))
        self.upsamples = nn.ModuleList(Upsample(*pair) for pair in pairs[1:])
        self.blocks = nn.ModuleList(SpadeResBlock(width, map_channels, norm=config.spade_norm) for _, width in pairs)
        self.out = nn.Conv2d(widths[-1], config.channels, 1)

    def paint(self, features: Tensor, semantics: Tensor) -> Tensor:
        """Features `[B, width, 2h, 2w]` from the stem to features at full resolution, both conditions in one pass.

        The map `[n, M, H, W]` is that of the first n images; the others have the null condition.
        """
        for level, block in enumerate(self.blocks):
            if level > 0:
                features = self.upsamples[level - 1](features)
            factor = semantics.shape[-1] // features.shape[-1]
            level_map = F.avg_pool2d(semantics, factor) if factor > 1 else semantics
            features = block(features, LesionTiles.cut(level_map))
        return features


class AnatomyHead(nn.Module):
    """Anatomy logits `[B, A, H, W]` from the features of which the healthy twin is painted.

    Those features depend on the normal code alone, so the labels are decoded from the normal code, at the price of
    one convolution instead of a third decoder.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width = config.widths[0]
        self.inner = NormConv(width, 2 * width)
        self.norm = nn.GroupNorm(group_count(2 * width), 2 * width)
        self.out = nn.Conv2d(2 * width, config.anatomy_classes, 1)

    def forward(self, twin_features: Tensor) -> Tensor:
        logits: Tensor = self.out(leaky(self.norm(self.inner(twin_features))))
        return logits


def _entry(config: ModelConfig) -> list[nn.Module]:
    """From a code to the first features; table C.2 has one block do it, whose skip then is a 1x1 convolution."""
    width = config.widths[-1]
    if config.decoder_entry == "block":
        return [ResBlock(config.code_width, width)]
    return [nn.Conv2d(config.code_width, width, 3, padding=1), ResBlock(width, width)]


def semantic_map(lesion_logits: Tensor, *, with_background: bool) -> Tensor:
    """Lesion probabilities, zero wherever background wins, cut from the gradient (the paper's sg(ỹ)).

    Args:
        lesion_logits: `[B, S, H, W]`; class 0 is background.
        with_background: keep the background's own probability as a channel, as the paper does.

    Returns:
        `[B, S, H, W]`, or `[B, S - 1, H, W]` without the background channel.
    """
    logits = lesion_logits.detach()
    probabilities = logits.softmax(dim=1)
    lesion = logits[:, 1:].amax(dim=1, keepdim=True) > logits[:, :1]
    shown = probabilities if with_background else probabilities[:, 1:]
    return shown * lesion
