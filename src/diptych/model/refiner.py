"""The refiner: paints a healthy brain into a void of the patient's own image, guided by the decoded healthy twin.

A decoded twin is right and blurred. The refiner leaves every pixel outside the void as it was scanned and paints inside
it what surroundings, the other hemisphere and the decoded twin suggest. What it paints is generated, too.
Knows images, voids and guides; nothing about lesions, codes or files.
"""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from diptych.model.blocks import NormConv, ResBlock, he_init_

WIDTHS = (24, 48, 72, 96, 96)
"""Channels at full resolution and after each halving."""
MARGIN = 3
"""Pixels by which a void reaches beyond the lesion: its edge belongs to it, and predicted edges are not exact."""


class Refiner(nn.Module):
    """A small U-Net over the voided image, its mirror image and the guide; it paints what the guide lacks.

    Args:
        channels: channels of the images, C.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels
        self.enter = nn.Conv2d(3 * channels + 2, WIDTHS[0], 3, padding=1)
        self.descend = nn.ModuleList(
            nn.Sequential(NormConv(wide, deep, stride=2), ResBlock(deep, deep)) for wide, deep in pairwise(WIDTHS)
        )
        self.narrow = nn.ModuleList(NormConv(deep, wide) for wide, deep in pairwise(WIDTHS))
        self.join = nn.ModuleList(NormConv(2 * wide, wide) for wide in WIDTHS[:-1])
        self.out = nn.Conv2d(WIDTHS[0], channels, 3, padding=1)
        self.apply(he_init_)
        with torch.no_grad():
            self.out.weight *= 0.1
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, images: Tensor, void: Tensor, guide: Tensor) -> Tensor:
        """`[B, C, H, W]` with the void `[B, H, W]` painted anew; every other pixel is the image's own."""
        hole = void.unsqueeze(1)  # [B, 1, H, W]
        seen = torch.cat([images.masked_fill(hole, 0.0), hole.to(images.dtype)], dim=1)
        x = torch.cat([seen, seen.flip(-1), guide], dim=1).contiguous(memory_format=torch.channels_last)
        levels = [self.enter(x)]
        for block in self.descend:
            levels.append(block(levels[-1]))
        x = levels.pop()
        for narrow, join in zip(reversed(self.narrow), reversed(self.join), strict=True):
            finer = levels.pop()
            x = F.interpolate(narrow(x), size=finer.shape[2:], mode="bilinear", align_corners=False)
            x = join(torch.cat([x, finer], dim=1))
        return torch.where(hole, guide + self.out(x), images)


def void_of(lesion: Tensor) -> Tensor:
    """The void around lesions, bool `[B, H, W]`: a little wider than they are."""
    grown = F.max_pool2d((lesion > 0).float().unsqueeze(1), 2 * MARGIN + 1, stride=1, padding=MARGIN)
    return grown.squeeze(1) > 0


def filled(images: Tensor, void: Tensor, background: float) -> Tensor:
    """Images `[B, C, H, W]` whose void holds the mean of the brain outside it: what the encoder is shown."""
    brain = (images > background) & ~void.unsqueeze(1)
    mean = (images * brain).sum(dim=(2, 3)) / brain.sum(dim=(2, 3)).clamp_min(1)  # [B, C]
    return torch.where(void.unsqueeze(1) & (images > background), mean[:, :, None, None], images)
