"""From a patient's own grid to the network's, and back: the brain's box at one voxel size.

Knows arrays and voxel sizes, nothing about files or networks. Along each axis the kernel is a triangle as wide as the
coarser of the two grids: linear interpolation when voxels get smaller, antialiased averaging when they get larger.
Where both sizes agree, nothing is changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diptych.errors import VolumeError
from diptych.slices.preprocess import Axis
from diptych.volumes import Volume

CLIP = 5.0
"""Largest z-score, either way."""


@dataclass(frozen=True)
class BrainBox:
    """The smallest box around a brain, and the working grid that covers it."""

    frame: tuple[int, int, int]
    """Voxels of the patient's whole grid, canonical axes."""
    place: tuple[slice, slice, slice]
    """Where in it the box lies."""
    source: tuple[Axis, Axis, Axis]
    """The box in the patient's voxels."""
    working: tuple[Axis, Axis, Axis]
    """The box in the network's voxels."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Voxels of the working grid."""
        x, y, z = (axis.count for axis in self.working)
        return x, y, z

    def to_working(self, array: NDArray[np.float32]) -> NDArray[np.float32]:
        """Resample `[C, X, Y, Z]` of the whole frame to `[C, x, y, z]`."""
        return _resampled(array[:, *self.place], self.source, self.working)

    def to_source(self, array: NDArray[np.float32]) -> NDArray[np.float32]:
        """Resample `[C, x, y, z]` to `[C, X, Y, Z]` of the whole frame, zero outside the box."""
        whole = np.zeros((len(array), *self.frame), dtype=np.float32)
        whole[:, *self.place] = _resampled(array, self.working, self.source)
        return whole


def brain_box(volume: Volume, spacing_mm: float) -> BrainBox:
    """Lay a working grid of `spacing_mm` over the box around the volume's brain."""
    brain = volume.brain
    if not brain.any():
        raise VolumeError(f"{volume.patient_key}: no voxel has signal; check the image files")
    edges = []
    for axis in range(3):
        filled = np.flatnonzero(brain.any(axis=tuple({0, 1, 2} - {axis})))
        edges.append((int(filled[0]), int(filled[-1]) + 1))
    source = [Axis(stop - start, size) for (start, stop), size in zip(edges, volume.spacing, strict=True)]
    working = [_covering(axis, spacing_mm) for axis in source]
    return BrainBox(
        frame=volume.shape,
        place=(slice(*edges[0]), slice(*edges[1]), slice(*edges[2])),
        source=(source[0], source[1], source[2]),
        working=(working[0], working[1], working[2]),
    )


def working_image(volume: Volume, box: BrainBox) -> NDArray[np.float32]:
    """Z-score each channel over its voxels with signal, leave the rest 0, and resample, `[C, x, y, z]`."""
    scores = np.zeros_like(volume.array)
    for name, signal, score in zip(volume.channels, volume.array, scores, strict=True):
        brain = signal > 0
        values = signal[brain].astype(np.float64)
        if not values.size or not values.std() > 1e-6 * abs(values.mean()):
            raise VolumeError(f"{volume.patient_key}: channel {name} has one value all over; check the image file")
        score[brain] = np.clip((values - values.mean()) / values.std(), -CLIP, CLIP)
    return box.to_working(scores)


def working_labels(lesion: NDArray[np.uint8], box: BrainBox, *, classes: int) -> NDArray[np.uint8]:
    """Resample a label map `[X, Y, Z]` to `[x, y, z]`: a voxel takes the label that fills most of it.

    `classes` counts the background, too.
    """
    shares = box.to_working(np.stack([(lesion == label).astype(np.float32) for label in range(classes)]))
    winner: NDArray[np.uint8] = shares.argmax(axis=0).astype(np.uint8)
    return winner


def _covering(axis: Axis, spacing: float) -> Axis:
    """Cells of `spacing` over the same middle that leave none of `axis` out."""
    length = axis.count * axis.spacing
    count = max(1, int(np.ceil(length / spacing - 1e-3)))
    return Axis(count, spacing, (length - count * spacing) / 2)


def _resampled(array: NDArray[np.float32], old: Sequence[Axis], new: Sequence[Axis]) -> NDArray[np.float32]:
    for number, (source, target) in enumerate(zip(old, new, strict=True), start=1):
        weights = _weights(source, target)  # [target, source]
        array = np.moveaxis(np.tensordot(weights, array, axes=(1, number)), 0, number)
    return np.ascontiguousarray(array)


def _weights(source: Axis, target: Axis) -> NDArray[np.float32]:
    reach = max(source.spacing, target.spacing)
    distance = np.abs(target.centres[:, None] - source.centres[None, :])
    weights = np.clip(1.0 - distance / reach, 0.0, None)
    weights /= np.maximum(weights.sum(axis=1, keepdims=True), 1e-6)
    return np.asarray(weights, dtype=np.float32)
