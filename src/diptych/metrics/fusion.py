"""`FusionSearch`: the metric `fusion`, the overlap of decoded labels with some of what learned tables say.

Learned tables know what codes tend to mean, overlap what these very codes decode to; each errs where the other does
not. In each panel both distances are divided by their spread over random slices and averaged. Exact, with the filters,
regions and matches of every other search, and cell by cell the parts add up to the distance. Needs both: a model with
learned tables, and decoded planes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from diptych.errors import UsageError
from diptych.metrics.label_planes import Planes
from diptych.metrics.learned_tables import METRIC as LEARNED
from diptych.metrics.overlap import METRIC as OVERLAP
from diptych.metrics.overlap import OverlapSearch
from diptych.search import PanelMatch, Query
from diptych.search.contributions import parts
from diptych.search.scan import Selection

METRIC = "fusion"
OVERLAP_SHARE = 0.75
"""How much of a say overlap has. Chosen on training and validation patients: from a half to three quarters searches
find alike, with three quarters the first match is best, and overlap alone finds less."""
DECODED = (OVERLAP, METRIC)
"""Metrics that need the archive's decoded label maps."""


class FusionSearch(OverlapSearch):
    """Searches the slices of an engine's index by their planes and by learned tables."""

    def _factors(self, query: Query) -> dict[str, float]:
        if query.by != "both":
            return {query.by: 1.0}
        if query.combine == "paper":
            return {"normal": 1.0, "abnormal": 1.0}
        return {"normal": query.weight, "abnormal": 1 - query.weight}  # fused distances are made comparable already

    def _distances(
        self, query: Query, panel: str, asked: Mapping[str, Planes], selection: Selection
    ) -> NDArray[np.float64]:
        learned = self._learned(query, panel)
        starts, stops = selection.starts[selection.volumes], selection.stops[selection.volumes]
        by_table = self.engine.term(learned, panel).distances(starts, stops, self.engine.pool)
        by_label = super()._distances(query, panel, asked, selection)
        label_rate, table_rate = self._rates(query, panel)
        return label_rate * by_label + table_rate * by_table

    def _compare(self, query: Query, panel: str, one: Planes, found: int) -> PanelMatch:
        learned = self._learned(query, panel)
        by_label = super()._compare(query, panel, one, found)
        ids = self.engine.index.codes[panel].ids(np.array([found]))
        distances, cells = parts(self.engine.term(learned, panel), ids)
        label_rate, table_rate = self._rates(query, panel)
        shares = table_rate * cells[0].reshape(self.engine.index.grid) + label_rate * by_label.contributions
        return PanelMatch(label_rate * by_label.distance + table_rate * float(distances[0]), shares)

    def _rates(self, query: Query, panel: str) -> tuple[float, float]:
        """What distances by label and by table are multiplied by."""
        table_spread = self.engine.spread(self._learned(query, panel), panel)
        return OVERLAP_SHARE / self.spread(query, panel), (1 - OVERLAP_SHARE) / table_spread

    def _learned(self, query: Query, panel: str) -> Query:
        if LEARNED not in self.engine.tables.panel(panel):
            raise UsageError(f"metric {METRIC}: this model has no learned tables; make them with 'diptych fit-tables'")
        return replace(query, metric=LEARNED)
