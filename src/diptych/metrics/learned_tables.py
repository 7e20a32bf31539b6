"""Learned tables: the metric `learned`, as a file beside the model.

    MODEL/learned-tables.safetensors     for each codebook a symmetric K × K table of non-negative entries, and a weight
                                         for each grid position; the model's fingerprint stands in the header

Entries are products of two codes' contents, so a distance is an angle between what two slices hold (`tables`: kind
`angle`). The model itself stays as it is, its fingerprint too. Knows files and tables; `fit_tables.py` makes them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diptych.errors import ModelError
from diptych.files import parse_json
from diptych.metrics.model_file import Companion
from diptych.search.tables import DistanceTable, table_from

METRIC = "learned"
FILE = "learned-tables.safetensors"
LEARNED_TABLES = Companion(
    file=FILE,
    format="diptych-learned-tables",
    version="1",
    called="learned tables",
    command="diptych fit tables STORE --model MODEL",
)
PANELS = ("normal", "abnormal")


@dataclass(frozen=True, eq=False)
class LearnedTable:
    """One codebook's table."""

    products: NDArray[np.float32]
    """`[K, K]`: how much of their content two codes share; symmetric, none negative."""
    weights: NDArray[np.int32]
    """How often each grid position counts, `[P]`."""

    def distance_table(self) -> DistanceTable:
        """What the search engine takes."""
        return table_from(self.products, cells=len(self.weights), metric=METRIC, kind="angle", weights=self.weights)


@dataclass(frozen=True, eq=False)
class LearnedTables:
    """The tables of both codebooks (or of one, where there were labels for one only) and how they came about."""

    fingerprint: str
    """Of the model whose codes these are."""
    panels: Mapping[str, LearnedTable]
    """By panel, `normal` and `abnormal`."""
    report: Mapping[str, object]
    """Data, settings and results of the fit, for the model card."""


def save_learned_tables(tables: LearnedTables, model: Path) -> Path:
    """Write the tables into the model's folder; returns the file."""
    arrays: dict[str, NDArray[np.generic]] = {}
    for panel, table in tables.panels.items():
        arrays[f"{panel}.products"] = table.products.astype(np.float32)
        arrays[f"{panel}.weights"] = table.weights.astype(np.int32)
    report = json.dumps(tables.report, sort_keys=True)
    return LEARNED_TABLES.write(model, arrays, fingerprint=tables.fingerprint, report=report)


def load_learned_tables(model: Path, *, fingerprint: str, cells: int, codes: int) -> LearnedTables | None:
    """The tables beside a model, None where there are none; tables of another model, or damaged ones, are refused."""
    found = LEARNED_TABLES.read(model, fingerprint=fingerprint)
    if found is None:
        return None
    arrays, header = found
    path = Path(model) / FILE
    try:
        report = parse_json(header.get("report", "{}"))
    except ValueError:
        raise ModelError(f"{path}: its report cannot be read; {LEARNED_TABLES.way_out}") from None
    panels = {
        panel: _table(path, arrays, panel, cells=cells, codes=codes)
        for panel in PANELS
        if f"{panel}.products" in arrays
    }
    return LearnedTables(fingerprint, panels, report)


def _table(
    path: Path, arrays: Mapping[str, NDArray[np.generic]], panel: str, *, cells: int, codes: int
) -> LearnedTable:
    products, weights = arrays[f"{panel}.products"], arrays.get(f"{panel}.weights")
    fits = (
        weights is not None
        and products.shape == (codes, codes)
        and weights.shape == (cells,)
        and products.dtype == np.float32
        and weights.dtype == np.int32
    )
    if not fits or weights is None:
        raise ModelError(
            f"{path}: the {panel} table does not fit {codes} codes in {cells} cells; {LEARNED_TABLES.way_out}"
        )
    table = LearnedTable(products.astype(np.float32), weights.astype(np.int32))
    sound = np.isfinite(table.products).all() and table.products.min() >= 0 and table.weights.min() >= 0
    if not sound or not np.array_equal(table.products, table.products.T) or table.weights.sum() == 0:
        raise ModelError(f"{path}: the {panel} table is not symmetric and non-negative; {LEARNED_TABLES.way_out}")
    return table
