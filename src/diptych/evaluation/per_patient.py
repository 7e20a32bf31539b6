"""A figure that each patient has, in short: mean, standard deviation, bootstrap interval over patients.

Knows numbers alone; every value is another patient's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.evaluation.bootstrap import Draws

__all__ = ["CELLS", "Summary", "plain", "summarise"]

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
