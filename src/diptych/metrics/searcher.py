"""`Searcher`: the one list of metrics, the one default, and the one place where a query goes to whoever answers it.

    searcher = Searcher(engine, planes, heights=heights)
    searcher.offered("both")                     # names of METRICS that this model and archive can search by
    searcher.search(Query(normal=ids, abnormal=ids, by="both", metric="fusion"))

Whoever searches (archives, the server, evaluation) asks here. Knows engines and decoded planes; nothing about questions
in a user's words, files or pixels.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from diptych.errors import UsageError
from diptych.metrics.decoded_planes import ArchivePlanes
from diptych.metrics.fusion import METRIC as FUSION
from diptych.metrics.fusion import Fusion
from diptych.metrics.histogram import HistogramSearch
from diptych.metrics.label_search import LabelSearch
from diptych.metrics.learned_tables import METRIC as LEARNED
from diptych.metrics.overlap import METRIC as OVERLAP
from diptych.metrics.overlap import Overlap
from diptych.progress import Progress, silent
from diptych.search import PANELS, Match, Query, SearchEngine
from diptych.search.query import panels_of

METRICS = {
    "euclidean": "Euclidean distance D_E between code vectors",
    "angular": "angle D_A between code vectors",
    "hamming": "Hamming distance D_H between optimised binary codes",
    LEARNED: "tables of code distances that were fitted to rank as label overlap does",
    OVERLAP: "overlap of the labels that codes decode to, neighbouring slices included",
    FUSION: "overlap with some of learned, neighbouring slices included",
}
"""Every metric there is, with what it compares."""

DEFAULT = "default"
"""Stands for the best metric that begins at once; see `Searcher.default_for`."""


class Searcher:
    """Answers queries in every metric that the model offers, over one version of an archive.

    Args:
        engine: knows the slices and the model's tables.
        planes: what the slices decode to; without them there is neither `overlap` nor `fusion`.
        heights: of the slices in millimetres, `[N]`; without them every slice stands for itself alone.
    """

    def __init__(
        self,
        engine: SearchEngine,
        planes: ArchivePlanes | None = None,
        *,
        heights: NDArray[np.floating] | None = None,
    ) -> None:
        self.engine = engine
        self.planes = planes
        self.heights = heights

    def offered(self, by: str | None = None) -> tuple[str, ...]:
        """The metrics that can search by that, or by anything at all."""
        needed = set() if by is None else set(panels_of(by))
        known = {metric: self._panels(metric) for metric in (*METRICS, *self._other_tables)}
        return tuple(metric for metric, panels in known.items() if panels and panels >= needed)

    @property
    def default(self) -> str:
        """What finds best in a search by both panels; see `default_for`."""
        return self.default_for("both")

    def default_for(self, by: str) -> str:
        """What finds best and begins at once.

        With stored maps of fitted label decoders: overlap by abnormal, fusion by normal and by both, as validation
        patients say (LOG.md). Otherwise the model's learned tables where it has them.
        """
        if self.planes is not None and self.planes.fitted:
            for metric in (OVERLAP,) if by == "abnormal" else (FUSION, OVERLAP):
                if metric in self.offered(by):
                    return metric
        return self.default_table

    @property
    def default_table(self) -> str:
        """What finds best among tables of codes."""
        return LEARNED if LEARNED in self.offered("both") else "euclidean"

    def settle(self, query: Query) -> Query:
        """The query with its metric, where it leaves that open; one that cannot be had is refused."""
        if query.metric == DEFAULT:  # raw sums are the paper's way, so the paper's metric goes with them
            return replace(query, metric="euclidean" if query.combine == "paper" else self.default_for(query.by))
        if query.metric not in self.offered(query.by):
            raise UsageError(f"metric {query.metric}: {self._why_not(query)}")
        return query

    def settle_codes(self, query: Query, purpose: str) -> Query:
        """The same for a search that only tables of codes can answer."""
        if query.metric == DEFAULT and query.combine != "paper":
            return replace(query, metric=self.default_table)
        query = self.settle(query)
        if self.decodes(query.metric):
            tables = ", ".join(metric for metric in self.offered(query.by) if not self.decodes(metric))
            raise UsageError(
                f"metric {query.metric}: compares labels of single slices, in place; {purpose}, take {tables}"
            )
        return query

    def decodes(self, metric: str) -> bool:
        """Whether a metric compares decoded label maps: slice by slice and in place."""
        return metric in (OVERLAP, FUSION)

    def ready(self, metric: str, *, rerank: int | None = None) -> bool:
        """Whether such a search begins at once, with nothing to be decoded before."""
        needed = rerank is not None or self.decodes(metric)
        return not needed or (self.planes is not None and self.planes.ready)

    def prepare(self, progress: Progress = silent) -> None:
        """Decode the archive's labels, or take them from its cache."""
        if self.planes is not None:
            self.planes.maps(progress)

    def search(self, query: Query, *, rerank: int | None = None) -> list[Match]:
        """The best slice of each of the best volumes (or patients), nearest first.

        With `rerank` the query's metric chooses that many volumes, and overlap orders them.
        """
        query = self.settle(query)
        if rerank is not None:
            return self._rerank(query, rerank)
        if self.decodes(query.metric):
            return self._by_labels[query.metric].search(query)
        return self.engine.search(query)

    def search_batch(self, queries: list[Query]) -> list[list[Match]]:
        """The same answers as `search` gives to each query, for less when many ask alike."""
        settled = [self.settle(query) for query in queries]
        answers: dict[int, list[Match]] = {}
        for metric in dict.fromkeys(query.metric for query in settled if self.decodes(query.metric)):
            mine = [place for place, query in enumerate(settled) if query.metric == metric]
            found = self._by_labels[metric].search_batch([settled[place] for place in mine])
            answers |= dict(zip(mine, found, strict=True))
        rest = [place for place in range(len(settled)) if place not in answers]
        if rest:
            answers |= dict(zip(rest, self.engine.search_batch([settled[place] for place in rest]), strict=True))
        return [answers[place] for place in range(len(settled))]

    def search_histograms(self, query: Query) -> list[Match]:
        """The same by which abnormal codes slices hold, wherever they lie."""
        return self._histograms.search(self.settle_codes(query, "to search anywhere"))

    def distances(self, query: Query) -> NDArray[np.float64]:
        """From the query to every slice, whatever its filter says, `[N]`."""
        query = self.settle(query)
        return (self._by_labels[query.metric] if self.decodes(query.metric) else self.engine).distances(query)

    def _rerank(self, query: Query, candidates: int) -> list[Match]:
        if candidates < query.top:
            raise UsageError(f"rerank {candidates}: re-rank at least as many volumes as are wanted, {query.top}")
        ordered = self.settle(replace(query, metric=OVERLAP))
        return self._by_labels[OVERLAP].rerank(ordered, self.search(replace(query, top=candidates)))

    @cached_property
    def _by_labels(self) -> dict[str, LabelSearch]:
        assert self.planes is not None, "no metric that decodes is offered without planes"
        overlap = Overlap(self.engine, self.planes.maps(), self.planes.decoder)
        ways: dict[str, Overlap | Fusion] = {OVERLAP: overlap, FUSION: Fusion(overlap)}
        return {metric: LabelSearch(way, heights=self.heights) for metric, way in ways.items()}

    @cached_property
    def _histograms(self) -> HistogramSearch:
        return HistogramSearch(self.engine)

    @property
    def _other_tables(self) -> list[str]:
        """Tables that were given to the engine under a name of their own."""
        return [name for name in self.engine.tables.normal if name not in METRICS]

    def _panels(self, metric: str) -> set[str]:
        """The panels that a metric can compare."""
        decoded = set() if self.planes is None else set(self.planes.panels)
        if metric == OVERLAP:
            return decoded
        table = LEARNED if metric == FUSION else metric
        tabled = {panel for panel in PANELS if table in self.engine.tables.panel(panel)}
        return tabled & decoded if metric == FUSION else tabled

    def _why_not(self, query: Query) -> str:
        metric, offered = query.metric, ", ".join(self.offered(query.by))
        missing = [panel for panel in panels_of(query.by) if panel not in self._panels(metric)]
        if metric not in METRICS:
            return f"there is no such metric; choose one of {offered}"
        if metric in (LEARNED, FUSION) and any(panel not in self._panels(LEARNED) for panel in missing):
            return f"this model has no learned tables; make them with 'diptych fit tables', or choose one of {offered}"
        if self.decodes(metric):
            return (
                f"nothing decodes this model's {missing[0]} codes to labels; make label decoders with "
                f"'diptych fit labels', or choose one of {offered}"
            )
        return f"this model has no such table; choose one of {offered}"
