"""Which metric finds best: every one the engine has, overlap and re-ranking, on patients with known labels.

The paper's protocol (section 4.4.6): of each patient the slice with the largest lesion is the query, all other patients
are the archive, one slice per patient is found. Searches run through the engine that users search with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diptych.evaluation.retrieval_score import (
    ABSENT,
    Absent,
    RetrievalScore,
    Truth,
    largest_lesion_slices,
    mean_dices,
    pack_labels,
    score,
)
from diptych.fitting.fit_data import LabelledSlices
from diptych.metrics.decoded_planes import ArchivePlanes, PlaneDecoder
from diptych.metrics.searcher import Searcher
from diptych.search import Filter, Match, Query, SearchEngine, SearchIndex
from diptych.search.tables import Tables

LONGEST = 10


@dataclass(frozen=True, eq=False)
class Trial:
    """Patients with labels, ready to be searched by any metric."""

    slices: LabelledSlices
    tables: Tables
    decoder: PlaneDecoder | None = None
    """For searches by overlap."""
    people: NDArray[np.int64] | None = None
    """Whose volume it is, `[V]`; every volume is another person's by default."""
    asking: NDArray[np.bool_] | None = None
    """Volumes that queries are taken from, `[V]`; all by default."""
    references: NDArray[np.bool_] | None = None
    """Volumes that may be found, `[V]`; all by default."""
    heights: NDArray[np.floating] | None = None
    """Of the slices in millimetres, `[N]`; without them every slice stands for itself alone."""
    cache: Path | None = None
    """Folder that keeps decoded label maps; they are decoded anew without one."""

    @cached_property
    def queries(self) -> NDArray[np.intp]:
        """The slice with the largest lesion of each volume that asks."""
        largest = largest_lesion_slices(self.slices.lesion_area, self.slices.volume)
        return largest if self.asking is None else largest[self.asking[self.slices.volume[largest]]]

    @cached_property
    def person(self) -> NDArray[np.int64]:
        """Whose volume it is, `[V]`."""
        return np.arange(len(self.slices.keys)) if self.people is None else self.people

    @cached_property
    def longest(self) -> int:
        """How many volumes every query can find, ten at most."""
        return min(LONGEST, int(self.truths()["abnormal"].foreign.sum(axis=1).min()))

    def truths(self, absent: Absent = "left out") -> Mapping[str, Truth]:
        """What each slice is worth to each query, by what is searched."""
        return self._truths[absent]

    @cached_property
    def _truths(self) -> dict[Absent, dict[str, Truth]]:
        """Anatomy Dice for normal, lesion Dice for abnormal, the mean of the two for both, as in the paper."""
        dice = {panel: self._label_dice(panel) for panel in self.slices.labels}
        own = self.slices.volume[self.queries]
        judged: dict[Absent, dict[str, Truth]] = {}
        for absent in ABSENT:
            values = {panel: both[absent] for panel, both in dice.items()}
            if "normal" in values:
                values["both"] = np.mean([values["normal"], values["abnormal"]], axis=0, dtype=np.float32)
            judged[absent] = {
                by: Truth(value, self.slices.volume, own, self.person, self.references) for by, value in values.items()
            }
        return judged

    def _label_dice(self, panel: str) -> dict[Absent, NDArray[np.float32]]:
        planes = pack_labels(self.slices.labels[panel], classes=self.slices.classes[panel])
        return mean_dices(planes.take(self.queries), planes)

    @cached_property
    def engine(self) -> SearchEngine:
        index = SearchIndex.build(
            grid=self.slices.grid,
            normal=self.slices.ids["normal"],
            abnormal=self.slices.ids["abnormal"],
            volume_of_slice=self.slices.volume,
            patient_of_volume=self.person,
            lesion_free=self.slices.lesion_area == 0,
            tables=self.tables,
        )
        return SearchEngine(index, self.tables)

    @cached_property
    def searcher(self) -> Searcher:
        """What users search with."""
        if self.decoder is None:
            return Searcher(self.engine, heights=self.heights)
        content = b"".join(np.ascontiguousarray(ids).tobytes() for ids in self.slices.ids.values())
        version = f"{self.decoder.network.fingerprint} {sha256(content).hexdigest()}"
        planes = ArchivePlanes(self.engine.index, self.decoder, cache=self.cache, version=version, waits=True)
        return Searcher(self.engine, planes, heights=self.heights)

    @cached_property
    def bys(self) -> tuple[str, ...]:
        """What can be judged: everything where anatomy is labelled."""
        return ("normal", "abnormal", "both") if "normal" in self.slices.labels else ("abnormal",)

    def search(self, metric: str, by: str, *, rerank: int | None = None, raw_sum: bool = False) -> NDArray[np.int64]:
        """Slices found for each query, best first, `[Q, found]`; with `rerank`, so many of them ordered by overlap."""
        rows = [self.search_one(int(place), metric, by, rerank=rerank, raw_sum=raw_sum) for place in self.queries]
        return np.array([[match.slice for match in found] for found in rows], dtype=np.int64)

    def search_one(
        self, place: int, metric: str, by: str, *, rerank: int | None = None, raw_sum: bool = False
    ) -> list[Match]:
        """What the slice in that place finds, asked as a user asks; `raw_sum` adds panels as the paper does."""
        query = replace(self._query(place, metric, by), combine="paper" if raw_sum else "normalised")
        return self.searcher.search(query, rerank=rerank)

    def distances(self, metric: str, by: str) -> NDArray[np.float64]:
        """From each query to every slice, its own volume's too, `[Q, N]`."""
        rows = np.empty((len(self.queries), len(self.slices)))
        for number, place in enumerate(self.queries.tolist()):
            rows[number] = self.searcher.distances(self._query(place, metric, by))
        return rows

    def scores(
        self, metrics: Sequence[str], *, rerank: int | None = None, absent: Absent = "left out"
    ) -> dict[str, dict[str, RetrievalScore]]:
        """By what was searched, then by metric."""
        judged = self.truths(absent)
        return {
            by: {metric: score(self.search(metric, by, rerank=rerank), judged[by]) for metric in metrics}
            for by in self.bys
        }

    def _query(self, place: int, metric: str, by: str) -> Query:
        grid, own = self.slices.grid, int(self.person[self.slices.volume[place]])
        return Query(
            normal=self.slices.ids["normal"][place].reshape(grid),
            abnormal=self.slices.ids["abnormal"][place].reshape(grid),
            by=by,  # type: ignore[arg-type]
            metric=metric,
            top=self.longest,
            where=Filter(exclude_patients=(own,), volumes=self.references),
        )
