"""From a `Volume` to the axial slices that the network sees: z-score, field of view, resize.

Knows nothing about files, stores or torch. Each channel is z-scored over its own voxels with signal (> 0), clipped to
`CLIP`, and set to `FILL` everywhere else, so that nothing in the brain is darker than what lies outside it. A slice is
an image `[C, H, W]`: rows run from anterior to posterior, columns from the patient's right to the left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from diptych.errors import MissingChannelError, TooLargeError, UsageError, VolumeError
from diptych.volumes.volume import Volume

if TYPE_CHECKING:
    from scipy.sparse import csr_array

FILL = -3.0
"""Value of every pixel outside the brain, and what augmentation fills in from beyond the frame."""

CLIP = (-3.0, 5.0)
"""Lowest and highest z-score that is kept."""

DATA_RANGE = CLIP[1] - CLIP[0]
"""True range of the images, as SSIM wants to know it."""

BLANK_BELOW = 0.01
"""A slice with less brain than this fraction of its frame is blank: it is neither stored nor searched."""

MOST_SLICES = 1024
"""Axial slices of one volume: a metre at a millimetre each."""

EDGE_SHARE = 0.005
"""Rows and columns with less brain than this share of the fullest one do not count for the brain's box: stray voxels
beside the brain must not shift it."""


@dataclass(frozen=True)
class SliceGeometry:
    """How large a slice is in pixels, and which part of the body it shows."""

    size: tuple[int, int] = (128, 128)
    """Rows and columns of a slice."""
    field: tuple[float, float] | None = (200.0, 160.0)
    """Height and width in millimetres of a box centred on the brain; None shows the whole frame, as the paper does."""

    def __post_init__(self) -> None:
        if len(self.size) != 2 or min(self.size) < 8:
            raise UsageError(f"slice size {self.size}: needs two numbers of at least 8 pixels, such as 128x128")
        if self.field is not None and (len(self.field) != 2 or not min(self.field) > 0):
            raise UsageError(f"field of view {self.field}: needs two lengths in mm above 0, such as 200x160, or full")

    def __str__(self) -> str:
        view = "the whole frame" if self.field is None else f"{self.field[0]:g}x{self.field[1]:g} mm"
        return f"{self.size[0]}x{self.size[1]} pixels over {view}"


@dataclass(frozen=True, eq=False)
class SliceStack:
    """All slices of one volume, from the lowest to the highest."""

    patient_key: str
    channels: tuple[str, ...]
    images: NDArray[np.float32]
    """Z-scores, `[Z, C, H, W]`, `FILL` outside the brain."""
    lesion: NDArray[np.uint8] | None
    """Lesion labels, `[Z, H, W]`."""
    anatomy: NDArray[np.uint8] | None
    """Anatomy labels, `[Z, H, W]`."""
    twin: NDArray[np.float32] | None
    """A phantom's healthy twin on the patient's own intensity scale, `[Z, C, H, W]`."""
    z_index: NDArray[np.int64]
    """Index of each slice in the volume, `[Z]`."""
    z_mm: NDArray[np.float64]
    """Height of each slice in the scanner's world, `[Z]`."""
    position: NDArray[np.float32]
    """0 at the lowest slice that is not blank, 1 at the highest, `[Z]`."""
    brain_area: NDArray[np.float32]
    """Part of the frame that is brain, `[Z]`."""
    affine: NDArray[np.float64]
    """(column, row, z index) to RAS+ millimetres, `[4, 4]`."""
    intensity: dict[str, tuple[float, float]]
    """Mean and standard deviation by which each channel was z-scored."""
    warnings: tuple[str, ...]
    """What the reader of the volume noticed, and a brain larger than the field."""

    @property
    def pixel_spacing(self) -> tuple[float, float]:
        """Distance in millimetres between rows and between columns."""
        column, row, _ = np.linalg.norm(self.affine[:3, :3], axis=0)
        return float(row), float(column)

    @property
    def blank(self) -> NDArray[np.bool_]:
        """Slices with too little brain to be of use, `[Z]`."""
        return np.asarray(self.brain_area < BLANK_BELOW)

    def without_blank(self) -> SliceStack:
        """The same stack with its blank slices left out."""
        kept = ~self.blank
        return replace(
            self,
            images=self.images[kept],
            lesion=None if self.lesion is None else self.lesion[kept],
            anatomy=None if self.anatomy is None else self.anatomy[kept],
            twin=None if self.twin is None else self.twin[kept],
            z_index=self.z_index[kept],
            z_mm=self.z_mm[kept],
            position=self.position[kept],
            brain_area=self.brain_area[kept],
        )


