"""Many queries in one pass over the archive.

Knows scores and selections. Queries go together when they search by the same single panel and metric, sums order
them, and no filter names slices; others are answered one by one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from diptych.search import kernels
from diptych.search.kernels import HUGE, QUERIES_PER_BATCH
from diptych.search.lookup import LookUp, Pool
from diptych.search.query import Query
from diptych.search.scan import Selection
from diptych.search.score import Score

__all__ = ["batch_scan", "batches"]

Prepared = tuple[Score, Selection]

SMALLEST_BATCH = 8
"""Fewer queries than this are quicker one by one."""


def batches(queries: Sequence[Query], prepared: Sequence[Prepared]) -> list[list[int]]:
    """Which queries to answer together, as lists of their places."""
    alike: dict[tuple[str, str], list[int]] = defaultdict(list)
    for place, (query, (score, selection)) in enumerate(zip(queries, prepared, strict=True)):
        if score.plain and selection.slices is None:
            alike[query.by, query.metric].append(place)
    cut = [
        members[at : at + QUERIES_PER_BATCH]
        for members in alike.values()
        for at in range(0, len(members), QUERIES_PER_BATCH)
    ]
    return [members for members in cut if len(members) >= SMALLEST_BATCH]


def batch_scan(prepared: Sequence[Prepared], pool: Pool) -> NDArray[np.int32]:
    """The best key of each volume for each query, `[V, Q]`."""
    look_ups = [score.terms[0].look_up for score, _ in prepared]
    selections = [selection for _, selection in prepared]
    codes = look_ups[0].codes
    starts, stops = selections[0].starts, selections[0].stops
    filled = np.flatnonzero(stops > starts)
    cells = codes.packed.shape[1]
    tables, places = _side_by_side([look_up.places for look_up in look_ups], cells)
    excess = _excess(look_ups) if len(codes.rare_slice) else np.zeros((0, 0, QUERIES_PER_BATCH), dtype=np.int32)
    minima = np.empty((len(filled), QUERIES_PER_BATCH), dtype=np.int32)

    def work(share: slice) -> None:
        kernels.batch_minima(
            codes.packed.reshape(-1),
            cells,
            tables,
            places,
            starts[filled[share]],
            stops[filled[share]],
            codes.rare_slice,
            codes.rare_cell,
            codes.rare_code,
            excess,
            minima[share],
        )

    pool.run(work, (stops - starts)[filled])
    best = np.full((len(starts), len(prepared)), HUGE, dtype=np.int32)
    best[filled] = minima[:, : len(prepared)]
    for query, selection in enumerate(selections):
        left_out = np.ones(len(starts), dtype=np.bool_)
        left_out[selection.volumes] = False
        best[left_out, query] = HUGE
    return best


def _side_by_side(tables: list[NDArray[np.int32]], cells: int) -> tuple[NDArray[np.int32], int]:
    """Put the queries' entries for one cell and place next to each other, `[P * A, Q]`, on cache lines of 64 bytes."""
    places = tables[0].shape[1] | 1
    size = cells * places * QUERIES_PER_BATCH
    room = np.zeros(size + 16, dtype=np.int32)
    first = (-room.ctypes.data % 64) // 4
    whole = room[first : first + size].reshape(cells, places, QUERIES_PER_BATCH)
    whole[: len(tables[0]), : tables[0].shape[1], : len(tables)] = np.stack(tables, axis=-1)
    return whole.reshape(-1, QUERIES_PER_BATCH), places


def _excess(look_ups: list[LookUp]) -> NDArray[np.int32]:
    excess = np.zeros((*look_ups[0].entries.shape, QUERIES_PER_BATCH), dtype=np.int32)
    excess[..., : len(look_ups)] = np.stack([look_up.excess for look_up in look_ups], axis=-1)
    return excess
