"""What training changes on slices: rotation, flip, contrast, and lesions grafted on healthy slices.

Everything works on a whole batch at once and draws from the generator it is given. A flip swaps left and right
anatomy labels. A grafted slice has a known healthy twin: the slice before the lesion came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import affine_grid, avg_pool2d, grid_sample

from diptych.slices.degradations import degrade, drop_channels
from diptych.slices.preprocess import CLIP, DATA_RANGE, FILL
from diptych.slices.slice_batch import Batch
from diptych.volumes.volume import ANATOMY_LABELS, mirror_anatomy

_OTHER_SIDE = torch.from_numpy(mirror_anatomy(np.arange(len(ANATOMY_LABELS), dtype=np.uint8))).long()


@dataclass(frozen=True)
class Augmentation:
    """How far a slice may be changed; zero switches a change off."""

    rotation: float = 10.0
    """Largest angle in degrees, either way."""
    flip: float = 0.5
    """Probability of a horizontal flip, which also swaps left and right anatomy labels."""
    gain: float = 0.0
    """Largest relative change of a channel's contrast."""
    offset: float = 0.0
    """Largest change of a channel's brightness, in standard deviations."""
    gamma: float = 0.0
    """Largest change of the logarithm of a channel's gamma."""
    noise: float = 0.0
    """Largest standard deviation of Gaussian noise added in the brain."""
    scale: float = 0.0
    """Largest change of the logarithm of the size."""
    degradations: float = 0.0
    """How strong the changes of `degradations.py` may be."""
    degraded_share: float = 1.0
    """Share of slices that they may befall."""
    channel_dropout: float = 0.0
    """Share of slices that lack channels."""
    sufficient_channels: tuple[int, ...] = ()
    """Channels of which one always stays."""

    @property
    def keeps_clean(self) -> bool:
        """Whether changes go so far that batches keep the slices as they were."""
        return self.degradations > 0 or self.channel_dropout > 0

    def with_contrast(self, factor: float) -> Augmentation:
        """The same geometry, with changes of contrast and noise `factor` times as large."""
        changes = {name: factor * getattr(self, name) for name in ("gain", "offset", "gamma", "noise")}
        return replace(self, **changes)


PAPER_AUGMENTATION = Augmentation()
"""Rotation by up to 10° and horizontal flip, as in the paper."""

ROBUST_AUGMENTATION = Augmentation(gain=0.15, offset=0.2, gamma=0.2, noise=0.1)
"""The paper's, and the differences in contrast that other scanners bring."""


@dataclass(frozen=True, eq=False)
class Changes:
    """What happens to each slice of a batch."""

    angle: Tensor
    """Rotation in radians, counter-clockwise on the screen, `[B]`."""
    flipped: Tensor
    """Whether left and right change sides (before the rotation), bool `[B]`."""
    gain: Tensor
    """Factor per channel, `[B, C]`."""
    offset: Tensor
    """Addition per channel, `[B, C]`."""
    gamma: Tensor
    """Exponent per channel, `[B, C]`."""
    noise: Tensor | None
    """Noise to add, `[B, C, H, W]`."""
    scale: Tensor | None = None
    """Factor on the size, `[B]`."""

    @classmethod
    def draw(cls, augmentation: Augmentation, seeds: Sequence[int], shape: tuple[int, int, int]) -> Changes:
        """Draw the change of each slice of `shape` `[C, H, W]` from its own seed."""
        C = shape[0]
        generators = [torch.Generator().manual_seed(int(seed)) for seed in seeds]
        drawn = torch.stack([torch.rand(3 + 3 * C, generator=generator) for generator in generators])
        spread = drawn[:, 3:].reshape(-1, 3, C) * 2 - 1  # [B, 3, C] in -1…1
        noise = None
        if augmentation.noise > 0:
            noise = torch.stack([torch.randn(shape, generator=generator) for generator in generators])
            noise = noise * (augmentation.noise * drawn[:, 2])[:, None, None, None]
        return cls(
            angle=torch.deg2rad((drawn[:, 0] * 2 - 1) * augmentation.rotation),
            flipped=drawn[:, 1] < augmentation.flip,
            gain=1 + spread[:, 0] * augmentation.gain,
            offset=spread[:, 1] * augmentation.offset,
            gamma=torch.exp(spread[:, 2] * augmentation.gamma),
            noise=noise,
            scale=torch.exp(_scatter(seeds) * augmentation.scale) if augmentation.scale else None,
        )


def _scatter(seeds: Sequence[int]) -> Tensor:
    """A number in −1…1 for each seed, `[B]`, beside those that the older changes draw."""
    drawn = [float(torch.rand((), generator=torch.Generator().manual_seed(int(seed) ^ 4))) for seed in seeds]
    return torch.tensor(drawn) * 2 - 1


def augment(batch: Batch, augmentation: Augmentation, seeds: Sequence[int]) -> Batch:
    """Change each slice of `batch` by what its seed says."""
    _, *shape = batch.image.shape
    changes = Changes.draw(augmentation, seeds, (shape[0], shape[1], shape[2]))
    batch = apply_changes(batch, changes)
    return _degraded(batch, augmentation, seeds) if augmentation.keeps_clean else batch


