"""Tells whether the images of a patient look like what a model learnt from: contrasts, their order, and a whole head.

Knows arrays and voxel sizes; no network. Each channel is described by the shape of its z-scores and by how bright the
brain's surface is (sulcal liquor: dark in T1 and FLAIR, bright in T2), each pair of channels by its correlation. What
is usual is a `Reference`: fitted to a model's own training patients ('diptych fit references') and kept beside the
model. The squared Mahalanobis distance to it is the *strangeness* of a volume. When the channels in another order would
be much less strange, they are probably mixed up; when no order is usual, the images are something else.

Where no model is asked for, in intake, what T1, T1Gd, T2 and FLAIR usually look like comes from the 100 training
patients of BraTS 2023 beside which this was developed (`channel_check.json`); it also tells which image is which.

Measured for gliomas (`benchmarks/contrast_reference.py`): on 40 test patients no warning as they are; two exchanged
channels noticed in 233 of 240 cases (t1 and t1gd 38 of 40, t1gd and flair 38, t2 and flair 37, other pairs always), one
image given twice always. The features were chosen with these patients in view, so expect a little less elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import combinations, permutations

import numpy as np
from numpy.typing import NDArray

from diptych.errors import UsageError
from diptych.volumes.volume import CHANNELS, Volume

WORKING_SPACING = 3.0
"""Voxels are skipped down to about this many millimetres."""
SURFACE, BELOW = 4.0, 9.0
"""Millimetres under the brain's surface at which two shells end."""
ORDER_MARGIN = 6.0
"""How much less strange another order must be to be worth a warning."""
ROOM = 2.4
"""Strangeness above which no order helps, over the largest among the training patients; of gliomas these reach 41, test
patients 34, phantoms 56, and the limit is 100."""
UNLIKE = 100.0
"""The same for the usual contrasts, where no model is asked for."""
MOST_ORDERED = 5
"""Channels whose orders are all tried; with more, only the given one is judged."""
SHRINKAGE = 0.3
"""Share of the covariance's diagonal that replaces the rest of it."""
FEWEST = 12
"""Patients that a reference needs."""


@dataclass(frozen=True, eq=False)
class ContrastFeatures:
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

    channels: tuple[str, ...]
    mean: NDArray[np.float64]
    precision: NDArray[np.float64]
    limit: float
    """Strangeness above which no order helps."""
    patients: int
    error_limit: float | None = None
    """Quantisation error (see `retrieval/trust.py`) that hardly a training patient exceeds; None where not measured."""

    @property
    def covariance(self) -> NDArray[np.float64]:
        return np.asarray(np.linalg.inv(self.precision))

    def strangeness(self, found: ContrastFeatures, order: tuple[int, ...]) -> float:
        """Squared distance to what is usual, were the channels in this order."""
        away = found.in_order(order) - self.mean
        return float(away @ self.precision @ away)

    def warnings(self, volume: Volume) -> list[str]:
        """A plain sentence when the channels look exchanged, or unlike anything known."""
        if (found := describe(volume, self.channels)) is None:
            return []
        given, *others = _orders(len(self.channels))
        own = self.strangeness(found, given)
        best = min(others, key=lambda order: self.strangeness(found, order), default=given)
        least = min(own, self.strangeness(found, best))
        if least > self.limit:
            order = " in any order" if others else ""
            return [
                f"The images do not look like {', '.join(self.channels)} of a skull-stripped brain{order} (strangeness "
                f"{least:.0f}, usual up to {self.limit:.0f}); check the contrasts, and that this is MR, not CT."
            ]
        if least < own - ORDER_MARGIN:
            wrong = [self.channels[place] for place in given if best[place] != place]
            names = f"{wrong[0]} and {wrong[1]}" if len(wrong) == 2 else ", ".join(wrong)
            return [f"The channels {names} look exchanged; check which file is which."]
        return []


def _orders(channels: int) -> list[tuple[int, ...]]:
    given = tuple(range(channels))
    return list(permutations(given)) if channels <= MOST_ORDERED else [given]


def fit_reference(channels: Sequence[str], patients: Sequence[ContrastFeatures]) -> Reference:
    """Mean and inverse shrunken covariance of patients whose channels are in order.

    How strange each of them is comes from the others, a fifth left out at a time: what a covariance was fitted to
    always looks usual to it.
    """
    if len(patients) < FEWEST:
        raise UsageError(f"{len(patients)} patients: what is usual needs at least {FEWEST}; give more")
    order = tuple(range(len(channels)))
    features = np.stack([patient.in_order(order) for patient in patients])
    strange = []
    for part in range(5):
        mean, precision = _usual(features[np.arange(len(features)) % 5 != part])
        away = features[part::5] - mean
        strange.append(np.einsum("ni,ij,nj->n", away, precision, away))
    mean, precision = _usual(features)
    return Reference(tuple(channels), mean, precision, ROOM * float(np.concatenate(strange).max()), len(patients))


