"""Images as another scanner, another day or a restless patient would have given them.

Knows batches of slices. All changes act on z-scored slices: a shift or a gain of a whole volume's raw intensities never
gets that far, because z-scoring removes it. Signal is the height above the value outside the brain.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from diptych.slices import CLIP, FILL, Batch
from diptych.slices.augment import Changes, apply_changes

__all__ = ["Perturbation", "perturbations"]


@dataclass(frozen=True)
class Perturbation:
    """One change of images (and, for rotations, of their labels)."""

    name: str
    apply: Callable[[Batch], Batch]


def perturbations(channels: tuple[str, ...], *, seed: int = 0) -> list[Perturbation]:
    """All changes that robustness is measured under, the unchanged images first."""
    return [
        Perturbation("none", lambda batch: batch),
        Perturbation("2 % noise of the signal", lambda batch: relative_noise(batch, 0.02, seed=seed)),
        Perturbation("noise of 0.2 sd", lambda batch: noise(batch, 0.2, seed=seed)),
        Perturbation("brighter by 0.3 sd", lambda batch: brighten(batch, 0.3)),
        Perturbation("darker by 0.3 sd", lambda batch: brighten(batch, -0.3)),
        Perturbation("bias field of ±20 %", lambda batch: bias_field(batch, 0.2)),
        Perturbation("rotated by 10°", lambda batch: rotate(batch, 10.0)),
        Perturbation("rotated by -10°", lambda batch: rotate(batch, -10.0)),
        *(Perturbation(f"without {name}", _without(place)) for place, name in enumerate(channels)),
    ]


def relative_noise(batch: Batch, share: float, *, seed: int) -> Batch:
    """Gaussian noise whose deviation is a share of each pixel's signal."""
    return _in_brain(batch, lambda image: FILL + (image - FILL) * (1 + share * _normal(image, seed)))


def noise(batch: Batch, deviation: float, *, seed: int) -> Batch:
    """Gaussian noise of one deviation everywhere in the brain."""
    return _in_brain(batch, lambda image: image + deviation * _normal(image, seed))


def brighten(batch: Batch, offset: float) -> Batch:
    """Add to all channels, as when z-scoring went by other voxels."""
    return _in_brain(batch, lambda image: image + offset)


def bias_field(batch: Batch, strength: float) -> Batch:
    """Multiply the signal by a field that falls from the front left corner to the back right one."""
    H, W = batch.image.shape[2:]
    down, across = torch.linspace(-1, 1, H)[:, None], torch.linspace(-1, 1, W)[None, :]
    field = 1 + strength * (down + across) / 2  # [H, W]
    return _in_brain(batch, lambda image: FILL + (image - FILL) * field)


def rotate(batch: Batch, degrees: float) -> Batch:
    """Turn images and labels about the middle of the frame."""
    count, channels = batch.image.shape[:2]
    ones = torch.ones(count, channels)
    angle = torch.full((count,), math.radians(degrees))
    changes = Changes(angle, torch.zeros(count, dtype=torch.bool), ones, torch.zeros_like(ones), ones, None)
    return apply_changes(batch, changes)


def drop_channel(batch: Batch, place: int) -> Batch:
    """Blank one channel, as if it had not been scanned."""
    image = batch.image.clone()
    image[:, place] = FILL
    return replace(batch, image=image)


def _without(place: int) -> Callable[[Batch], Batch]:
    return lambda batch: drop_channel(batch, place)


def _in_brain(batch: Batch, change: Callable[[Tensor], Tensor]) -> Batch:
    """Change what shows brain and keep within the range of z-scores; the rest stays as it is."""
    brain = batch.image > FILL
    return replace(batch, image=torch.where(brain, change(batch.image).clamp(*CLIP), batch.image))


def _normal(image: Tensor, seed: int) -> Tensor:
    return torch.randn(image.shape, generator=torch.Generator().manual_seed(seed))
