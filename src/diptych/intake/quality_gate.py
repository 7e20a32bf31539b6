"""Judges what registration and skull stripping made: what is clearly wrong stops, what is odd is said.

Every judgement is a number with a rule. A registration is judged by what two images share inside the brain and by
how much of that is lost when one is shifted; the atlas also by overlap of brains; the brain by its size. Left and
right are taken from headers and never guessed: a header that is turned by more than `LARGEST_TURN` stops, because
nobody knows then what else in it is wrong. Knows arrays and transforms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from diptych.intake.resampling import Affine, Grid, Placed, covered, even_grid, resample, smooth
from diptych.intake.rigid_registration import NOT_MEASURED, Effort, Level, register, shared, turn_of

WORKING_MM = 3.0
AROUND_MM = 15.0
"""Deviation of the blur that stands for shading."""
SMALLEST_SEEN = 0.3
"""Share of the brain that both must have measured."""
BINS = 32
SHIFT_MM = 9.0
LARGEST_TURN = 50.0
"""Degrees between header and finding."""
SMALLEST_SHARED = 0.03
"""Normalised mutual information inside the brain, less one."""
SMALLEST_PEAK = 0.4
"""Share of that which must be lost on average when one image is shifted by `SHIFT_MM`."""
LARGEST_MIRRORED = 0.9
"""Of what is shared, what may be left when one image is mirrored; sound registrations stay below .7 (LOG.md)."""
BRAIN_ML = (700.0, 2200.0)
SMALLEST_OVERLAP = 0.82
"""Dice of the patient's brain and the atlas's, where the reference has measured."""
SMALLEST_PART = 0.5
"""Share of the atlas's brain that the reference must have measured."""
SAME_IMAGE = 0.985
"""Correlation inside the brain above which two channels are one image given twice."""
MIRRORED = Effort(levels=(Level(mm=4.0, samples=30_000, step_mm=2.0, tolerance_mm=0.2),), turns_deg=(), tries=0)
COVER = 0.9
"""Share of a plane's brain that every channel must have measured."""


@dataclass(frozen=True)
class Fit:
    """How well two images of one brain lie on each other."""

    shared: float
    """Normalised mutual information less one: 0 for images that have nothing to do with each other."""
    peak: float
    """How much of it is lost by small shifts, 0 to 1."""
    turn_deg: float
    mirrored: float = 0.0
    """What is shared with left and right of one image exchanged, as a share of what is shared as they are."""


def judge_fit(fixed: Placed, moving: Placed, brain: NDArray[np.bool_], transform: Affine) -> Fit:
    """Compare two images inside the brain, as they lie and shifted along each axis."""
    shares = _sharing(fixed, moving, brain)
    here = shares(transform)
    shifted = []
    for axis in range(3):
        for side in (-SHIFT_MM, SHIFT_MM):
            step = np.eye(4)
            step[axis, 3] = side
            shifted.append(shares(transform @ step))
    return Fit(here, 1.0 - float(np.mean(shifted)) / max(here, 1e-6), turn_of(transform))


def judge_sides(fit: Fit, fixed: Placed, moving: Placed, brain: NDArray[np.bool_], transform: Affine) -> Fit:
    """The same fit, with what is shared when `moving` is mirrored and brought to `fixed` anew.

    Heads are alike on both sides but never the same, so that the wrong side shares less: clearly above 1, the header
    of one of the two has left and right exchanged.
    """
    inside = np.argwhere(brain)
    centre = np.append(fixed.affine[:3, :3] @ inside.mean(axis=0) + fixed.affine[:3, 3], 1.0)
    mirror = np.diag([-1.0, 1.0, 1.0, 1.0])
    mirror[0, 3] = 2.0 * (transform @ centre)[0]
    other = Placed(moving.array, mirror @ moving.affine)
    # a head turned one way about y or z is turned the other way in the mirror
    start = transform @ np.eye(4)
    start[:3, :3] = mirror[:3, :3] @ transform[:3, :3] @ mirror[:3, :3]
    start[:3, 3] += (transform @ centre - start @ centre)[:3]
    found = register(fixed, other, effort=MIRRORED, near=start)
    return replace(fit, mirrored=_sharing(fixed, other, brain)(found.transform) / max(fit.shared, 1e-6))


def _sharing(fixed: Placed, moving: Placed, brain: NDArray[np.bool_]) -> Callable[[Affine], float]:
    """What two images share inside the brain, by transform."""
    grid = even_grid(fixed.grid, WORKING_MM)
    inside = resample(Placed(brain.astype(np.float32), fixed.affine), grid) > 0.5
    inside = ndimage.binary_dilation(inside, iterations=2)
    box = ndimage.find_objects(inside.astype(np.uint8))[0]
    start = grid.affine[:3, :3] @ np.array([part.start for part in box], dtype=np.float64) + grid.affine[:3, 3]
    affine = grid.affine.copy()
    affine[:3, 3] = start
    x, y, z = inside[box].shape
    small, inside = Grid((x, y, z), affine), inside[box]
    mover = _flat(moving)
    still = resample(_flat(fixed), small, outside=NOT_MEASURED)[inside]

    def share(transform: Affine) -> float:
        there = resample(mover, small, transform, outside=NOT_MEASURED)[inside]
        seen = (there >= 0) & (still >= 0)
        return _compare(still[seen], there[seen]) if seen.sum() >= SMALLEST_SEEN * seen.size else 0.0

    return share


