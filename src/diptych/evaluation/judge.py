"""Answers judged: Dice, share of the oracle, intervals and paired differences, and the rows that show them.

Knows answers and truths; which tables a report has is the parts' matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diptych.evaluation.bootstrap import Draws, Interval
from diptych.evaluation.compare_metrics import Trial
from diptych.evaluation.contender import Answers
from diptych.evaluation.part import Cell
from diptych.evaluation.retrieval_score import TOPS, Absent, RetrievalScore, score

CONVENTION: dict[Absent, str] = {
    "left out": "a class that neither slice has is left out of the mean",
    "zero": "a class that neither slice has counts as 0, as the paper seems to do",
}


@dataclass(frozen=True, eq=False)
class Judged:
    """One method, one way of searching, one convention, so many first volumes."""

    dice: NDArray[np.float64]
    """Query by query, `[Q]`."""
    mean: Interval
    deviation: float
    """Standard deviation over queries."""
    share: Interval
    """Of the oracle."""

    def text(self) -> str:
        return f"{self.mean.value:.3f} ± {self.deviation:.3f}"

    def numbers(self) -> dict[str, float | list[float]]:
        """Plain values."""
        return {
            "dice": self.mean.value,
            "sd": self.deviation,
            "interval": [self.mean.low, self.mean.high],
            "of_oracle": self.share.value,
            "of_oracle_interval": [self.share.low, self.share.high],
        }


class Judge:
    """Judges answers to one trial's queries; the same draws of patients for all of them."""

    def __init__(self, trial: Trial, *, seed: int) -> None:
        self.trial = trial
        self.draws = Draws.of(trial.person[trial.slices.volume[trial.queries]], seed=seed)
        self.tops = [top for top in TOPS if top <= trial.longest] or [trial.longest]

    def score(self, answers: Answers, by: str, absent: Absent) -> RetrievalScore:
        """The plain score."""
        return score(answers.found[by], self.trial.truths(absent)[by], tops=self.tops)

    def judge(self, answers: Answers, by: str, absent: Absent) -> dict[int, Judged]:
        """By how many volumes count."""
        found = self.score(answers, by, absent)
        return {top: self._judged(values, found.oracle[top]) for top, values in found.dice.items()}

    def oracle(self, by: str, absent: Absent) -> dict[int, Judged]:
        """What a search by the Dice itself reaches."""
        best = self.trial.truths(absent)[by].oracle
        return {top: self._judged(best[:, :top].mean(axis=1), best[:, :top].mean(axis=1)) for top in self.tops}

    def chance(self, by: str, absent: Absent) -> dict[int, Judged]:
        """What a random slice of a random volume is worth on average, however many are drawn."""
        truth = self.trial.truths(absent)[by]
        return {top: self._judged(truth.chance, truth.oracle[:, :top].mean(axis=1)) for top in self.tops}

    def difference(self, one: Answers, other: Answers, by: str, absent: Absent, top: int) -> Interval:
        """How much more of the oracle `one` reaches than `other`: paired, query by query."""
        first, second = self.score(one, by, absent), self.score(other, by, absent)
        return self.draws.ratio(first.dice[top] - second.dice[top], first.oracle[top])

    def row(self, judged: Mapping[int, Judged]) -> list[Cell]:
        """Shares at every top, then Dice and intervals at the last one."""
        last = judged[self.tops[-1]]
        return [
            *(judged[top].share.value for top in self.tops),
            last.share.text(".1%"),
            last.text(),
            last.mean.text(),
        ]

    def columns(self) -> list[str]:
        """Names of what `row` gives."""
        last = self.tops[-1]
        return [
            *(f"top-{top}" for top in self.tops),
            f"top-{last}, 95 % interval",
            f"Dice top-{last}, mean ± sd",
            "95 % interval",
        ]

    def formats(self) -> dict[str, str]:
        return {f"top-{top}": ".1%" for top in self.tops}

    def _judged(self, dice: NDArray[np.float64], oracle: NDArray[np.float64]) -> Judged:
        deviation = float(np.std(dice, ddof=1)) if len(dice) > 1 else 0.0
        return Judged(dice, self.draws.mean(dice), deviation, self.draws.ratio(dice, oracle))


def spoken(names: Sequence[str]) -> str:
    """Names in a sentence.

    >>> spoken(["a", "b", "c"])
    'a, b and c'
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "none"
