"""Search in a few lines of NumPy and Python: what every fast path must equal, ties included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.search import PANELS, Query, SearchEngine, SearchIndex
from diptych.search.tables import DistanceTable, Tables, panel_tables


@dataclass(frozen=True, eq=False)
class Archive:
    """Arrays that an index is built from."""

    grid: tuple[int, int]
    ids: Mapping[str, NDArray[np.integer[Any]]]
    volume_of_slice: NDArray[np.int64]
    patient_of_volume: NDArray[np.int64]
    lesion_free: NDArray[np.bool_]
    tables: Tables

    def index(self) -> SearchIndex:
        return SearchIndex.build(
            grid=self.grid,
            normal=self.ids["normal"],
            abnormal=self.ids["abnormal"],
            volume_of_slice=self.volume_of_slice,
            patient_of_volume=self.patient_of_volume,
            lesion_free=self.lesion_free,
            tables=self.tables,
        )

    def query(self, slice_: int, **options: Any) -> Query:
        grids = {panel: self.ids[panel][slice_].reshape(self.grid) for panel in PANELS}
        return Query(**(grids | options))


def make_archive(
    seed: int = 0, *, volumes: int = 12, longest: int = 9, grid: tuple[int, int] = (2, 3), codes: int = 7
) -> Archive:
    """Random ids from few codes, so that ties abound; volumes of different length, some of them empty."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, longest + 1, volumes)
    slices, cells = int(lengths.sum()), grid[0] * grid[1]
    codebook = rng.integers(-2, 3, (codes, 3)).astype(np.float64)
    binary = rng.random((codes, 5)) < 0.5
    tables = panel_tables(codebook, cells=cells, binary=binary)
    return Archive(
        grid,
        {panel: rng.integers(0, codes, (slices, cells)) for panel in PANELS},
        np.repeat(np.arange(volumes), lengths),
        rng.integers(0, max(1, volumes // 2), volumes),
        rng.random(slices) < 0.5,
        Tables(tables, tables),
    )


def oracle(archive: Archive, query: Query, engine: SearchEngine) -> list[tuple[int, float]]:
    """Slice and distance of each match; only the spread is the engine's own."""
    region = np.ones(archive.grid, bool) if query.region is None else query.region
    total = np.zeros(len(archive.volume_of_slice))
    for panel in PANELS if query.by == "both" else (query.by,):
        factor = 1.0
        if query.by == "both" and query.combine == "normalised":
            share = query.weight if panel == "normal" else 1 - query.weight
            factor = share / engine.spread(query, panel)
        table = archive.tables.panel(panel)[query.metric]
        total += factor * distances(getattr(query, panel)[region], archive.ids[panel][:, region.reshape(-1)], table)
    found: dict[int, tuple[float, int, int]] = {}
    for slice_, volume in enumerate(archive.volume_of_slice.tolist()):
        patient = int(archive.patient_of_volume[volume])
        group = patient if query.group == "patient" else volume
        if allowed(archive, query, slice_, volume, patient):
            found[group] = min(found.get(group, (np.inf, 0, 0)), (total[slice_], volume, slice_))
    return [(slice_, distance) for distance, _, slice_ in sorted(found.values())[: query.top]]


def distances(
    one: NDArray[np.integer[Any]], others: NDArray[np.integer[Any]], table: DistanceTable
) -> NDArray[np.float64]:
    sums = table.entries[one, others].sum(axis=1)
    if table.kind == "sum":
        return np.asarray(sums * table.unit)
    if table.kind == "root":
        return np.asarray(np.sqrt(sums * table.unit))
    own, other = table.entries[one, one].sum(), table.entries[others, others].sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        cosine = np.round(sums / np.sqrt(own.astype(float) * other) * 2**40) / 2**40
    cosine = np.where((own == 0) | (other == 0), np.where((own == 0) & (other == 0), 1.0, 0.0), cosine)
    return np.asarray(np.arccos(np.clip(cosine, -1, 1)))


def allowed(archive: Archive, query: Query, slice_: int, volume: int, patient: int) -> bool:
    where = query.where
    return (
        (where.volumes is None or bool(where.volumes[volume]))
        and (where.slices is None or bool(where.slices[slice_]))
        and patient not in where.exclude_patients
        and (not where.lesion_free or bool(archive.lesion_free[slice_]))
    )
