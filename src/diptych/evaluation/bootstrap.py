"""Figures over patients: mean, standard deviation, and percentile intervals by drawing people anew."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

DRAWS = 4000
LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """A figure with its 95 % interval."""

    value: float
    low: float
    high: float

    def text(self, form: str = ".3f") -> str:
        """The interval alone."""
        return f"{self.low:{form}} … {self.high:{form}}"

    @property
    def certain(self) -> int:
        """1 when the whole interval is above zero, -1 when it is below, 0 when zero is in it."""
        return int(self.low > 0) - int(self.high < 0)


@dataclass(frozen=True, eq=False)
class Draws:
    """How often each query counts in each draw, `[draws, Q]`."""

    weights: NDArray[np.float64]

    @classmethod
    def of(cls, people: ArrayLike, *, seed: int = 0, draws: int = DRAWS) -> Draws:
        """Draw as many people as there are, with replacement, many times."""
        _, person = np.unique(np.asarray(people), return_inverse=True)
        count = int(person.max(initial=-1)) + 1
        times = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=draws)
        return cls(times[:, person].astype(np.float64))

    def mean(self, values: ArrayLike) -> Interval:
        """Of the mean of one value per query."""
        return self.ratio(values, np.ones(self.weights.shape[1]))

    def ratio(self, values: ArrayLike, of: ArrayLike) -> Interval:
        """Of the mean of `values` as a share of the mean of `of`."""
        above, below = np.asarray(values, dtype=np.float64), np.asarray(of, dtype=np.float64)
        total = self.weights @ below
        ratios = (self.weights @ above)[total > 0] / total[total > 0]
        if not ratios.size:
            return Interval(float("nan"), float("nan"), float("nan"))
        low, high = np.quantile(ratios, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return Interval(float(above.sum() / below.sum()), float(low), float(high))


CELLS = ("mean", "sd", "low", "high", "patients")
"""Names of the columns that `Summary.cells` fills."""


@dataclass(frozen=True)
class Summary:
    """Of those patients for whom the figure is defined."""

    mean: float
    sd: float
    low: float
    """Lower end of the 95 % bootstrap interval of the mean."""
    high: float
    patients: int

    @property
    def cells(self) -> tuple[float | None, float | None, float | None, float | None, int]:
        """Mean, deviation, interval and patients for a table row (`CELLS` names them)."""
        mean, sd, low, high = (plain(value) for value in (self.mean, self.sd, self.low, self.high))
        return mean, sd, low, high, self.patients

    def __str__(self) -> str:
        return f"{self.mean:.3f} ± {self.sd:.3f}" if self.patients else "–"


def summarise(values: NDArray[np.floating] | Sequence[float], *, seed: int = 0) -> Summary:
    """Leave out what is not a number, then take mean, standard deviation and interval.

    >>> summarise([1.0, 3.0, float("nan")]).mean
    2.0
    """
    kept = np.asarray(values, dtype=np.float64)
    kept = kept[~np.isnan(kept)]
    if not kept.size:
        return Summary(math.nan, math.nan, math.nan, math.nan, 0)
    interval = Draws.of(np.arange(kept.size), seed=seed).mean(kept)
    return Summary(interval.value, float(kept.std()), interval.low, interval.high, int(kept.size))


def plain(value: Any) -> Any:
    """Values as JSON has them: summaries as dicts, arrays as lists, None for what is not a number."""
    if isinstance(value, Summary):
        return plain(vars(value))
    if isinstance(value, Mapping):
        return {str(name): plain(entry) for name, entry in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    return None if isinstance(value, float) and not math.isfinite(value) else value
