"""Brings two images of one head together: the rigid transform at which they tell most about each other.

As in Collignon et al. 1997 and SPM's coregistration: normalised mutual information of a joint histogram, climbed by
Powell's method from coarse, blurred grids to fine ones. Both images are first resampled to even cubes along the
patient's axes. Where to start is decided by the same measure: at the header's position or with the centres of mass
together, turned by some tens of degrees where the header may be wrong. Samples are drawn with a fixed seed, so a
second run gives the same transform. Knows arrays and affines; whether a result is good is judged in
`quality_gate.py`.

Written here because a sample costs some 30 ns in this kernel: SimpleITK's and ANTs' optimisers took ten times as
long for the same pair on the same core, and more starts can be followed in the time saved (LOG.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage, optimize

from diptych.compiling import compiled
from diptych.errors import VolumeError
from diptych.intake.resampling import Affine, Placed, even_grid, resample, smooth

BINS = 32
CLIP = 98.0
"""Percentile of the head at which signal is clipped: bins are spent on the brain, not on fat and vessels."""
ARM_MM = 60.0
"""A turn is counted as the way of a point this far from the centre, so that all six parameters are millimetres."""
SMALLEST_SHARE = 0.3
"""Samples that must fall into the moving image."""
LARGEST_TURN = 60.0
"""Degrees; a thick stack may also share much with a head upside down, and no usable header is so wrong."""
NOT_MEASURED = -1e9
SEED = 20


@dataclass(frozen=True)
class Level:
    """One grid of the climb."""

    mm: float
    samples: int
    step_mm: float
    """First step along each parameter."""
    tolerance_mm: float


@dataclass(frozen=True)
class Effort:
    """How long to look."""

    first: Level = Level(mm=8.0, samples=12_000, step_mm=8.0, tolerance_mm=1.0)
    levels: tuple[Level, ...] = (
        Level(mm=4.0, samples=30_000, step_mm=2.0, tolerance_mm=0.2),
        Level(mm=2.0, samples=120_000, step_mm=0.5, tolerance_mm=0.02),
    )
    turns_deg: tuple[float, ...] = (25.0, 45.0)
    """Turns about each axis, both ways, that are tried as a start beside none."""
    tries: int = 2
    """Starts that are followed on the first grid."""


@dataclass(frozen=True, eq=False)
class Registration:
    """How a moving image lies in a fixed one."""

    transform: Affine
    """Position in the fixed image to position in the moving one, RAS+ millimetres."""
    information: float
    """Normalised mutual information reached, less one; comparable for the same two images only."""
    at_header: float
    """The same at the header's position."""
    start: str
    """Which start led there."""

    @property
    def turn_deg(self) -> float:
        """How far it turns."""
        return turn_of(self.transform)


def turn_of(transform: Affine) -> float:
    """Degrees by which a rigid transform turns."""
    cosine = (np.trace(transform[:3, :3]) - 1.0) / 2.0
    return float(np.degrees(np.arccos(np.clip(cosine, -1.0, 1.0))))


def register(fixed: Placed, moving: Placed, *, effort: Effort = Effort(), near: Affine | None = None) -> Registration:
    """Find where `moving` lies in `fixed`, by all that both have measured: skull and scalp steer, too.

    Args:
        fixed, moving: Two images of one head.
        effort: How long to look.
        near: A transform from which to start as well.

    Raises:
        VolumeError: the images share too little to compare.
    """
    first = _Pair(fixed, moving, effort.first)
    starts = _starts(first, effort) | ({} if near is None else {"near": near})
    scores = {name: first.information(start) for name, start in starts.items()}
    promising = sorted(scores, key=lambda name: -scores[name])[: effort.tries]
    usual = ["header", "centres"] if near is None else ["centres", "near"]
    followed = {name: first.climb(starts[name]) for name in dict.fromkeys([*usual, *promising])}
    upright = [name for name in followed if turn_of(followed[name]) <= LARGEST_TURN] or list(followed)
    best = max(upright, key=lambda name: first.information(followed[name]))
    found = followed[best]
    for level in effort.levels:
        pair = _Pair(fixed, moving, level)
        found = pair.climb(found)
    reached, at_header = pair.information(found), pair.information(np.eye(4))
    if reached <= 0.0:
        raise VolumeError("the two images share nothing that could bring them together")
    if at_header >= reached:
        return Registration(np.eye(4), at_header, at_header, "header, kept")
    return Registration(found, reached, at_header, best)


