"""Tells whether four channels look like T1, T1Gd, T2 and FLAIR, and in that order.

Knows arrays and voxel sizes; no network. Each channel is described by the shape of its z-scores and by how bright the
brain's surface is (sulcal liquor: dark in T1 and FLAIR, bright in T2), each pair of channels by its correlation. What
is usual comes from the 100 training patients of BraTS 2023 beside which this was developed (`channel_check.json`,
written by `benchmarks/contrast_reference.py`). The squared Mahalanobis distance to it is the *strangeness* of a volume.
When the channels in another order would be much less strange, they are probably mixed up; when no order is usual, the
images are something else.

Measured (`benchmarks/contrast_reference.py`): on 40 test patients no warning as they are; two exchanged channels
noticed in 233 of 240 cases (t1 and t1gd 38 of 40, t1gd and flair 38, t2 and flair 37, other pairs always), one image
given twice always. The features were chosen with these patients in view, so expect a little less elsewhere.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import permutations

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from diptych.volumes.volume import CHANNELS, Volume

WORKING_SPACING = 3.0
"""Voxels are skipped down to about this many millimetres."""
SURFACE, BELOW = 4.0, 9.0
"""Millimetres under the brain's surface at which two shells end."""
ORDER_MARGIN = 6.0
"""How much less strange another order must be to be worth a warning."""
UNLIKE = 100.0
"""Strangeness above which no order helps; training patients reach 41, test patients 34, phantoms 56."""


@dataclass(frozen=True, eq=False)
class Description:
    """What a volume's channels look like, on their own and in pairs."""

    single: NDArray[np.float64]
    """`[C, F]`."""
    pairs: NDArray[np.float64]
    """Correlations between channels, as Fisher's z, `[C, C]`."""

    def in_order(self, order: tuple[int, ...]) -> NDArray[np.float64]:
        """All features as one vector, with the channels in another order."""
        chosen = list(order)
        upper = np.triu_indices(len(chosen), 1)
        return np.concatenate([self.single[chosen].reshape(-1), self.pairs[np.ix_(chosen, chosen)][upper]])


@dataclass(frozen=True, eq=False)
class Reference:
    """What is usual: mean and inverse covariance of the features of known patients."""

    mean: NDArray[np.float64]
    precision: NDArray[np.float64]


def describe(volume: Volume) -> Description | None:
    """Features of a volume with all four channels; None where there are fewer, or hardly any brain."""
    if volume.channels != CHANNELS:
        return None
    steps = [max(1, round(WORKING_SPACING / size)) for size in volume.spacing]
    x, y, z = steps
    array = volume.array[:, ::x, ::y, ::z]
    inside = np.all(array > 0, axis=0)
    if np.count_nonzero(inside) < 200:
        return None
    sampling = [step * size for step, size in zip(steps, volume.spacing, strict=True)]
    depth = ndimage.distance_transform_edt(np.pad(np.any(array > 0, axis=0), 1), sampling=sampling)
    depth = depth[1:-1, 1:-1, 1:-1][inside]
    signal = array[:, inside].astype(np.float64)  # [C, n]
    scores = (signal - signal.mean(axis=1, keepdims=True)) / np.maximum(signal.std(axis=1, keepdims=True), 1e-9)
    surface, below = depth <= SURFACE, (depth > SURFACE) & (depth <= BELOW)
    single = [
        (scores**3).mean(axis=1),
        *np.percentile(scores, [99.5, 1.0], axis=1),
        *(scores[:, shell].mean(axis=1) if shell.any() else np.zeros(len(scores)) for shell in (surface, below)),
    ]
    pairs = np.arctanh(np.clip(np.nan_to_num(np.corrcoef(scores)), -0.99, 0.99))
    return Description(np.stack(single, axis=1), pairs)


def contrast_warnings(volume: Volume) -> list[str]:
    """A plain sentence when the channels look exchanged, or unlike anything the reference knows."""
    found = describe(volume)
    if found is None:
        return []
    given, *others = permutations(range(len(CHANNELS)))
    own = strangeness(found, given)
    best = min(others, key=lambda order: strangeness(found, order))
    least = min(own, strangeness(found, best))
    if least > UNLIKE:
        return [
            f"The images do not look like {', '.join(CHANNELS)} of a skull-stripped brain in any order (strangeness "
            f"{least:.0f}, usual up to {UNLIKE:.0f}); check the contrasts, and that this is MR, not CT."
        ]
    if least < own - ORDER_MARGIN:
        wrong = [CHANNELS[place] for place in given if best[place] != place]
        names = f"{wrong[0]} and {wrong[1]}" if len(wrong) == 2 else ", ".join(wrong)
        return [f"The channels {names} look exchanged; check which file is which."]
    return []


def strangeness(found: Description, order: tuple[int, ...]) -> float:
    """Squared distance to what is usual, were the channels in this order."""
    usual = _reference()
    away = found.in_order(order) - usual.mean
    return float(away @ usual.precision @ away)


@cache
def _reference() -> Reference:
    values = json.loads((files("diptych.volumes") / "channel_check.json").read_text(encoding="utf-8"))
    return Reference(np.array(values["mean"]), np.array(values["precision"]))
