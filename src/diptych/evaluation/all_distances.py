"""The metric `fusion` of learned tables and overlap of decoded labels; and distances to all slices.

Each distance is divided by its spread over random pairs of slices, then they are averaged; `both` adds the two panels.
What decodes labels is averaged over neighbouring slices, as in a search.
This is plain array arithmetic over all slices, for curves and baselines; users search by `diptych.metrics.fusion`.
Knows trials; nothing about archives.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from diptych.evaluation.compare_metrics import Trial
from diptych.evaluation.retrieval_score import mean_dice
from diptych.metrics.fusion import DECODED, OVERLAP_SHARE
from diptych.metrics.fusion import METRIC as FUSION
from diptych.metrics.label_planes import Planes
from diptych.metrics.learned_tables import METRIC as LEARNED
from diptych.metrics.overlap import METRIC as OVERLAP
from diptych.metrics.overlap import pair_distances, steadied
from diptych.search.tables import DistanceTable

FUSED = {LEARNED: 1 - OVERLAP_SHARE, OVERLAP: OVERLAP_SHARE}
"""The metrics that are fused, and how much of a say each has."""
PAIRS = 4096


def panels_of(by: str) -> tuple[str, ...]:
    """The panels that a search looks at."""
    return ("normal", "abnormal") if by == "both" else (by,)


class Distances:
    """From any slice of a trial to all others, by one metric or by the fusion of two.

    `alone` leaves neighbouring slices out.
    """

    def __init__(self, trial: Trial, metric: str, by: str, *, alone: bool = False) -> None:
        self.trial = trial
        self.heights = None if alone or metric not in DECODED else trial.heights
        shares = FUSED if metric == FUSION else {metric: 1.0}
        self.terms = [(share, _make(trial, one, panel)) for panel in panels_of(by) for one, share in shares.items()]

    def from_slice(self, place: int) -> NDArray[np.float64]:
        """`[N]`."""
        total = np.asarray(sum(share * term.from_slice(place) / term.spread for share, term in self.terms))
        return total if self.heights is None else steadied(total, self.heights, self.trial.slices.volume)

    def from_queries(self) -> NDArray[np.float64]:
        """From each of the trial's queries, `[Q, N]`."""
        rows = np.empty((len(self.trial.queries), len(self.trial.slices)))
        for number, place in enumerate(self.trial.queries.tolist()):
            rows[number] = self.from_slice(place)
        return rows


class _ByTable:
    """One panel by a table of code distances."""

    def __init__(self, ids: NDArray[np.int64], table: DistanceTable) -> None:
        self.ids, self.table = ids, table
        self.weights = table.weights_of(ids.shape[1])
        self.lengths = np.diag(table.entries).astype(np.int64)[ids] @ self.weights  # [N]
        one, other = _random_pairs(len(ids))
        sums = table.entries[ids[one], ids[other]] @ self.weights
        self.spread = float(np.std(table.distance(sums, self.lengths[one], self.lengths[other]))) or 1.0

    def from_slice(self, place: int) -> NDArray[np.float64]:
        sums = self.table.entries[self.ids[place], self.ids] @ self.weights
        return self.table.distance(sums, self.lengths[place], self.lengths)


class _ByOverlap:
    """One panel by the overlap of decoded label maps."""

    def __init__(self, planes: Planes) -> None:
        self.planes = planes
        one, other = _random_pairs(len(planes))
        self.spread = float(np.std(pair_distances(planes.take(one), planes.take(other)))) or 1.0

    def from_slice(self, place: int) -> NDArray[np.float64]:
        return np.asarray(1.0 - mean_dice(self.planes.take([place]), self.planes)[0], dtype=np.float64)


def _make(trial: Trial, metric: str, panel: str) -> _ByTable | _ByOverlap:
    if metric == OVERLAP:
        return _ByOverlap(trial.overlap.planes[panel])
    return _ByTable(trial.slices.ids[panel], trial.tables.panel(panel)[metric])


def _random_pairs(slices: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    one, other = np.random.default_rng(0).integers(slices, size=(2, PAIRS))
    return one, other