def slice_volume(
    volume: Volume,
    geometry: SliceGeometry | None = None,
    *,
    channels: Sequence[str] | None = None,
    fill_missing: bool = False,
) -> SliceStack:
    """Cut `volume` into normalised axial slices of `channels` (default: all that it has).

    With `fill_missing` a channel that the volume lacks looks as outside the brain, as networks that can do without it
    were shown; otherwise it is refused.
    """
    geometry = geometry or SliceGeometry()
    names = tuple(channels or volume.channels)
    if volume.shape[2] > MOST_SLICES:  # a few bytes of a thin, endless volume would become gigabytes of slices
        raise TooLargeError(
            f"{volume.patient_key}: {volume.shape[2]} axial slices, more than the {MOST_SLICES} that a head may have; "
            "check the image's axes"
        )
    brain = volume.brain
    if not brain.any():
        raise VolumeError(f"{volume.patient_key}: no voxel has any signal; check the image files")
    target_x, target_y, warnings = _place_field(volume, brain, geometry)
    X, Y, _ = volume.shape
    sx, sy, _ = volume.spacing
    resampler = Resampler(Axis(X, sx), Axis(Y, sy), target_x, target_y)

    present = tuple(name for name in names if name in volume.channels) if fill_missing else names
    images, twin, intensity = _normalised(volume, present, resampler)
    images = _with_blanks(images, present, names)
    twin = None if twin is None else _with_blanks(twin, present, names)
    brain_area = resampler.images(brain.astype(np.float32), fill=0.0).mean(axis=(1, 2), dtype=np.float64)
    if brain_area.max() < BLANK_BELOW:
        raise VolumeError(f"{volume.patient_key}: no slice shows enough brain; check the images and the field of view")
    affine = _slice_affine(volume, target_x, target_y)
    Z = len(images)
    return SliceStack(
        patient_key=volume.patient_key,
        channels=names,
        images=images,
        lesion=None if volume.lesion is None else resampler.labels(volume.lesion),
        anatomy=None if volume.anatomy is None else resampler.labels(volume.anatomy),
        twin=twin,
        z_index=np.arange(Z),
        z_mm=affine[2, 3] + affine[2, 2] * np.arange(Z) + affine[2, :2] @ _middle(geometry.size),
        position=_positions(brain_area),
        brain_area=brain_area.astype(np.float32),
        affine=affine,
        intensity=intensity,
        warnings=(*volume.warnings, *warnings),
    )


def _normalised(
    volume: Volume, names: tuple[str, ...], resampler: Resampler
) -> tuple[NDArray[np.float32], NDArray[np.float32] | None, dict[str, tuple[float, float]]]:
    """Z-score and resample one channel after the other; the twin keeps the patient's mean and deviation."""
    images, twins = [], []
    intensity = {}
    for name in names:
        if name not in volume.channels:
            have = ", ".join(volume.channels)
            raise MissingChannelError(f"{volume.patient_key}: no channel {name}, only {have}; add it or leave it out")
        index = volume.channels.index(name)
        mean, deviation = _statistics(volume.array[index], f"{volume.patient_key}: channel {name}")
        intensity[name] = (mean, deviation)
        images.append(resampler.images(_z_scores(volume.array[index], mean, deviation), fill=FILL))
        if volume.twin is not None:
            twins.append(resampler.images(_z_scores(volume.twin[index], mean, deviation), fill=FILL))
    return np.stack(images, axis=1), np.stack(twins, axis=1) if twins else None, intensity


