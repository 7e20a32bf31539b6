"""Many queries in one pass over the archive.

Knows scores and selections. Queries go together when they search by the same single panel and metric, sums order
them, and no filter names slices; others are answered one by one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from diptych.search.batch_kernels import QUERIES_PER_BATCH, batch_minima, change_batch_minima
from diptych.search.kernels import HUGE
from diptych.search.lookup import LookUp
from diptych.search.pool import Pool
from diptych.search.query import Query
from diptych.search.scan import Selection
from diptych.search.score import Score

__all__ = ["batch_scan", "batches"]

Prepared = tuple[Score, Selection]
Ints = NDArray[np.integer]
Sums = NDArray[np.int32]

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
    starts, stops = selections[0].starts, selections[0].stops
    filled = np.flatnonzero(stops > starts)
    minima = np.empty((len(filled), QUERIES_PER_BATCH), dtype=np.int32)
    scan = _change_scan if look_ups[0].chunks.changes else _row_scan
    scan(look_ups, starts[filled], stops[filled], minima, pool)
    best = np.full((len(starts), len(prepared)), HUGE, dtype=np.int32)
    best[filled] = minima[:, : len(prepared)]
    for query, selection in enumerate(selections):
        left_out = np.ones(len(starts), dtype=np.bool_)
        left_out[selection.volumes] = False
        best[left_out, query] = HUGE
    return best


def _change_scan(look_ups: list[LookUp], starts: Ints, stops: Ints, minima: Sums, pool: Pool) -> None:
    """The smallest sums of each range, from what changes within it."""
    codes, chunks = look_ups[0].codes, look_ups[0].chunks
    changes, runs = chunks.changes, chunks.runs_between(starts, stops)
    assert runs is not None
    tables = _side_by_side([changes.flat_table(look_up.places) for look_up in look_ups])
    rare = codes.rare_slice, codes.rare_cell, codes.rare_code, _excess(look_ups)

    def work(share: slice) -> None:
        change_batch_minima(
            changes.rows,
            changes.places,
            changes.slots,
            changes.firsts,
            chunks.starts,
            changes.offsets,
            tables,
            runs[0][share],
            runs[1][share],
            *rare,
            minima[share],
        )

    pool.run(work, stops - starts)


def _row_scan(look_ups: list[LookUp], starts: Ints, stops: Ints, minima: Sums, pool: Pool) -> None:
    """The smallest sums of each range, from its rows."""
    codes = look_ups[0].codes
    cells, places = codes.packed.shape[1], codes.alphabet.shape[1] | 1  # odd: a power of two would alias in the cache
    tables = _side_by_side([_padded(look_up.places, cells, places) for look_up in look_ups])
    rare = codes.rare_slice, codes.rare_cell, codes.rare_code, _excess(look_ups)

    def work(share: slice) -> None:
        ids = codes.packed.reshape(-1)
        batch_minima(ids, cells, tables, places, starts[share], stops[share], *rare, minima[share])

    pool.run(work, stops - starts)


def _padded(table: Sums, cells: int, places: int) -> Sums:
    """A table `[P, A]` filled up with zeros, flat."""
    whole = np.zeros((cells, places), dtype=np.int32)
    whole[: table.shape[0], : table.shape[1]] = table
    return whole.reshape(-1)


def _side_by_side(tables: list[Sums]) -> Sums:
    """Put the queries' entries for one place next to each other, `[places, Q]`, on cache lines of 64 bytes."""
    size = len(tables[0]) * QUERIES_PER_BATCH
    room = np.zeros(size + 16, dtype=np.int32)
    first = (-room.ctypes.data % 64) // 4
    whole = room[first : first + size].reshape(-1, QUERIES_PER_BATCH)
    whole[:, : len(tables)] = np.stack(tables, axis=-1)
    return whole


def _excess(look_ups: list[LookUp]) -> Sums:
    """What rare codes cost beyond the cheapest, `[P, K, Q]`; nothing where there are none."""
    if not len(look_ups[0].codes.rare_slice):
        return np.zeros((0, 0, QUERIES_PER_BATCH), dtype=np.int32)
    excess = np.zeros((*look_ups[0].entries.shape, QUERIES_PER_BATCH), dtype=np.int32)
    excess[..., : len(look_ups)] = np.stack([look_up.excess for look_up in look_ups], axis=-1)
    return excess