def _flat(image: Placed) -> Placed:
    """The image on cubes without the shading of coils: divided by what lies around; far below zero where not measured.

    Shading hides what two images share, and one head's left and right differ less than two coils do.
    """
    grid = even_grid(image.grid, WORKING_MM)
    array = resample(smooth(image, WORKING_MM), grid, outside=NOT_MEASURED)
    measured = array >= 0
    positive = array[array > 0]
    head = (measured & (array > 0.25 * (positive.mean() if positive.size else 0.0))).astype(np.float32)
    around = ndimage.gaussian_filter(np.where(head > 0, array, 0.0), AROUND_MM / WORKING_MM)
    around /= np.maximum(ndimage.gaussian_filter(head, AROUND_MM / WORKING_MM), 1e-3)
    around = np.maximum(around, max(0.05 * float(around.max()), 1e-9))
    return Placed(np.where(measured, array / around, NOT_MEASURED).astype(np.float32), grid.affine)


def _compare(first: NDArray[np.float32], second: NDArray[np.float32]) -> float:
    """What two images share at the same points."""
    joint, _, _ = np.histogram2d(_clipped(first), _clipped(second), bins=BINS)
    return shared(joint)


def _clipped(values: NDArray[np.float32]) -> NDArray[np.float32]:
    low, high = np.percentile(values, [0.5, 99.5])
    return np.clip(values, low, high)


def sequence_problem(fit: Fit) -> str | None:
    """Why a sequence does not lie on the reference, if it does not."""
    if fit.turn_deg > LARGEST_TURN:
        return f"its header is turned by {fit.turn_deg:.0f}° against the reference, so left and right cannot be trusted"
    if fit.mirrored > LARGEST_MIRRORED:
        return (
            f"mirrored it shares {fit.mirrored:.2f} of what it shares as it is, so left and right are exchanged in its "
            "header or the reference's, or it is another patient's"
        )
    if fit.shared < SMALLEST_SHARED or fit.peak < SMALLEST_PEAK:
        return f"it does not come to lie on the reference (shared {fit.shared:.3f}, peak {fit.peak:.2f})"
    return None


def atlas_problem(fit: Fit, overlap: float) -> str | None:
    """Why the reference does not lie in the atlas, if it does not."""
    if fit.turn_deg > LARGEST_TURN:
        return f"its header is turned by {fit.turn_deg:.0f}° against the atlas, so left and right cannot be trusted"
    if overlap < SMALLEST_OVERLAP:
        return f"its brain does not come to lie on the atlas's (overlap {overlap:.2f}, needed {SMALLEST_OVERLAP})"
    return None


def brain_problem(millilitres: float, *, part: float = 1.0) -> str | None:
    """Why a mask cannot be a brain, if it cannot; `part` of a head was measured."""
    low, high = part * BRAIN_ML[0], BRAIN_ML[1]
    if not low <= millilitres <= high:
        return f"a brain of {millilitres:.0f} ml was found, which no adult has ({low:.0f} to {high:.0f} ml)"
    return None


def same_image(channels: dict[str, NDArray[np.float32]], brain: NDArray[np.bool_]) -> list[tuple[str, str, float]]:
    """Pairs of channels that are the same image, by correlation inside the brain."""
    names = list(channels)
    inside = {name: channels[name][brain][::7].astype(np.float64) for name in names}
    found = []
    for place, first in enumerate(names):
        for second in names[place + 1 :]:
            if min(inside[first].std(), inside[second].std()) == 0:
                continue
            correlation = float(np.corrcoef(inside[first], inside[second])[0, 1])
            if correlation > SAME_IMAGE:
                found.append((first, second, correlation))
    return found


def covered_planes(
    brain: NDArray[np.bool_], grid: Grid, sources: dict[str, tuple[Grid, Affine]]
) -> dict[int, tuple[str, float]]:
    """Planes in which a channel has measured too little of the brain: the channel and the share it has."""
    area = brain.sum(axis=(0, 1))
    worst: dict[int, tuple[str, float]] = {}
    for channel, (source, transform) in sources.items():
        measured = (covered(source, grid, transform) & brain).sum(axis=(0, 1))
        for z in np.flatnonzero(area):
            share = float(measured[z] / area[z])
            if share < COVER and share < worst.get(int(z), ("", 1.0))[1]:
                worst[int(z)] = (channel, share)
    return worst
