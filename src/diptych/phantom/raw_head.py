"""A phantom as a scanner sees it: the brain inside fluid, bone and scalp, each series in a pose of its own.

`draw_raw_head` puts a head around a phantom's brain, `acquire_series` images one channel of it on a grid of its own:
any plane, thickness, tilt or crop, with the head moved between series, shading and noise. The brain, the lesion and the
pose come with every series, so that whatever brings the series together again can be measured. Knows nothing about
files; `phantom_dicom.py` writes series as DICOM.

Positions are RAS+ millimetres. The *head frame* is the phantom's own frame; a pose maps it to the scanner's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from diptych.errors import UsageError
from diptych.phantom.fields import Field, as_field, smooth_noise
from diptych.phantom.phantom_config import PhantomConfig
from diptych.phantom.phantom_patient import Phantom, make_phantom
from diptych.volumes.volume import CHANNELS

MARGIN_MM = (26.0, 26.0, 30.0)
"""Room for skull and scalp around the phantom's frame, along x, y, z."""
CLOSING_MM = 9.0
"""Sulci and fissures narrower than twice this lie inside the skull."""
FLUID_MM, BONE_MM, SCALP_MM = 2.0, 8.0, 14.0
"""Distance from the brain's hull at which each layer ends."""
AIR_MM = 8.0
"""Air around the head in every field of view."""
SHELLS = {
    "t1": {"fluid": 0.35, "bone": 0.10, "scalp": 1.35, "muscle": 0.60},
    "t1gd": {"fluid": 0.37, "bone": 0.12, "scalp": 1.45, "muscle": 0.75},
    "t2": {"fluid": 3.20, "bone": 0.12, "scalp": 1.30, "muscle": 0.55},
    "flair": {"fluid": 0.30, "bone": 0.10, "scalp": 1.20, "muscle": 0.60},
}
"""Signal of each layer, relative to white matter."""
PLANES = {
    "axial": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0)),
    "sagittal": ((0.0, 1.0, 0.0), (0.0, 0.0, -1.0)),
    "coronal": ((1.0, 0.0, 0.0), (0.0, 0.0, -1.0)),
}
"""Directions of a row and of a column in DICOM's LPS, as scanners lay them."""
TO_RAS = np.diag([-1.0, -1.0, 1.0])
Affine = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RawHead:
    """A phantom with everything around its brain, in the head frame."""

    key: str
    channels: tuple[str, ...]
    array: Field
    """Signal relative to the channel's own gain, `[C, X, Y, Z]`."""
    brain: NDArray[np.bool_]
    lesion: NDArray[np.uint8]
    affine: Affine
    phantom: Phantom = field(repr=False)


@dataclass(frozen=True)
class Acquisition:
    """How one series is taken."""

    channel: str
    plane: str = "axial"
    in_plane_mm: float = 1.0
    thickness_mm: float = 1.0
    spacing_mm: float | None = None
    """Between slice centres; the thickness where none is given."""
    oblique_deg: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """The grid turned about the patient's x, y, z axes."""
    pose_deg: tuple[float, float, float] = (0.0, 0.0, 0.0)
    pose_mm: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """How the head has moved since it lay in the head frame."""
    tilt_deg: float = 0.0
    """Gantry tilt: slices shifted against each other along the columns."""
    cover: tuple[float, float] = (0.0, 1.0)
    """Part of the head that the slices cover, along the slice direction."""
    reverse: bool = False
    """Slices stored from the other end."""
    noise: float = 0.02
    shading: float = 0.15


@dataclass(frozen=True, eq=False)
class RawSeries:
    """One acquired series, its grid, and what is known about it."""

    acquisition: Acquisition
    array: NDArray[np.int16]
    """`[columns, rows, slices]`."""
    affine: Affine
    """Index to scanner RAS+ millimetres; sheared where the gantry is tilted."""
    pose: Affine
    """Head frame to scanner."""
    brain: NDArray[np.bool_]
    lesion: NDArray[np.uint8]


def draw_raw_head(seed: int, *, index: int = 0, config: PhantomConfig = PhantomConfig()) -> RawHead:
    """The phantom `(seed, index)` with fluid, bone, scalp, neck and face around its brain."""
    phantom = make_phantom(seed, index=index, config=config)
    volume, voxel = phantom.volume, config.voxel_mm
    pad = [math.ceil(edge / voxel) for edge in MARGIN_MM]
    array = np.pad(volume.array, [(0, 0), *((p, p) for p in pad)])
    brain = np.any(array > 0, axis=0)
    affine = volume.affine.copy()
    affine[:3, 3] -= affine[:3, :3] @ np.array(pad)
    depth = _outside(brain, voxel)
    muscle = _muscle(brain, depth, voxel)
    grain = 1.0 + 0.12 * smooth_noise(np.random.default_rng((seed, index, 7)), brain.shape, max(1.0, 4.0 / voxel))
    for image, channel in zip(array, CHANNELS, strict=True):
        white = phantom.scanner.receptions[channel].gain
        image += _shells(SHELLS[channel], depth, muscle) * grain * np.float32(white) * ~brain
    assert volume.lesion is not None
    lesion = np.pad(volume.lesion, [(p, p) for p in pad])
    return RawHead(volume.patient_key, CHANNELS, array, brain, lesion, affine, phantom)


