"""K×K tables from which every distance between two id grids is a sum over grid positions (section 3.2.3).

Knows codebooks and binary codes; nothing about archives or searching. Entries are whole numbers in a small `unit`,
so that sums are the same in any order: on any number of threads, pruned or not, alone or in a batch.

    euclidean   entries |e_i - e_j|²,  D_E = sqrt(sum)
    angular     entries e_i · e_j,     D_A = arccos(sum / (|q| |r|)); both zero: 0, one zero: π/2
    hamming     entries D_H(b_i, b_j), D_H = sum
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from diptych.errors import InputError
from diptych.hashing.binarise import round_dead, squared_distances

Kind = Literal["sum", "root", "angle"]


@dataclass(frozen=True, eq=False)
class DistanceTable:
    """Whole-number table for one codebook and one metric."""

    metric: str
    """Name under which queries ask for it."""
    kind: Kind
    """How a sum becomes a distance: as it is, by square root, or as an angle."""
    entries: NDArray[np.int32]
    """`[K, K]`, row = the query's code, column = the archive's code."""
    unit: float
    """What one step of an entry is worth."""
    weights: NDArray[np.int32] | None = None
    """How often the entries of each grid position count, `[P]`; once by default."""

    def weights_of(self, cells: int) -> NDArray[np.int64]:
        """How often each of `cells` positions counts, `[P]`."""
        return np.ones(cells, dtype=np.int64) if self.weights is None else self.weights.astype(np.int64)

    @property
    def codes(self) -> int:
        return len(self.entries)

    def distance(self, sums: ArrayLike, query_norm: ArrayLike = 0, slice_norm: ArrayLike = 0) -> NDArray[np.float64]:
        """Turn sums of entries into distances; the squared norms, in the same unit, matter to angles alone."""
        if self.kind == "angle":
            return np.asarray(np.arccos(cosine(sums, query_norm, slice_norm)))
        scaled = np.asarray(sums) * self.unit
        return np.asarray(np.sqrt(scaled) if self.kind == "root" else scaled, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Tables:
    """The tables of both codebooks, by metric."""

    normal: Mapping[str, DistanceTable]
    abnormal: Mapping[str, DistanceTable]

    def panel(self, name: str) -> Mapping[str, DistanceTable]:
        """The tables of the panel `normal` or `abnormal`."""
        return self.normal if name == "normal" else self.abnormal


def cosine(dots: ArrayLike, query_norm: ArrayLike, slice_norm: ArrayLike) -> NDArray[np.float64]:
    """Cosine from a dot product and two squared norms; 1 when both vectors are zero, 0 when one is.

    Rounded to 2⁻⁴⁰, so that angles which are equal by arithmetic are equal here, and order by cosine is order by angle.

    >>> cosine([4, 0, 0], [4, 0, 0], [4, 9, 0]).tolist()
    [1.0, 0.0, 1.0]
    """
    query = np.asarray(query_norm, dtype=np.int64)
    product = query * np.asarray(slice_norm, dtype=np.int64)
    both_zero = np.asarray(query == 0) & np.asarray(np.asarray(slice_norm) == 0)
    length = np.sqrt(np.maximum(product, 1).astype(np.float64))
    value = np.clip(np.where(product > 0, np.asarray(dots) / length, 0.0), -1.0, 1.0)
    return np.where(both_zero, 1.0, np.rint(value * 2.0**40) / 2.0**40)


def panel_tables(
    codebook: NDArray[np.floating], *, cells: int, binary: NDArray[np.bool_] | None = None
) -> dict[str, DistanceTable]:
    """All tables of one codebook `[K, D]` for grids of `cells` positions; `binary` `[K, E]` adds Hamming."""
    tables = [euclidean_table(codebook, cells=cells), angular_table(codebook, cells=cells)]
    if binary is not None:
        tables.append(hamming_table(binary))
    return {table.metric: table for table in tables}


def euclidean_table(codebook: NDArray[np.floating], *, cells: int) -> DistanceTable:
    """D_E between concatenated code vectors."""
    return table_from(squared_distances(round_dead(codebook)), cells=cells, metric="euclidean", kind="root")


def angular_table(codebook: NDArray[np.floating], *, cells: int) -> DistanceTable:
    """D_A between concatenated code vectors."""
    rounded = round_dead(codebook)
    return table_from(rounded @ rounded.T, cells=cells, metric="angular", kind="angle")


def hamming_table(binary: NDArray[np.bool_]) -> DistanceTable:
    """D_H between concatenated binary codes, from one bool row per code `[K, E]`."""
    bits = binary.astype(np.float32)
    differing = bits @ (1 - bits).T
    return DistanceTable("hamming", "sum", np.rint(differing + differing.T).astype(np.int32), 1.0)


def table_from(
    table: NDArray[np.floating],
    *,
    cells: int,
    metric: str = "given",
    kind: Kind = "sum",
    weights: NDArray[np.integer] | None = None,
) -> DistanceTable:
    """Round any real table to whole numbers, as finely as a sum over `cells` in 32 bits allows.

    At 64 cells one step is 3e-8 of the largest entry, finer than single precision. What is not zero stays so. With
    `weights` `[cells]`, small whole numbers, each position counts so often.
    """
    table = np.asarray(table, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] != table.shape[1] or not np.isfinite(table).all():
        raise InputError(f"table of shape {table.shape}: a distance table is square and finite; give [K, K] numbers")
    if kind != "angle" and table.min(initial=0.0) < 0:
        raise InputError(f"table with the entry {table.min():g}: distances are not negative; shift or square them")
    if weights is not None and (weights.shape != (cells,) or weights.min() < 0 or weights.sum() == 0):
        raise InputError(f"weights of shape {weights.shape}: one per cell, {cells}, none negative and not all zero")
    steps = (2**31 - 1) // (cells if weights is None else int(weights.sum()))
    unit = float(np.abs(table).max(initial=0.0)) / steps or 1.0
    entries = np.rint(table / unit)
    entries = np.where((entries == 0) & (table != 0), np.sign(table), entries)
    whole = None if weights is None else weights.astype(np.int32)
    return DistanceTable(metric, kind, np.clip(entries, -steps, steps).astype(np.int32), unit, whole)
