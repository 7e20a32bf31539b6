"""Whole volumes compared over all their slices, aligned from the bottom of the brain to its top.

Knows the search engine's tables and packed codes. Two volumes of S and T slices are walked in max(S, T) levels, so that
every slice of both takes part, and the distance is the same from either side. The aligned slices' code vectors put end
to end are one vector per volume; distances are those of `diptych.search.tables` between such vectors, per level:

    euclidean  sqrt(Σ / levels)      hamming  Σ / levels      angular  the angle itself
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.archive import VolumeInfo
from diptych.errors import UsageError
from diptych.search import PANELS, Query, SearchEngine
from diptych.search.query import panel_weights
from diptych.search.scan import rank
from diptych.search.tables import DistanceTable

Ids = NDArray[np.integer]

SPREAD_PAIRS = 128
"""Pairs of volumes from which the spread of distances is taken."""


@dataclass(frozen=True, eq=False)
class VolumeMatch:
    """A volume that was found."""

    volume: VolumeInfo
    distance: float
    """What matches are ordered by; smaller is nearer."""
    normal: float
    """Distance between the normal panels, neither normalised nor weighted."""
    abnormal: float
    """Distance between the abnormal panels, neither normalised nor weighted."""
    profile: NDArray[np.float64]
    """Each level's part of `distance`, bottom to top; they add up to it."""

    def to_json(self) -> dict[str, Any]:
        return {
            "volume_key": self.volume.volume_key,
            "patient_key": self.volume.patient_key,
            "distance": self.distance,
            "normal_distance": self.normal,
            "abnormal_distance": self.abnormal,
            "profile": self.profile.tolist(),
        }


@dataclass(frozen=True, eq=False)
class _Compared:
    """Two volumes in one panel."""

    distance: float
    profile: NDArray[np.float64]


class VolumeSearch:
    """Ranks the volumes of an index by their likeness to a whole volume."""

    def __init__(self, engine: SearchEngine, volumes: Sequence[VolumeInfo]) -> None:
        self.engine = engine
        self.volumes = volumes
        self._spreads: dict[tuple[str, str, bytes], float] = {}

    def search(self, normal: Ids, abnormal: Ids, query: Query) -> list[VolumeMatch]:
        """The volumes nearest to one with the ids `[S, h, w]`; all else is as `query` says."""
        if query.where.slices is not None or query.where.lesion_free:
            raise UsageError("lesion-free slices: whole volumes are compared here; search for slices instead")
        engine, grids = self.engine, {"normal": normal, "abnormal": abnormal}
        weights = panel_weights(query, lambda panel: self.spread(query, panel))
        selection = engine.select(query)
        flat = {panel: ids.reshape(len(ids), -1) for panel, ids in grids.items()}
        distances = np.full(engine.index.volumes, np.inf)
        compared: dict[int, dict[str, _Compared]] = {}
        for volume in selection.volumes.tolist():
            compared[volume] = {panel: self._compare(flat[panel], volume, panel, query) for panel in PANELS}
            distances[volume] = sum(weight * compared[volume][panel].distance for panel, weight in weights.items())
        order = rank(distances, np.arange(len(distances)), selection.groups, selection.top, np.inf)
        return [self._match(volume, compared[volume], weights) for volume in order]

    def _match(self, volume: int, compared: dict[str, _Compared], weights: dict[str, float]) -> VolumeMatch:
        return VolumeMatch(
            volume=self.volumes[volume],
            distance=sum(weight * compared[panel].distance for panel, weight in weights.items()),
            normal=compared["normal"].distance,
            abnormal=compared["abnormal"].distance,
            profile=np.sum([weight * compared[panel].profile for panel, weight in weights.items()], axis=0),
        )

    def spread(self, query: Query, panel: str) -> float:
        """Standard deviation of the distance between random volumes; 1 where all distances are equal."""
        if query.spreads is not None:
            return query.spreads[query.metric, panel]
        key = panel, query.metric, self.engine.region(query).tobytes()
        if key not in self._spreads:
            pairs = np.random.default_rng(0).integers(self.engine.index.volumes, size=(SPREAD_PAIRS, 2)).tolist()
            found = [self._compare(self._ids(one, panel), other, panel, query).distance for one, other in pairs]
            self._spreads[key] = float(np.std(found)) or 1.0
        return self._spreads[key]

    def _ids(self, volume: int, panel: str) -> Ids:
        start, stop = self.engine.index.volume_starts[volume : volume + 2]
        return self.engine.index.codes[panel].ids(np.arange(start, stop))

    def _compare(self, ids: Ids, volume: int, panel: str, query: Query) -> _Compared:
        region = self.engine.region(query)
        return _compare(ids, self._ids(volume, panel), self.engine.table(query, panel), region)


def _compare(one: Ids, other: Ids, table: DistanceTable, region: NDArray[np.bool_]) -> _Compared:
    """Distance between ids `[S, P]` and `[T, P]` over a region `[P]`, and each level's part of it."""
    here, there = align(len(one), len(other))
    one, other = one[here][:, region], other[there][:, region]
    levels, weights = len(here), table.weights_of(len(region))[region]
    sums = table.entries[one, other] @ weights  # [levels]
    if table.kind != "angle":
        distance = float(table.distance(sums.sum() / levels))
        return _Compared(distance, _shared(distance, sums.astype(np.float64)))
    lengths = np.diag(table.entries).astype(np.float64)
    own, found = lengths[one] @ weights, lengths[other] @ weights
    product = float(np.sqrt(own.sum()) * np.sqrt(found.sum()))
    cosine = sums.sum() / product if product else float(own.sum() == found.sum())
    distance = float(np.arccos(np.clip(cosine, -1.0, 1.0)))
    chords = own / (own.sum() or 1.0) + found / (found.sum() or 1.0) - 2 * sums / (product or 1.0)
    return _Compared(distance, _shared(distance, np.maximum(chords, 0.0)))


def align(slices: int, others: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which slices of two volumes stand beside one another, from the bottom up.

    >>> [part.tolist() for part in align(2, 3)]
    [[0, 1, 1], [0, 1, 2]]
    """
    levels = max(slices, others)
    middle = 2 * np.arange(levels) + 1
    return middle * slices // (2 * levels), middle * others // (2 * levels)


def _shared(distance: float, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Hand a distance out to levels in proportion to their weights."""
    total = weights.sum()
    return np.asarray(weights * (distance / total if total > 0 else 0.0))