def _degraded(batch: Batch, augmentation: Augmentation, seeds: Sequence[int]) -> Batch:
    """Spoil the pixels and take channels away; what is cut off is no lesion any more."""
    image, lesion = batch.image, batch.lesion
    if augmentation.degradations > 0:
        image = degrade(image, augmentation.degradations, seeds, share=augmentation.degraded_share)
        lesion = lesion * ~(_brain(batch.image) & ~_brain(image))
    if augmentation.channel_dropout > 0:
        image = drop_channels(image, augmentation.channel_dropout, augmentation.sufficient_channels, seeds)
    return replace(batch, image=image, lesion=lesion)


def apply_changes(batch: Batch, changes: Changes) -> Batch:
    """Move images, labels and twin alike, then change the contrast of the images."""
    grid = _sampling_grid(batch, changes)
    clean = None if batch.clean is None else _move_images(batch.clean, grid)
    image = _restain(_move_images(batch.image, grid), changes)
    labels = torch.stack([batch.lesion, _mirrored(batch.anatomy, changes.flipped)], dim=1).float()
    moved = grid_sample(labels, grid, mode="nearest", padding_mode="zeros", align_corners=False).long()
    twin = None if batch.twin is None else _restain(_move_images(batch.twin, grid), changes)
    return replace(batch, image=image, clean=clean, lesion=moved[:, 0], anatomy=moved[:, 1], twin=twin)


def _sampling_grid(batch: Batch, changes: Changes) -> Tensor:
    """Where each output pixel looks in its input, in the −1…1 coordinates of `grid_sample`."""
    *_, H, W = batch.image.shape
    height, width = (batch.pixel_spacing * torch.tensor([H, W])).unbind(dim=1)
    scale = torch.ones_like(changes.angle) if changes.scale is None else changes.scale
    cos, sin = torch.cos(changes.angle) / scale, torch.sin(changes.angle) / scale
    side = torch.where(changes.flipped, -1.0, 1.0)
    zero = torch.zeros_like(cos)
    from_x = torch.stack([side * cos, -side * sin * height / width, zero], dim=1)
    from_y = torch.stack([sin * width / height, cos, zero], dim=1)
    theta = torch.stack([from_x, from_y], dim=1)  # [B, 2, 3]
    return affine_grid(theta, [len(batch), 1, H, W], align_corners=False)


def _move_images(image: Tensor, grid: Tensor) -> Tensor:
    # Zero padding is the only one that grid_sample has, so FILL is made zero on the way.
    return grid_sample(image - FILL, grid, mode="bilinear", padding_mode="zeros", align_corners=False) + FILL


def _mirrored(anatomy: Tensor, flipped: Tensor) -> Tensor:
    return torch.where(flipped[:, None, None], _OTHER_SIDE[anatomy], anatomy)


def _restain(image: Tensor, changes: Changes) -> Tensor:
    """Gamma, gain, offset and noise on the height above `FILL`; what is outside the brain stays `FILL`."""
    plain = changes.noise is None and bool((changes.gain == 1).all() & (changes.offset == 0).all())
    if plain and bool((changes.gamma == 1).all()):
        return image
    B, C, _, _ = image.shape
    gain, offset, gamma = (value.view(B, C, 1, 1) for value in (changes.gain, changes.offset, changes.gamma))
    height = (image - FILL).clamp(min=0)
    brain = height.clamp(max=1)  # soft at the edge, where a step would draw an outline
    stained = (height / DATA_RANGE).pow(gamma) * DATA_RANGE * gain + offset * brain
    if changes.noise is not None:
        stained = stained + changes.noise * brain
    return (stained + FILL).clamp(*CLIP)


SEAM = 5
"""Pixels over which the lesion fades into its new surroundings."""


def graft_lesions(batch: Batch, share: float, seeds: Sequence[int]) -> Batch:
    """Turn a share of the diseased slices into grafts: the lesion stays, the brain around it is the partner's.

    Slices 2i and 2i + 1 are partners. Only a diseased slice with a healthy partner can be grafted, and only where
    neither has a true twin of its own.
    """
    assert batch.twin is not None
    partner = (torch.arange(len(batch)) ^ 1).clamp(max=len(batch) - 1)
    drawn = torch.tensor([float(torch.rand((), generator=torch.Generator().manual_seed(seed ^ 1))) for seed in seeds])
    alone = ~(batch.has_twin | batch.has_twin[partner])
    chosen = (batch.diseased & ~batch.diseased[partner] & alone & (drawn < share)).nonzero().flatten()
    if len(chosen) == 0:
        return batch
    ground = partner[chosen]
    healthy = batch.image[ground]
    covered = _brain(healthy) & _brain(batch.image[chosen])  # [n, H, W]
    lesion = batch.lesion[chosen] * covered
    opacity = avg_pool2d((lesion > 0).float(), SEAM, stride=1, padding=SEAM // 2) * covered
    image = torch.lerp(healthy, batch.image[chosen], opacity.unsqueeze(1))
    return replace(
        batch,
        image=batch.image.index_copy(0, chosen, image),
        lesion=batch.lesion.index_copy(0, chosen, lesion),
        anatomy=batch.anatomy.index_copy(0, chosen, batch.anatomy[ground]),
        has_anatomy=batch.has_anatomy.index_copy(0, chosen, batch.has_anatomy[ground]),
        diseased=batch.diseased.index_copy(0, chosen, (lesion > 0).flatten(1).any(dim=1)),
        twin=batch.twin.index_copy(0, chosen, healthy),
        has_twin=batch.has_twin.index_fill(0, chosen, True),
    )


def _brain(images: Tensor) -> Tensor:
    """Where any channel shows tissue, `[n, H, W]`."""
    return (images > FILL).any(dim=1)
