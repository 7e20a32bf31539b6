"""What other scanners and other hands do to a slice: bias, contrast, noise, blur, ghosts, cropping, poor stripping, …

Each change is one function of images `[B, C, H, W]`, a strength per slice (0 nothing, 1 as bad as one should expect)
and numbers drawn beforehand: training (`degrade`, a random few of them) and evaluation (one at a time) use the same.
Thick slices need their neighbours and are made where these are known. Knows nothing about labels or patients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from diptych.slices.preprocess import CLIP, DATA_RANGE, FILL

COARSE = 4
"""Rows and columns of the random fields that bias and stripping follow, before they are made smooth."""
NUMBERS = 64
"""Uniform numbers that a change may use, besides its fields."""
CHOSEN = 0.3
"""How often training applies each kind of change."""


@dataclass(frozen=True, eq=False)
class Dice:
    """Random numbers for a batch, a row for each slice, all from the slice's own seed."""

    numbers: Tensor
    """Uniform in 0…1, `[B, NUMBERS]`."""
    fields: Tensor
    """Uniform in −1…1 on a coarse grid, `[B, C + 1, COARSE, COARSE]`."""
    seeds: tuple[int, ...]

    @classmethod
    def throw(cls, seeds: Sequence[int], channels: int) -> Dice:
        """The numbers of each seed."""
        size = NUMBERS + (channels + 1) * COARSE**2
        drawn = torch.stack([torch.rand(size, generator=torch.Generator().manual_seed(seed ^ 2)) for seed in seeds])
        fields = drawn[:, NUMBERS:].view(-1, channels + 1, COARSE, COARSE) * 2 - 1
        return cls(drawn[:, :NUMBERS], fields, tuple(seeds))

    def of(self, chosen: Tensor) -> Dice:
        """Those of some slices, by index."""
        return Dice(self.numbers[chosen], self.fields[chosen], tuple(self.seeds[i] for i in chosen.tolist()))

    def smooth(self, size: tuple[int, int]) -> Tensor:
        """The fields at full resolution, `[B, C + 1, H, W]`."""
        return F.interpolate(self.fields, size=size, mode="bicubic", align_corners=True)

    def spread(self, start: int, channels: int) -> Tensor:
        """Uniform in −1…1, one per channel, `[B, C, 1, 1]`."""
        return (self.numbers[:, start : start + channels] * 2 - 1)[:, :, None, None]


Change = Callable[[Tensor, Tensor, Dice], Tensor]
"""Images `[B, C, H, W]`, strengths `[B]` and dice to changed images."""


def bias(images: Tensor, strength: Tensor, dice: Dice) -> Tensor:
    """A smooth field of gain, another one for each channel."""
    field = dice.smooth((images.shape[2], images.shape[3]))[:, :-1]
    return _scaled(images, torch.exp(0.6 * _wide(strength) * field))


def contrast(images: Tensor, strength: Tensor, dice: Dice) -> Tensor:
    """Other gamma, gain and brightness in each channel."""
    C = images.shape[1]
    gamma = torch.exp(0.5 * _wide(strength) * dice.spread(0, C))
    gain = 1 + 0.3 * _wide(strength) * dice.spread(C, C)
    offset = 0.5 * _wide(strength) * dice.spread(2 * C, C)
    height = (images - FILL).clamp(min=0)
    changed = (height / DATA_RANGE).pow(gamma) * DATA_RANGE * gain + offset * height.clamp(max=1)
    return (changed + FILL).clamp(*CLIP)


def noise(images: Tensor, strength: Tensor, dice: Dice) -> Tensor:
    """Gaussian noise in the brain, up to half a standard deviation of the tissue."""
    shape = images.shape[1:]
    drawn = torch.stack([torch.randn(shape, generator=torch.Generator().manual_seed(s ^ 3)) for s in dice.seeds])
    return (images + 0.5 * _wide(strength) * drawn * _tissue(images)).clamp(*CLIP)


def blur(images: Tensor, strength: Tensor, dice: Dice) -> Tensor:
    """A wider point spread, in rows and columns alike."""
    wide = images
    for _ in range(3):
        wide = F.avg_pool2d(F.pad(wide, (1, 1, 1, 1), value=FILL), 3, stride=1)
    mixed = torch.lerp(images, wide, _wide(strength))
    return torch.where(_brain(images), mixed, images)


def ghosts(images: Tensor, strength: Tensor, dice: Dice) -> Tensor:
    """Copies shifted along the phase direction, as motion and pulsation leave them, inside the brain."""
    height = images - FILL
    H = images.shape[2]
    shifts = (H * (0.15 + 0.35 * dice.numbers[:, 0])).long().tolist()
    copies = torch.stack([one.roll(s, dims=1) + one.roll(-s, dims=1) for one, s in zip(height, shifts, strict=True)])
    return (images + 0.15 * _wide(strength) * (copies - height) * _tissue(images)).clamp(*CLIP)