class _Pair:
    """Two images on grids of one level, and points of the fixed one at which they are compared."""

    def __init__(self, fixed: Placed, moving: Placed, level: Level) -> None:
        self.level = level
        self.fixed, self.moving = _working(fixed, level.mm), _working(moving, level.mm)
        rng = np.random.default_rng(SEED)
        chosen = np.argwhere(self.fixed.array >= 0)
        if len(chosen) > level.samples:
            chosen = chosen[rng.choice(len(chosen), level.samples, replace=False)]
        # off the voxels' centres: a grid that falls on another one is a false optimum
        index = chosen + rng.uniform(-0.5, 0.5, chosen.shape)
        values = ndimage.map_coordinates(self.fixed.array, index.T, order=1, mode="nearest")
        index, values = index[values >= 0], values[values >= 0]
        self.points = np.ascontiguousarray(index @ self.fixed.affine[:3, :3].T + self.fixed.affine[:3, 3])
        self.bins = _binned(values)
        self.signal = np.ascontiguousarray(_binned(self.moving.array))
        self.to_index = np.linalg.inv(self.moving.affine)
        self.centre = self.points.mean(axis=0)

    def information(self, transform: Affine) -> float:
        """Normalised mutual information less one, under a transform."""
        histogram, inside = joint_histogram(self.points, self.bins, self.signal, self.to_index @ transform)
        return shared(histogram) if inside >= SMALLEST_SHARE * len(self.points) else 0.0

    def climb(self, start: Affine) -> Affine:
        """The best transform near a start, by Powell's method."""
        step = self.level.step_mm

        def loss(parameters: NDArray[np.float64]) -> float:
            return -self.information(self._moved(start, parameters))

        found = optimize.minimize(
            loss,
            np.zeros(6),
            method="Powell",
            options={"xtol": self.level.tolerance_mm / step, "ftol": 1e-6, "maxiter": 6, "direc": step * np.eye(6)},
        )
        return self._moved(start, np.asarray(found.x))

    def _moved(self, start: Affine, parameters: NDArray[np.float64]) -> Affine:
        """A small turn about the middle of what is compared and a shift, before `start`."""
        turn = _turn(2, parameters[2]) @ _turn(1, parameters[1]) @ _turn(0, parameters[0])
        return np.asarray(start @ _about(self.centre, self.centre + parameters[3:], turn))


def _working(image: Placed, mm: float) -> Placed:
    """The image on an even grid, clipped; what it has not measured is far below zero and takes no part."""
    grid = even_grid(image.grid, mm)
    array = resample(smooth(image, mm), grid, outside=NOT_MEASURED)
    head = array[array > np.mean(array[array >= 0])]
    return Placed(np.minimum(array, np.percentile(head, CLIP) if head.size else np.inf), grid.affine)