def _outside(brain: NDArray[np.bool_], voxel: float) -> Field:
    """Millimetres outside the brain's closed hull."""
    away = ndimage.distance_transform_edt(~brain, sampling=voxel)
    hull = ndimage.distance_transform_edt(away < CLOSING_MM, sampling=voxel) > CLOSING_MM
    return as_field(ndimage.distance_transform_edt(~(hull | brain), sampling=voxel))


def _muscle(brain: NDArray[np.bool_], depth: Field, voxel: float) -> NDArray[np.bool_]:
    """A neck below the brain and a face before and below it, outside the scalp's layers."""
    x, y, z = (np.arange(edge) * voxel for edge in brain.shape)
    cx, cy, cz = np.array(ndimage.center_of_mass(brain)) * voxel
    low = np.flatnonzero(brain.any(axis=(0, 1)))[0] * voxel
    X, Y, Z = np.meshgrid(x, y, z, indexing="ij", sparse=True)
    neck = ((X - cx) / 58) ** 2 + ((Y - cy - 10) / 62) ** 2 < 1
    face = ((X - cx) / 52) ** 2 + ((Y - cy + 62) / 42) ** 2 + ((Z - low - 4) / 62) ** 2 < 1
    airway = ((X - cx) / 12) ** 2 + ((Y - cy + 66) / 26) ** 2 + ((Z - low - 12) / 30) ** 2 < 1
    found: NDArray[np.bool_] = (((neck & (low + 16 > Z)) | (face & (cz > Z))) & ~airway) & (depth > BONE_MM)
    return found


def _shells(level: dict[str, float], depth: Field, muscle: NDArray[np.bool_]) -> Field:
    signal = np.select(
        [depth <= FLUID_MM, depth <= BONE_MM, muscle, depth <= SCALP_MM],
        [level["fluid"], level["bone"], level["muscle"], level["scalp"]],
        0.0,
    )
    return as_field(signal)


def rigid(turn_deg: tuple[float, float, float], shift_mm: tuple[float, float, float], centre: Affine) -> Affine:
    """Turn about `centre` by x, then y, then z, then shift; RAS+ millimetres, `[4, 4]`."""
    turn = np.eye(3)
    for axis, angle in enumerate(np.radians(turn_deg)):
        i, j = (axis + 1) % 3, (axis + 2) % 3
        step = np.eye(3)
        step[[i, j], [i, j]] = math.cos(angle)
        step[i, j], step[j, i] = -math.sin(angle), math.sin(angle)
        turn = step @ turn
    matrix = np.eye(4)
    matrix[:3, :3] = turn
    matrix[:3, 3] = centre + np.array(shift_mm) - turn @ centre
    return matrix


def acquire_series(head: RawHead, acquisition: Acquisition, *, seed: int = 0) -> RawSeries:
    """Image one channel of a head."""
    if acquisition.channel not in head.channels:
        raise UsageError(f"channel {acquisition.channel!r} is not known; channels are {', '.join(head.channels)}")
    if acquisition.plane not in PLANES:
        raise UsageError(f"plane {acquisition.plane!r} is not known; planes are {', '.join(PLANES)}")
    centre = _centre(head)
    pose = rigid(acquisition.pose_deg, acquisition.pose_mm, centre)
    affine, shape = _grid(head, acquisition)
    to_head = np.linalg.inv(head.affine) @ np.linalg.inv(pose) @ affine
    signal = head.array[head.channels.index(acquisition.channel)]
    white = float(head.phantom.scanner.receptions[acquisition.channel].gain)
    received = _receive(_slabs(signal, to_head, shape, acquisition), white, acquisition, seed)
    return RawSeries(
        acquisition=acquisition,
        array=np.rint(np.clip(received, 0, 32000)).astype(np.int16),
        affine=affine,
        pose=pose,
        brain=_sample(head.brain.astype(np.float32), to_head, shape) > 0.5,
        lesion=_sample(head.lesion, to_head, shape, order=0).astype(np.uint8),
    )


def _box(head: RawHead) -> tuple[Affine, Affine]:
    """First and last index of the head along each axis."""
    box = ndimage.find_objects((head.array[0] > 0).astype(np.uint8))[0]
    return np.array([part.start for part in box], dtype=np.float64), np.array([part.stop for part in box]) - 1.0