def cropped(images: Tensor, strength: Tensor, dice: Dice) -> Tensor:
    """A field of view that ends inside the brain: up to a quarter of it is cut off at one side."""
    _, _, H, W = images.shape
    down, across = torch.linspace(0, 1, H)[:, None].expand(H, W), torch.linspace(0, 1, W)[None, :].expand(H, W)
    ramps = torch.stack([down, 1 - down, across, 1 - across])  # [4, H, W]
    side = (dice.numbers[:, 0] * 4).long().clamp(max=3)
    kept = ramps[side] >= (0.05 + 0.25 * strength)[:, None, None] * (strength > 0)[:, None, None]
    return torch.where(kept.unsqueeze(1), images, torch.full_like(images, FILL))


def stripped(images: Tensor, strength: Tensor, dice: Dice) -> Tensor:
    """A poor brain mask: here a rim of skull is left, there the cortex is cut."""
    field = dice.smooth((images.shape[2], images.shape[3]))[:, -1:]
    brain = _brain(images).float()
    depth = (4 * _wide(strength)).round()
    grown, shrunk = brain, brain
    for layer in range(4):
        more = (depth > layer).float()
        grown = torch.lerp(grown, F.max_pool2d(grown, 3, stride=1, padding=1), more)
        shrunk = torch.lerp(shrunk, 1 - F.max_pool2d(1 - shrunk, 3, stride=1, padding=1), more)
    rim = (grown > 0.5) & (brain < 0.5) & (field > 0.15)
    cut = (shrunk < 0.5) & (field < -0.15)
    C = images.shape[1]
    skull = FILL + DATA_RANGE * (0.15 + 0.6 * dice.numbers[:, :C])[:, :, None, None] + 0.0 * images
    return torch.where(cut, torch.full_like(images, FILL), torch.where(rim, skull, images))


def misregistered(images: Tensor, strength: Tensor, dice: Dice) -> Tensor:
    """Each channel moved a little for itself: up to two and a half pixels and two degrees."""
    B, C, H, W = images.shape
    shift = dice.spread(0, C).view(B, C) * 5 / H, dice.spread(C, C).view(B, C) * 5 / W
    angle = dice.spread(2 * C, C).view(B, C) * 0.035 * strength[:, None]
    cos, sin = torch.cos(angle), torch.sin(angle)
    rows = torch.stack([sin, cos, shift[0] * strength[:, None]], dim=-1)
    columns = torch.stack([cos, -sin, shift[1] * strength[:, None]], dim=-1)
    grid = F.affine_grid(torch.stack([columns, rows], dim=2).view(B * C, 2, 3), [B * C, 1, H, W], align_corners=False)
    moved = F.grid_sample((images - FILL).reshape(B * C, 1, H, W), grid, padding_mode="zeros", align_corners=False)
    return moved.view(B, C, H, W) + FILL


CHANGES: dict[str, Change] = {
    "bias": bias,
    "contrast": contrast,
    "misregistered": misregistered,
    "blur": blur,
    "ghosts": ghosts,
    "noise": noise,
    "stripped": stripped,
    "cropped": cropped,
}
"""Every kind, in the order in which they happen."""


def degrade(images: Tensor, factor: float, seeds: Sequence[int], *, share: float = 1.0) -> Tensor:
    """A random few changes of random strength up to `factor` on a share of the slices of `[B, C, H, W]`."""
    dice = Dice.throw(seeds, images.shape[1])
    lot, last = dice.numbers[:, -2 * len(CHANGES) - 1], dice.numbers[:, -2 * len(CHANGES) :]  # that no change uses
    for place, change in enumerate(CHANGES.values()):
        chosen = ((last[:, 2 * place] < CHOSEN) & (lot < share)).nonzero().flatten()
        if len(chosen):
            strength = factor * last[chosen, 2 * place + 1]
            images = images.index_copy(0, chosen, change(images[chosen], strength, dice.of(chosen)))
    return images


def drop_channels(images: Tensor, share: float, sufficient: Sequence[int], seeds: Sequence[int]) -> Tensor:
    """Take channels from a share of the slices: they look as outside the brain; one of `sufficient` always stays."""
    _B, C = images.shape[:2]
    drawn = torch.stack([torch.rand(C + 2, generator=torch.Generator().manual_seed(seed ^ 5)) for seed in seeds])
    kept = (drawn[:, :C] < 0.5) | (drawn[:, C : C + 1] >= share)
    enough = torch.tensor(sufficient)
    saved = enough[(drawn[:, C + 1] * len(enough)).long().clamp(max=len(enough) - 1)]  # [B]
    lacking = ~kept[:, enough].any(dim=1)
    kept[lacking, saved[lacking]] = True
    return torch.where(kept[:, :, None, None], images, torch.full_like(images, FILL))


def _wide(strength: Tensor) -> Tensor:
    return strength[:, None, None, None]


def _brain(images: Tensor) -> Tensor:
    """Where any channel shows tissue, `[B, 1, H, W]`."""
    return (images > FILL).any(dim=1, keepdim=True)


def _tissue(images: Tensor) -> Tensor:
    """1 in the brain, 0 outside, soft at the edge, where a step would draw an outline."""
    return (images - FILL).clamp(0, 1)


def _scaled(images: Tensor, gain: Tensor) -> Tensor:
    return ((images - FILL) * gain + FILL).clamp(*CLIP)
