"""What a match is worth: how well its labels can be expected to agree with the query's, and how sure that is.

    MODEL/worth.safetensors     made by 'diptych fit worth' from patients with labels that the model was not trained on

A distance has no unit. Patients with labels tell what a distance meant for them: the expected label Dice falls with the
distance (isotonic regression), and an interval around it holds nine in ten matches of patients who were left out when
the curve was drawn (cross-conformal, one patient after the other). Both by metric and panel, and for lesions only where
the query shows one, since two slices without any agree whatever their distance. Knows distances and Dice; nothing about
how either was found.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.errors import ModelError, UsageError
from diptych.metrics.model_file import Companion
from diptych.search import PanelMatch

FILE = Companion(
    file="worth.safetensors",
    format="diptych-worth",
    version="1",
    called="what matches are worth",
    command="diptych fit worth",
)
BYS = ("normal", "abnormal", "both")
COVERAGE = 0.9
KNOTS = 48
"""Points of a curve, at even shares of the matches it was learnt from."""
FEWEST = 60
"""Matches that a curve needs."""
NARROWEST = 0.02
"""Spread that is assumed at least, in Dice."""


@dataclass(frozen=True)
class Agreement:
    """Label Dice between query and match, 0…1."""

    expected: float
    low: float
    """Nine in ten such matches lie between `low` and `high`."""
    high: float

    def __str__(self) -> str:
        """
        >>> print(Agreement(0.71, 0.62, 0.78))
        about 71 % (62–78)
        """
        return f"about {100 * self.expected:.0f} % ({100 * self.low:.0f}–{100 * self.high:.0f})"


@dataclass(frozen=True)
class Worth:
    """What a match is worth, as far as its panels were compared; None for a panel of which nothing is known."""

    anatomy: Agreement | None
    lesion: Agreement | None

    def __str__(self) -> str:
        parts = {"anatomy": self.anatomy, "lesion": self.lesion}
        return ", ".join(f"{name} agrees {value}" for name, value in parts.items() if value is not None)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Curve:
    """Dice by distance, at ascending distances `[M]`; straight lines between, level beyond the ends."""

    distance: NDArray[np.float64]
    expected: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    def at(self, distance: float) -> Agreement:
        """What a match at that distance is worth."""
        curves = (self.expected, self.low, self.high)
        return Agreement(*(float(np.interp(distance, self.distance, values)) for values in curves))

    def covers(self, distance: NDArray[np.floating], dice: NDArray[np.floating]) -> NDArray[np.bool_]:
        """Whether the interval holds the truth, match by match."""
        low, high = (np.interp(distance, self.distance, values) for values in (self.low, self.high))
        return np.asarray((dice >= low - 1e-9) & (dice <= high + 1e-9))


@dataclass(frozen=True, eq=False)
class Pairs:
    """Matches whose labels are known, `[N]` each."""

    patient: NDArray[np.integer]
    """Number of the patient who asked."""
    distance: NDArray[np.floating]
    """Between the panels, in the metric itself."""
    dice: NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class WorthTables:
    """The curves of one model, by metric and panel."""

    curves: Mapping[tuple[str, str], Curve]
    missing: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """What searches lose without some channels, joined by commas: shares of the oracle, by panel and by both."""

    def cost_of_missing(self, channels: Sequence[str]) -> str | None:
        """A sentence; None where nothing was measured."""
        found = self.missing.get(",".join(channels))
        if not found:
            return None
        named = {"normal": "anatomy", "abnormal": "lesion", "both": "both"}
        lost = ", ".join(f"by {named[by]} {100 * share:.0f}" for by, share in found.items())
        return (
            f"Without {' and '.join(channels)} searches found less among other patients, in per cent of what could be "
            f"found: {lost}."
        )

    @classmethod
    def open(cls, model: Path | None, fingerprint: str) -> WorthTables | None:
        """What lies beside a model; None where nothing does."""
        found = None if model is None else FILE.read(model, fingerprint=fingerprint)
        if found is None:
            return None
        curves = {}
        for name, values in found[0].items():
            metric, _, panel = name.partition("/")
            sound = (
                values.ndim == 2 and values.shape[0] == 4 and values.shape[1] > 0 and bool(np.isfinite(values).all())
            )
            if not sound or bool((np.diff(values[0]) < 0).any()):
                raise ModelError(f"{model}: its {FILE.called} are damaged ({name}); {FILE.way_out}")
            curves[metric, panel] = Curve(*np.asarray(values, dtype=np.float64))
        try:
            costs = json.loads(found[1].get("missing", "{}"))
            missing = {str(name): {by: float(lost[by]) for by in BYS if by in lost} for name, lost in costs.items()}
        except (ValueError, TypeError, AttributeError):
            raise ModelError(f"{model}: its {FILE.called} are damaged (missing); {FILE.way_out}") from None
        return cls(curves, missing)

    def save(self, model: Path, fingerprint: str) -> Path:
        """Write them beside the model."""
        arrays = {
            f"{metric}/{panel}": np.stack([curve.distance, curve.expected, curve.low, curve.high]).astype(np.float32)
            for (metric, panel), curve in self.curves.items()
        }
        return FILE.write(model, arrays, fingerprint=fingerprint, missing=json.dumps(self.missing))

    def of(
        self, metric: str, normal: PanelMatch | None, abnormal: PanelMatch | None, *, lesion: bool = True
    ) -> Worth | None:
        """What a match is worth; None where no panel has a curve. `lesion` is whether the query shows one."""
        agreements = [
            None if match is None or curve is None else curve.at(match.distance)
            for match, curve in (
                (normal, self.curves.get((metric, "normal"))),
                (abnormal if lesion else None, self.curves.get((metric, "abnormal"))),
            )
        ]
        return None if agreements == [None, None] else Worth(*agreements)


FOLDS = 20
"""Parts that patients are divided into at most, each left out once; up to so many patients it is one at a time."""


def speaks(metric: str, panel: str) -> bool:
    """Whether a metric's distances of a panel mean the same in another archive.

    Of lesions only overlap's do: codes say little of how much of a lesion two slices share, and fusion is in units of
    the archive's own spread. On other patients intervals of the others held in 54 to 86 % where 90 were promised.
    """
    return panel == "normal" or metric == "overlap"


def fit_curve(pairs: Pairs, *, seed: int = 0) -> Curve:
    """Expected Dice by distance, with an interval from patients who were left out; more patients make it sharper.

    What one patient's matches are worth differs from another's by more than chance, so the interval is taken from
    residuals of patients that the curve has not seen. Residuals are in units of their usual size at that distance, so
    near matches may have narrower intervals.
    """
    patients = np.unique(pairs.patient)
    if len(patients) < 4 or len(pairs.dice) < FEWEST:
        raise UsageError(
            f"{len(pairs.dice)} matches of {len(patients)} patients: what a match is worth needs at least {FEWEST} "
            "matches of four patients; give more patients with labels"
        )
    knots = np.unique(np.quantile(pairs.distance, np.linspace(0, 1, KNOTS)))
    order = np.random.default_rng(seed).permutation(patients)
    relative = []
    for fold in range(min(FOLDS, len(order))):
        left_out = np.isin(pairs.patient, order[fold::FOLDS])
        expected, spread = _curve(pairs, ~left_out, knots)
        distance, dice = pairs.distance[left_out], pairs.dice[left_out]
        relative.append((dice - np.interp(distance, knots, expected)) / np.interp(distance, knots, spread))
    residuals = np.concatenate(relative)
    below, above = _conformal(-residuals), _conformal(residuals)
    expected, spread = _curve(pairs, np.ones(len(pairs.dice), dtype=np.bool_), knots)
    low, high = np.clip(expected - below * spread, 0, 1), np.clip(expected + above * spread, 0, 1)
    return Curve(knots, np.clip(expected, low, high), low, high)


def _curve(
    pairs: Pairs, used: NDArray[np.bool_], knots: NDArray[np.floating]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Expected Dice and the usual size of residuals at each knot."""
    order = np.flatnonzero(used)[np.argsort(pairs.distance[used], kind="stable")]
    distance, dice = pairs.distance[order], pairs.dice[order]
    mean = _falling(distance, dice)
    return np.interp(knots, distance, mean), _usual(distance, np.abs(dice - mean), knots)


def _falling(distance: NDArray[np.floating], dice: NDArray[np.floating]) -> NDArray[np.float64]:
    """The best fit that never rises with the distance, which is sorted."""
    from scipy.optimize import isotonic_regression

    return np.asarray(isotonic_regression(dice, increasing=False).x, dtype=np.float64)


def _usual(
    distance: NDArray[np.floating], off: NDArray[np.floating], knots: NDArray[np.floating]
) -> NDArray[np.float64]:
    """Mean size of residuals near each knot: over a sixth of all matches."""
    reach = max(len(off) // 12, 1)
    places = np.searchsorted(distance, knots).clip(0, len(off) - 1)
    return np.array([max(off[max(p - reach, 0) : p + reach].mean(), NARROWEST) for p in places.tolist()])


def _conformal(scores: NDArray[np.floating]) -> float:
    """The score that one in twenty exceeds, with the correction for a finite number of them; never below zero."""
    share = (1 + COVERAGE) / 2
    level = min(np.ceil((len(scores) + 1) * share) / len(scores), 1.0)
    return max(float(np.quantile(scores, level, method="higher")), 0.0)