def _with_blanks(images: NDArray[np.float32], present: tuple[str, ...], names: tuple[str, ...]) -> NDArray[np.float32]:
    """Images `[Z, present, H, W]` as `[Z, names, H, W]`, `FILL` in channels that are not there."""
    if present == names:
        return images
    whole = np.full((len(images), len(names), *images.shape[2:]), FILL, dtype=np.float32)
    whole[:, [names.index(name) for name in present]] = images
    return whole


def _statistics(signal: NDArray[np.float32], what: str) -> tuple[float, float]:
    brain = signal[signal > 0]
    if brain.size == 0:
        raise VolumeError(f"{what} has no voxel above 0; check the image file")
    mean, deviation = float(brain.mean(dtype=np.float64)), float(brain.std(dtype=np.float64))
    if not deviation > 1e-6 * abs(mean):
        raise VolumeError(f"{what} has the same value {mean:g} all over the brain; check the image file")
    return mean, deviation


def _z_scores(signal: NDArray[np.float32], mean: float, deviation: float) -> NDArray[np.float32]:
    scores: NDArray[np.float32] = (signal - np.float32(mean)) / np.float32(deviation)
    np.clip(scores, *CLIP, out=scores)
    scores[~(signal > 0)] = FILL
    return scores


def _place_field(volume: Volume, brain: NDArray[np.bool_], geometry: SliceGeometry) -> tuple[Axis, Axis, list[str]]:
    """Lay the target grid over the frame: columns along x, rows along y, in millimetres from the frame's corner."""
    X, Y, _ = volume.shape
    sx, sy, _ = volume.spacing
    H, W = geometry.size
    if geometry.field is None:
        return Axis(W, X * sx / W), Axis(H, Y * sy / H), []
    height, width = geometry.field
    left, right = (edge * sx for edge in _extent(brain.sum(axis=(1, 2))))
    front, back = (edge * sy for edge in _extent(brain.sum(axis=(0, 2))))
    warnings = [
        f"the brain is {extent:.0f} mm {word}, the field {field:.0f} mm: its edges are cut off; "
        "use a larger --field, or --field full"
        for extent, field, word in ((back - front, height, "long"), (right - left, width, "wide"))
        if extent > field + 1e-6
    ]
    target_x = Axis(W, width / W, (left + right - width) / 2)
    target_y = Axis(H, height / H, (front + back - height) / 2)
    return target_x, target_y, warnings


def _extent(profile: NDArray[np.int64]) -> tuple[int, int]:
    """First and one-past-last index of a brain voxel count along one axis that is more than stray voxels."""
    kept = np.flatnonzero(profile > EDGE_SHARE * profile.max())
    return int(kept[0]), int(kept[-1]) + 1


def _positions(brain_area: NDArray[np.float64]) -> NDArray[np.float32]:
    bottom, top = np.flatnonzero(brain_area >= BLANK_BELOW)[[0, -1]]
    fraction = (np.arange(len(brain_area)) - bottom) / max(top - bottom, 1)
    return np.asarray(np.clip(fraction, 0, 1), dtype=np.float32)


def _slice_affine(volume: Volume, target_x: Axis, target_y: Axis) -> NDArray[np.float64]:
    """Compose (column, row, z) → voxel index → world."""
    sx, sy, _ = volume.spacing
    to_voxels = np.diag([target_x.spacing / sx, target_y.spacing / sy, 1.0, 1.0])
    to_voxels[0, 3] = target_x.centres[0] / sx - 0.5
    to_voxels[1, 3] = target_y.centres[0] / sy - 0.5
    return np.asarray(volume.affine @ to_voxels, dtype=np.float64)