def _centre(head: RawHead) -> Affine:
    middle = np.array(ndimage.center_of_mass(head.brain))
    centre: Affine = head.affine[:3, :3] @ middle + head.affine[:3, 3]
    return centre


def _grid(head: RawHead, acquisition: Acquisition) -> tuple[Affine, tuple[int, int, int]]:
    """Affine and shape `[columns, rows, slices]` of a field of view that holds the head, cropped as asked."""
    turn = rigid(acquisition.oblique_deg, (0.0, 0.0, 0.0), np.zeros(3))[:3, :3]
    row, column = (turn @ TO_RAS @ np.array(direction) for direction in PLANES[acquisition.plane])
    normal = np.cross(row, column)
    axes = np.stack([row, column, normal], axis=1)
    low, high = _box(head)
    extent = np.abs(axes.T @ head.affine[:3, :3]) @ (high - low) + 2 * AIR_MM
    spacing = acquisition.spacing_mm or acquisition.thickness_mm
    sizes = np.array([acquisition.in_plane_mm, acquisition.in_plane_mm, spacing])
    counts = np.ceil(extent / sizes).astype(int)
    middle = head.affine[:3, :3] @ ((low + high) / 2) + head.affine[:3, 3] + np.array(acquisition.pose_mm) / 2
    first, last = (round(part * counts[2]) for part in acquisition.cover)
    steps = axes * sizes
    steps[:, 2] += column * (spacing * math.tan(math.radians(acquisition.tilt_deg)))
    start = middle - steps @ ((counts - 1) / 2) + steps[:, 2] * first
    affine = np.eye(4)
    affine[:3, :3], affine[:3, 3] = steps, start
    slices = last - first
    if acquisition.reverse:
        affine[:3, 3] += affine[:3, 2] * (slices - 1)
        affine[:3, 2] *= -1
    return affine, (int(counts[0]), int(counts[1]), slices)


def _slabs(signal: Field, to_head: Affine, shape: tuple[int, int, int], acquisition: Acquisition) -> Field:
    """Each slice as the mean over its thickness."""
    spacing = acquisition.spacing_mm or acquisition.thickness_mm
    count = max(1, math.ceil(acquisition.thickness_mm / 1.5))
    total = np.zeros(shape, dtype=np.float32)
    for part in range(count):
        moved = np.eye(4)
        moved[2, 3] = ((part + 0.5) / count - 0.5) * acquisition.thickness_mm / spacing
        total += _sample(signal, to_head @ moved, shape)
    return total / np.float32(count)


def _sample(image: NDArray[Any], to_head: Affine, shape: tuple[int, int, int], order: Literal[0, 1] = 1) -> Field:
    return as_field(
        ndimage.affine_transform(
            image, to_head[:3, :3], to_head[:3, 3], output_shape=shape, output=np.float32, order=order
        )
    )


def _receive(signal: Field, white: float, acquisition: Acquisition, seed: int) -> Field:
    """Smooth shading and Rician noise."""
    rng = np.random.default_rng((seed, CHANNELS.index(acquisition.channel), 11))
    strength = acquisition.shading * rng.uniform(-1.0, 1.0, 6)
    x, y, z = (np.linspace(-1.0, 1.0, edge, dtype=np.float32) for edge in signal.shape)
    X, Y, Z = np.meshgrid(x, y, z, indexing="ij", sparse=True)
    terms = (X, Y, Z, X * X, Y * Y, Z * Z)
    shading = np.exp(sum(weight * term for weight, term in zip(strength.astype(np.float32), terms, strict=True)))
    first, second = (rng.standard_normal(signal.shape, dtype=np.float32) * (acquisition.noise * white) for _ in "ab")
    return as_field(np.sqrt((signal * shading + first) ** 2 + second**2))


def usual_study(seed: int, *, in_plane_mm: float = 1.0, thickness_mm: float = 3.0) -> tuple[Acquisition, ...]:
    """Four series as a clinic takes them: T1 sagittal, the others axial and slightly oblique, the head never still."""
    rng = np.random.default_rng((seed, 13))
    planes = {"t1": "sagittal", "t1gd": "axial", "t2": "axial", "flair": "coronal"}

    def three(spread: float) -> tuple[float, float, float]:
        x, y, z = rng.normal(0.0, spread, 3)
        return float(x), float(y), float(z)

    return tuple(
        Acquisition(
            channel=channel,
            plane=planes[channel],
            in_plane_mm=in_plane_mm,
            thickness_mm=thickness_mm,
            oblique_deg=three(4.0),
            pose_deg=three(3.0),
            pose_mm=three(4.0),
        )
        for channel in CHANNELS
    )
