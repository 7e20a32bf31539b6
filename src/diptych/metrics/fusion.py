"""The metric `fusion`: the overlap of decoded labels with some of what learned tables say.

Learned tables know what codes tend to mean, overlap what these very codes decode to; each errs where the other does
not. In each panel both distances are divided by their spread over random slices and averaged, and cell by cell the
parts add up to the distance. Of a large archive only volumes that overlap best are ordered so (`candidates`): learned
distances of near and far slices differ by little, so no bound can leave a slice out by them. Needs both: a model with
learned tables, and decoded planes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from diptych.metrics.label_planes import Planes
from diptych.metrics.learned_tables import METRIC as LEARNED
from diptych.metrics.overlap import Floats, Ints, Overlap
from diptych.search import Query
from diptych.search.contributions import parts
from diptych.search.scan import Selection

METRIC = "fusion"
OVERLAP_SHARE = 0.75
"""How much of a say overlap has. Chosen on training and validation patients: from a half to three quarters searches
find alike, with three quarters the first match is best, and overlap alone finds less."""

CANDIDATES = 100
"""Volumes, or patients, that overlap chooses at least."""
CANDIDATES_EACH = 10
"""And for each match wanted."""


def candidates(top: int) -> int:
    """How many of the nearest by overlap a search for `top` matches orders by fusion."""
    return max(CANDIDATES, CANDIDATES_EACH * top)


class Fusion:
    """Compares as `Overlap` does and by learned tables."""

    def __init__(self, overlap: Overlap) -> None:
        self.overlap = overlap
        self.engine = overlap.engine

    @property
    def panels(self) -> tuple[str, ...]:
        """Panels that can be compared."""
        return tuple(panel for panel in self.overlap.panels if LEARNED in self.engine.tables.panel(panel))

    def asked(self, queries: Sequence[Query], panel: str) -> list[Planes]:
        """The queries' own planes within their regions."""
        return self.overlap.asked(queries, panel)

    def label_rate(self, query: Query, panel: str) -> float:
        """What distances by label are multiplied by."""
        return OVERLAP_SHARE / self.overlap.spread(query, panel)

    def more(self, query: Query, weights: Mapping[str, float], selection: Selection) -> Floats:
        """What tables add to the weighted distances by label, of every slice of the volumes that take part."""
        starts, stops = selection.starts[selection.volumes], selection.stops[selection.volumes]
        asked, total = _learned(query), np.zeros(int((stops - starts).sum()))
        for panel, weight in weights.items():
            by_table = self.engine.term(asked, panel).distances(starts, stops, self.engine.pool)
            total += weight * self._table_rate(query, panel) * by_table
        return total

    def compare(self, query: Query, panel: str, one: Planes, slices: Ints) -> tuple[Floats, Floats]:
        """Distances of some slices, and each cell's part of them, `[n, h, w]`."""
        by_label, label_parts = self.overlap.compare(query, panel, one, slices)
        ids = self.engine.index.codes[panel].ids(slices)
        by_table, table_parts = parts(self.engine.term(_learned(query), panel), ids)
        label_rate, table_rate = self.label_rate(query, panel), self._table_rate(query, panel)
        shares = table_rate * table_parts.reshape(-1, *self.engine.index.grid) + label_rate * label_parts
        return label_rate * by_label + table_rate * by_table, shares

    def spread(self, query: Query, panel: str) -> float:
        """Fused distances of both panels are comparable as they are."""
        return 1.0

    def _table_rate(self, query: Query, panel: str) -> float:
        return (1 - OVERLAP_SHARE) / self.engine.spread(_learned(query), panel)


def _learned(query: Query) -> Query:
    return replace(query, metric=LEARNED)