def _middle(size: tuple[int, int]) -> NDArray[np.float64]:
    """(column, row) of the middle of a slice."""
    H, W = size
    return np.array([(W - 1) / 2, (H - 1) / 2])


@dataclass(frozen=True)
class Axis:
    """Equal cells along one direction: `count` cells of `spacing` mm, the first one beginning at `start` mm."""

    count: int
    spacing: float
    start: float = 0.0

    @property
    def centres(self) -> NDArray[np.float64]:
        """Middle of each cell in millimetres."""
        return self.start + (np.arange(self.count, dtype=np.float64) + 0.5) * self.spacing


class Resampler:
    """Maps planes `[X, Y]` on a source grid to images `[H, W]` on a target grid; rows run along y, columns along x."""

    def __init__(self, source_x: Axis, source_y: Axis, target_x: Axis, target_y: Axis) -> None:
        self._along_x = _weights(source_x, target_x)  # [W, X]
        self._along_y = _weights(source_y, target_y)  # [H, Y]

    def images(self, volume: NDArray[np.float32], *, fill: float) -> NDArray[np.float32]:
        """Resample `[X, Y, Z]` to `[Z, H, W]`; everything beyond the source counts as `fill`."""
        X, Y, Z = volume.shape
        W, H = self._along_x.shape[0], self._along_y.shape[0]
        # The orders of axes follow memory, in which volumes run x fastest: each copy moves whole rows where it can.
        above_fill = np.ascontiguousarray(volume.transpose(1, 2, 0)) - np.float32(fill)  # [Y, Z, X]
        rows = (self._along_y @ above_fill.reshape(Y, Z * X)).reshape(H * Z, X)
        pixels = (self._along_x @ np.ascontiguousarray(rows.T)).reshape(W, H, Z)
        return np.ascontiguousarray(pixels.transpose(2, 1, 0) + np.float32(fill))

    def labels(self, volume: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Resample a label map `[X, Y, Z]` to `[Z, H, W]` by majority, in two votes.

        First label against background, then the strongest label: a pixel shared by three tumour compartments stays
        tumour even when background alone outweighs each of them. A speck below half a pixel is lost.
        """
        present = [label for label in np.unique(volume) if label != 0]
        shape = (volume.shape[2], self._along_y.shape[0], self._along_x.shape[0])
        total = np.zeros(shape, dtype=np.float32)
        best = np.zeros(shape, dtype=np.float32)
        winner = np.zeros(shape, dtype=np.uint8)
        for label in present:
            share = self.images((volume == label).astype(np.float32), fill=0.0)
            total += share
            stronger = share > best
            best[stronger] = share[stronger]
            winner[stronger] = label
        winner[total < 0.5] = 0
        return winner


def _weights(source: Axis, target: Axis) -> csr_array:
    """Triangle-kernel weights `[target, source]`; a row that reaches beyond the source sums to less than one."""
    from scipy.sparse import csr_array

    reach = max(source.spacing, target.spacing)
    lattice_start = source.start + 0.5 * source.spacing
    first = np.floor((target.centres - reach - lattice_start) / source.spacing).astype(int)
    taps = int(np.ceil(2 * reach / source.spacing)) + 2
    columns = first[:, None] + np.arange(taps)  # [target, taps], some of them beyond the source
    distance = np.abs(lattice_start + columns * source.spacing - target.centres[:, None])
    weight = np.clip(1.0 - distance / reach, 0.0, None)
    weight /= weight.sum(axis=1, keepdims=True)
    rows = np.broadcast_to(np.arange(target.count)[:, None], columns.shape)
    kept = (columns >= 0) & (columns < source.count) & (weight > 0)
    shape = (target.count, source.count)
    return csr_array((weight[kept].astype(np.float32), (rows[kept], columns[kept])), shape=shape)
