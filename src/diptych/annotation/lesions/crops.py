"""Training crops: which part of which patient, flipped and jittered; a pure function of (seed, fold, step).

Knows prepared cases, no network. Half the crops are centred on a lesion voxel, of a compartment drawn evenly from those
the patient has, so that small ones are seen as often as oedema.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diptych.annotation.lesions.lesion_cases import Case
from diptych.annotation.lesions.lesion_network import LesionPreset

JITTER = 0.1
"""Largest change of each channel: added to its z-scores, and multiplied as 1 ± this."""


@dataclass(frozen=True)
class Crops:
    """A batch."""

    images: Tensor
    """`[B, 4, x, y, z]`."""
    labels: Tensor
    """`[B, 1, x, y, z]`, int64."""


class CropSampler:
    """Draws batches from the training patients of one fold; every patient comes once per epoch."""

    def __init__(self, cases: Sequence[Case], preset: LesionPreset, *, fold: int) -> None:
        self.cases = list(cases)
        self.preset = preset
        self._start = (preset.seed, fold)

    @property
    def steps_per_epoch(self) -> int:
        """Updates in which every patient has been seen about once."""
        return max(1, round(len(self.cases) / self.preset.batch_size))

    def draw(self, step: int) -> Crops:
        """The batch of update `step` (from 0)."""
        first = step * self.preset.batch_size
        pairs = [self._crop(number) for number in range(first, first + self.preset.batch_size)]
        images, labels = (np.stack(arrays) for arrays in zip(*pairs, strict=True))
        return Crops(torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64))[:, None])

    def _crop(self, number: int) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
        epoch, place = divmod(number, len(self.cases))
        order = np.random.default_rng((*self._start, 0, epoch)).permutation(len(self.cases))
        case = self.cases[order[place]]
        rng = np.random.default_rng((*self._start, 1, number))
        whole = case.labels
        image, labels = _cut(case, whole, self._corner(whole, rng), self.preset.crop)
        return _augmented(image, labels, rng)

    def _corner(self, labels: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.int64]:
        """Lowest voxel of a crop that lies inside the brain's box as far as the box is large enough."""
        crop, shape = np.array(self.preset.crop), np.array(labels.shape)
        room = np.maximum(shape - crop, 0)
        if rng.random() >= self.preset.lesion_share:
            return np.asarray(rng.integers(0, room + 1), dtype=np.int64)
        label = rng.choice([label for label in (1, 2, 3) if (labels == label).any()])
        voxels = np.flatnonzero(labels == label)
        middle = np.array(np.unravel_index(rng.choice(voxels), labels.shape))
        return np.asarray(np.clip(middle - crop // 2 + rng.integers(-4, 5, 3), 0, room), dtype=np.int64)


def _cut(
    case: Case, whole: NDArray[np.uint8], corner: NDArray[np.int64], crop: tuple[int, int, int]
) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """Read one crop, padded with background where the brain's box is smaller."""
    x, y, z = (
        slice(int(start), int(min(start + side, end)))
        for start, side, end in zip(corner, crop, whole.shape, strict=True)
    )
    part = case.image((x, y, z))
    image = np.zeros((len(part), *crop), dtype=np.float32)
    labels = np.zeros(crop, dtype=np.uint8)
    inside = tuple(slice(0, size) for size in part.shape[1:])
    image[:, *inside] = part
    labels[inside] = whole[x, y, z]
    return image, labels


def _augmented(
    image: NDArray[np.float32], labels: NDArray[np.uint8], rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """Flip along each axis or not, and change each channel's brightness and contrast inside the brain."""
    axes = tuple(int(axis) for axis in np.flatnonzero(rng.random(3) < 0.5))
    image = np.flip(image, tuple(axis + 1 for axis in axes))
    labels = np.flip(labels, axes)
    shift, scale = rng.uniform(-JITTER, JITTER, (2, len(image), 1, 1, 1)).astype(np.float32)
    changed = np.where(image != 0, image * (1 + scale) + shift, 0)
    return np.ascontiguousarray(changed, dtype=np.float32), np.ascontiguousarray(labels)
