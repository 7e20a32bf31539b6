"""How sure a mean over patients is: percentile intervals by drawing people anew, with replacement.

    draws = Draws.of(people, seed=0)          one number per query, whose it is
    draws.mean(values)                        Interval(mean, low, high)
    draws.ratio(found, oracle)                of a ratio of means: both are drawn together
    draws.ratio(found - other, oracle)        paired difference of two methods, in shares of the oracle

Knows numbers; all queries of one person are drawn together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Draws", "Interval"]

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