def _usual(features: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    covariance = np.atleast_2d(np.cov(features.T))
    shrunk = (1 - SHRINKAGE) * covariance + SHRINKAGE * np.diag(np.diag(covariance)) + 1e-6 * np.eye(len(covariance))
    return features.mean(axis=0), np.asarray(np.linalg.inv(shrunk), dtype=np.float64)


def describe(volume: Volume, channels: Sequence[str]) -> ContrastFeatures | None:
    """Features of a volume's channels by name; None where one is missing, or hardly any brain is there."""
    if not set(channels) <= set(volume.channels):
        return None
    return describe_images(volume.array[[volume.channels.index(name) for name in channels]], volume.spacing)


def describe_images(images: NDArray[np.generic], spacing: tuple[float, ...]) -> ContrastFeatures | None:
    """Features of skull-stripped images on one grid, `[C, X, Y, Z]`; None where there is hardly any brain."""
    from scipy import ndimage

    steps = [max(1, round(WORKING_SPACING / size)) for size in spacing]
    x, y, z = steps
    array = np.asarray(images[:, ::x, ::y, ::z])
    inside = np.all(array > 0, axis=0)
    if np.count_nonzero(inside) < 200:
        return None
    sampling = [step * size for step, size in zip(steps, spacing, strict=True)]
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
    correlation = np.atleast_2d(np.corrcoef(scores))
    pairs = np.arctanh(np.clip(np.nan_to_num(correlation), -0.99, 0.99))
    return ContrastFeatures(np.stack(single, axis=1), pairs)


@dataclass(frozen=True)
class Likely:
    """What images most likely are."""

    channels: tuple[str, ...]
    margin: float
    """By how much the next best order is less likely: minus twice the logarithm of the ratio."""


def likely_channels(
    found: ContrastFeatures,
    known: Mapping[int, str],
    *,
    never: Set[str] = frozenset(),
    needed: Sequence[Set[str]] = (),
) -> Likely | None:
    """Which image is which channel, by what each looks like and how they go together.

    Args:
        found: Features of one to four images.
        known: Place of an image among them to its channel, where that is known.
        never: Channels that no unknown image can be.
        needed: Of each of these sets, one channel must be there.

    Returns:
        The most likely order; None where there is none, or more images than channels.
    """
    count = len(found.single)
    orders = [
        order
        for order in permutations(range(len(CHANNELS)), min(count, len(CHANNELS) + 1))
        if all(CHANNELS[order[place]] == channel for place, channel in known.items())
        and not any(CHANNELS[channel] in never for place, channel in enumerate(order) if place not in known)
        and all(any(CHANNELS[channel] in one for channel in order) for one in needed)
    ]
    ranked = sorted((_unlikely(found, order), order) for order in orders)
    if not ranked:
        return None
    margin = ranked[1][0] - ranked[0][0] if len(ranked) > 1 else float("inf")
    return Likely(tuple(CHANNELS[place] for place in ranked[0][1]), margin)


def _unlikely(found: ContrastFeatures, order: tuple[int, ...]) -> float:
    """Minus twice the logarithm of how likely these images are, were they these channels; the rest is not looked at."""
    usual = usual_contrasts()
    singles = found.single.shape[1]
    pair_of = {pair: place for place, pair in enumerate(combinations(range(len(CHANNELS)), 2))}
    pairs = [pair_of[min(pair), max(pair)] for pair in combinations(order, 2)]
    places = [channel * singles + feature for channel in order for feature in range(singles)]
    places += [len(CHANNELS) * singles + pair for pair in pairs]
    away = found.in_order(tuple(range(len(order)))) - usual.mean[places]
    spread = usual.covariance[np.ix_(places, places)]
    return float(away @ np.linalg.solve(spread, away) + np.linalg.slogdet(spread)[1])


@cache
def usual_contrasts() -> Reference:
    """What T1, T1Gd, T2 and FLAIR usually look like, whatever a model learnt from."""
    values = json.loads((files("diptych.volumes") / "channel_check.json").read_text(encoding="utf-8"))
    return Reference(CHANNELS, np.array(values["mean"]), np.array(values["precision"]), UNLIKE, values["patients"])