def _binned(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Signal as a position among the histogram's bins."""
    top = max(float(values.max()), 1e-9)
    return (values * np.float32((BINS - 1.001) / top)).astype(np.float32)


@compiled
def joint_histogram(
    points: NDArray[np.float64], bins: NDArray[np.float32], signal: NDArray[np.float32], matrix: Affine
) -> tuple[NDArray[np.float64], int]:
    """How often a value of the fixed image meets one of the moving image, `[BINS, BINS]`, and how many points counted.

    Args:
        points: Positions in the fixed image, `[n, 3]`.
        bins: The fixed image's values there, as positions among the bins, `[n]`.
        signal: The moving image, as positions among the bins, `[X, Y, Z]`.
        matrix: From positions in the fixed image to indices of the moving one.
    """
    histogram = np.zeros((BINS, BINS))
    X, Y, Z = signal.shape
    inside = 0
    for n in range(points.shape[0]):
        px, py, pz = points[n, 0], points[n, 1], points[n, 2]
        x = matrix[0, 0] * px + matrix[0, 1] * py + matrix[0, 2] * pz + matrix[0, 3]
        y = matrix[1, 0] * px + matrix[1, 1] * py + matrix[1, 2] * pz + matrix[1, 3]
        z = matrix[2, 0] * px + matrix[2, 1] * py + matrix[2, 2] * pz + matrix[2, 3]
        if x < 0 or y < 0 or z < 0 or x >= X - 1 or y >= Y - 1 or z >= Z - 1:
            continue
        i, j, k = int(x), int(y), int(z)
        u, v, w = x - i, y - j, z - k
        low = (signal[i, j, k] * (1 - u) + signal[i + 1, j, k] * u) * (1 - v) + (
            signal[i, j + 1, k] * (1 - u) + signal[i + 1, j + 1, k] * u
        ) * v
        high = (signal[i, j, k + 1] * (1 - u) + signal[i + 1, j, k + 1] * u) * (1 - v) + (
            signal[i, j + 1, k + 1] * (1 - u) + signal[i + 1, j + 1, k + 1] * u
        ) * v
        value = low * (1 - w) + high * w
        if value < 0:
            continue
        inside += 1
        a, b = int(bins[n]), int(value)
        s, t = bins[n] - a, value - b
        histogram[a, b] += (1 - s) * (1 - t)
        histogram[a, b + 1] += (1 - s) * t
        histogram[a + 1, b] += s * (1 - t)
        histogram[a + 1, b + 1] += s * t
    return histogram, inside


def shared(histogram: NDArray[np.float64]) -> float:
    """Normalised mutual information, (H(a) + H(b)) / H(a, b), less one: 0 for images that have nothing in common."""
    joint = histogram / max(float(histogram.sum()), 1e-9)
    both = _entropy(joint)
    return (_entropy(joint.sum(axis=0)) + _entropy(joint.sum(axis=1))) / both - 1.0 if both > 0 else 0.0


def _entropy(share: NDArray[np.float64]) -> float:
    positive = share[share > 0]
    return float(-(positive * np.log(positive)).sum())


def _centre(image: Placed) -> NDArray[np.float64]:
    """Centre of mass, in millimetres."""
    index = np.array(ndimage.center_of_mass(np.asarray(image.array, dtype=np.float64) + 1e-9))
    return np.asarray(image.affine[:3, :3] @ index + image.affine[:3, 3])


def _starts(pair: _Pair, effort: Effort) -> dict[str, Affine]:
    """Transforms to start from, by name."""
    here, there = _centre(pair.fixed), _centre(pair.moving)
    starts = {"header": np.eye(4), "centres": _about(here, there, np.eye(3))}
    for angle in (sign * turn for turn in effort.turns_deg for sign in (-1, 1)):
        for axis, name in enumerate("xyz"):
            turn = _turn(axis, np.radians(angle) * ARM_MM)
            starts[f"centres, {angle:+.0f}° about {name}"] = _about(here, there, turn)
    return starts


def _about(here: NDArray[np.float64], there: NDArray[np.float64], turn: NDArray[np.float64]) -> Affine:
    """Turn about `here`, then bring it to `there`."""
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = turn, there - turn @ here
    return matrix


def _turn(axis: int, way_mm: float) -> NDArray[np.float64]:
    """A turn about one axis that moves a point `ARM_MM` from it by so many millimetres."""
    i, j = (axis + 1) % 3, (axis + 2) % 3
    cosine, sine = np.cos(way_mm / ARM_MM), np.sin(way_mm / ARM_MM)
    turn = np.eye(3)
    turn[i, i] = turn[j, j] = cosine
    turn[i, j], turn[j, i] = -sine, sine
    return turn
