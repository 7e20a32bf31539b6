"""Tells whether the images of a patient look like what a model learnt from: contrasts, their order, and a whole head.

Knows arrays and voxel sizes; no network. Each channel is described by the shape of its z-scores and by how bright the
brain's surface is (sulcal liquor: dark in T1 and FLAIR, bright in T2), each pair of channels by its correlation. What
is usual is a `Reference`: fitted to a model's own training patients ('diptych fit references') and kept beside the
model. The squared Mahalanobis distance to it is the *strangeness* of a volume. When the channels in another order would
be much less strange, they are probably mixed up; when no order is usual, the images are something else.

Where no model is asked for, in intake, what T1, T1Gd, T2 and FLAIR usually look like comes from the 100 training
patients of BraTS 2023 beside which this was developed (`channel_check.json`); it also tells which image is which.

Where some of a model's channels are missing, the others are judged by what is known of them alone.

Measured for gliomas (`benchmarks/contrast_reference.py`, references fitted to 88 patients and 30 phantoms, 12
validation patients): no warning as they are; two exchanged channels noticed in 11 or 12 of 12 (AUROC .976 to 1), one
image given twice, all alike, inverted contrast, noise and something like a CT always.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cache, cached_property
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
FALSE_ALARMS = 5.0
"""Per cent of patients like those it was fitted to that a reference may call strange."""
UNLIKE = 100.0
"""Strangeness above which images are none of the usual contrasts, where no model is asked for."""
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

    @property
    def vector(self) -> NDArray[np.float64]:
        """All features of all channels, then of all pairs."""
        return np.concatenate([self.single.reshape(-1), self.pairs[np.triu_indices(len(self.single), 1)]])

    def of(self, images: Sequence[int]) -> ContrastFeatures:
        """Those of some of the images."""
        chosen = list(images)
        return ContrastFeatures(self.single[chosen], self.pairs[np.ix_(chosen, chosen)])


@dataclass(frozen=True, eq=False)
class Reference:
    """What is usual: mean and inverse covariance of the features of known patients."""

    channels: tuple[str, ...]
    mean: NDArray[np.float64]
    precision: NDArray[np.float64]
    limit: float
    """Strangeness of a patient with all channels above which no order helps."""
    patients: int
    error_limit: float | None = None
    """Quantisation error (see `retrieval/trust.py`) that hardly a training patient exceeds; None where not measured."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """The limit where only some of the channels are there, by their names, joined by commas."""

    @cached_property
    def covariance(self) -> NDArray[np.float64]:
        return np.asarray(np.linalg.inv(self.precision))

    def strangeness(self, found: ContrastFeatures, order: Sequence[int]) -> float:
        """Squared distance to what is usual, were the images these of the channels, in this order."""
        places = self._places(order)
        away = found.vector - self.mean[places]
        return float(away @ np.linalg.solve(self.covariance[np.ix_(places, places)], away))

    def unlikely(self, found: ContrastFeatures, order: Sequence[int]) -> float:
        """Minus twice the logarithm of how likely these images are, were they these channels; the rest is not asked."""
        places = self._places(order)
        return self.strangeness(found, order) + float(np.linalg.slogdet(self.covariance[np.ix_(places, places)])[1])

    def limit_of(self, order: Sequence[int]) -> float:
        """The limit for some of the channels; where none was measured, in proportion to how much is known of them."""
        names = ",".join(self.channels[place] for place in sorted(order))
        return self.limits.get(names, self.limit * len(self._places(order)) / len(self.mean))

    def judge(self, volume: Volume) -> Judgement | None:
        """How strange a volume's channels are, those of them that are known; None where hardly any brain is there."""
        own = tuple(place for place, name in enumerate(self.channels) if name in volume.channels)
        found = describe(volume, [self.channels[place] for place in own]) if own else None
        if found is None:
            return None
        strange = {order: self.strangeness(found, order) for order in _orders(own)}
        best = min(strange, key=strange.__getitem__)
        exchanged = tuple(self.channels[one] for one, other in zip(own, best, strict=True) if one != other)
        return Judgement(strange[best] / self.limit_of(own), (strange[own] - strange[best]) / ORDER_MARGIN, exchanged)

    def warnings(self, volume: Volume) -> list[str]:
        """A plain sentence when the channels look exchanged, or unlike anything known."""
        found = self.judge(volume)
        if found is None:
            return []
        known = [name for name in self.channels if name in volume.channels]
        if found.strange > 1:
            order = " in any order" if len(known) > 1 else ""
            return [
                f"The images do not look like {', '.join(known)} of a skull-stripped brain that the model knows{order} "
                f"({found.strange:.1f} times as strange as all but {FALSE_ALARMS:.0f} in a hundred of those); "
                "check the contrasts, and that this is MR, not CT."
            ]
        if found.mixed_up > 1:
            names = " and ".join(found.exchanged) if len(found.exchanged) == 2 else ", ".join(found.exchanged)
            return [f"The channels {names} look exchanged; check which file is which."]
        return []

    def _places(self, order: Sequence[int]) -> list[int]:
        """Where the features of some channels, and of their pairs, stand among those of all."""
        count = len(self.channels)
        singles = (len(self.mean) - count * (count - 1) // 2) // count
        pair_of = {pair: place for place, pair in enumerate(combinations(range(count), 2))}
        places = [channel * singles + feature for channel in order for feature in range(singles)]
        pairs = [pair_of[min(pair), max(pair)] for pair in combinations(order, 2)]
        return places + [count * singles + pair for pair in pairs]


@dataclass(frozen=True)
class Judgement:
    """What a reference says of a volume; 1 is where a warning begins."""

    strange: float
    """Strangeness in the best order, over what 95 in a hundred known patients stay below."""
    mixed_up: float
    """How much less strange another order is."""
    exchanged: tuple[str, ...]
    """Channels that another order would move."""

    @property
    def foreign(self) -> float:
        """One score for both."""
        return max(self.strange, self.mixed_up)


def _orders(own: tuple[int, ...]) -> list[tuple[int, ...]]:
    """All orders of some channels, the given one first."""
    return list(permutations(own)) if len(own) <= MOST_ORDERED else [own]


def fit_reference(channels: Sequence[str], patients: Sequence[ContrastFeatures]) -> Reference:
    """Mean and inverse shrunken covariance of patients whose channels are in order.

    How strange each of them is comes from the others, a fifth left out at a time: what a covariance was fitted to
    always looks usual to it.
    """
    if len(patients) < FEWEST:
        raise UsageError(f"{len(patients)} patients: what is usual needs at least {FEWEST}; give more")
    features = np.stack([patient.vector for patient in patients])
    count = len(channels)
    sizes = range(1, count + 1) if count <= MOST_ORDERED else (count,)
    subsets = [kept for size in sizes for kept in combinations(range(count), size)]
    strange: dict[tuple[int, ...], list[float]] = {kept: [] for kept in subsets}
    for part in range(5):
        others = Reference(tuple(channels), *_usual(features[np.arange(len(features)) % 5 != part]), 0.0, 0)
        for one in patients[part::5]:
            for kept, found in strange.items():
                found.append(others.strangeness(one.of(kept), kept))
    limits = {kept: float(np.percentile(found, 100 - FALSE_ALARMS)) for kept, found in strange.items()}
    return Reference(
        tuple(channels),
        *_usual(features),
        limit=limits[tuple(range(count))],
        patients=len(patients),
        limits={",".join(channels[place] for place in kept): limit for kept, limit in limits.items()},
    )


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
    usual = usual_contrasts()
    ranked = sorted((usual.unlikely(found, order), order) for order in orders)
    if not ranked:
        return None
    margin = ranked[1][0] - ranked[0][0] if len(ranked) > 1 else float("inf")
    return Likely(tuple(CHANNELS[place] for place in ranked[0][1]), margin)


@cache
def usual_contrasts() -> Reference:
    """What T1, T1Gd, T2 and FLAIR usually look like, whatever a model learnt from."""
    values = json.loads((files("diptych.volumes") / "channel_check.json").read_text(encoding="utf-8"))
    return Reference(CHANNELS, np.array(values["mean"]), np.array(values["precision"]), UNLIKE, values["patients"])
