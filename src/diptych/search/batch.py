"""Many queries in one pass over the archive.

Knows scores and selections. Queries go together when they search by the same single panel and metric, sums order
them, and no filter names slices; others are answered one by one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.compiling import compiled, compiled_inline
from diptych.search.kernels import HUGE
from diptych.search.lookup import LookUp
from diptych.search.pool import Pool
from diptych.search.query import Query
from diptych.search.scan import Selection
from diptych.search.score import Score

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


QUERIES_PER_BATCH = 64
"""Queries that one pass over the archive serves."""


@compiled_inline
def lower(best: Sums, sums: Sums) -> None:
    """Keep the smaller of two sums for every query."""
    for q in range(QUERIES_PER_BATCH):
        best[q] = min(best[q], sums[q])


@compiled_inline
def lower_with_rare(
    best: Sums, sums: Sums, total: Sums, rare: Any, until: Any, cells: Ints, codes: Ints, excess: Sums
) -> None:
    """The same for a row with rare cells, once what they add is known."""
    total[:] = sums
    for place in range(rare, until):
        entries = excess[cells[place], codes[place]]
        for q in range(QUERIES_PER_BATCH):
            total[q] += entries[q]
    lower(best, total)


@compiled
def change_batch_minima(
    rows: Ints,
    places: Ints,
    slots: Ints,
    firsts: Ints,
    starts: Ints,
    offsets: Ints,
    tables: Sums,
    begins: Ints,
    ends: Ints,
    rare_slice: Ints,
    rare_cell: Ints,
    rare_code: Ints,
    excess: Sums,
    minima: Sums,
) -> None:
    """The smallest row sums in each range of runs for many queries at once, into `minima` `[ranges, queries]`."""
    steps = np.zeros((256, QUERIES_PER_BATCH), np.int32)
    sums = np.zeros(QUERIES_PER_BATCH, np.int32)
    total = np.zeros(QUERIES_PER_BATCH, np.int32)
    best = np.zeros(QUERIES_PER_BATCH, np.int32)
    for r in range(len(begins)):
        best[:] = HUGE
        rare = np.searchsorted(rare_slice, starts[begins[r]]) if len(rare_slice) else 0
        for run in range(begins[r], ends[r]):
            at, stop = np.uint64(firsts[run]), np.uint64(firsts[run + 1])
            before = tables[np.uint64(0)]
            while at < stop:
                entries, step = tables[np.uint64(places[at])], steps[np.uint64(slots[at])]
                for q in range(QUERIES_PER_BATCH):
                    step[q] = np.int32(step[q] + entries[q] - before[q])
                before = entries
                at += np.uint64(1)
            sums[:] = 0
            for p in range(len(offsets) - 1):
                entries = tables[np.uint64(offsets[p] + rows[run, p])]
                for q in range(QUERIES_PER_BATCH):
                    sums[q] += entries[q]
            steps[0] = 0
            for slot in range(np.uint64(starts[run + 1] - starts[run])):
                step = steps[slot]
                for q in range(QUERIES_PER_BATCH):
                    sums[q] += step[q]
                    step[q] = 0
                until = rare
                while until < len(rare_slice) and rare_slice[until] == starts[run] + np.int64(slot):
                    until += 1
                if until > rare:
                    lower_with_rare(best, sums, total, rare, until, rare_cell, rare_code, excess)
                    rare = until
                else:
                    lower(best, sums)
        minima[r] = best


@compiled_inline
def exchange(sums: Sums, tables: Sums, places: Any, ids: Ints, first: Any, cells: Any, changed: Any) -> None:
    """Put the entries of changed cells in the place of the previous row's, two cells per turn."""
    k = 0
    while k + 1 < len(changed):
        p, o = changed[k], changed[k + 1]
        a, b = tables[p * places + np.uint64(ids[first + p])], tables[p * places + np.uint64(ids[first + p - cells])]
        c, d = tables[o * places + np.uint64(ids[first + o])], tables[o * places + np.uint64(ids[first + o - cells])]
        for q in range(QUERIES_PER_BATCH):
            sums[q] += np.int32(a[q] - b[q] + c[q] - d[q])
        k += 2
    if k < len(changed):
        p = changed[k]
        a, b = tables[p * places + np.uint64(ids[first + p])], tables[p * places + np.uint64(ids[first + p - cells])]
        for q in range(QUERIES_PER_BATCH):
            sums[q] += np.int32(a[q] - b[q])


@compiled
def batch_minima(
    ids: Ints,
    cells: int,
    tables: Sums,
    places: int,
    starts: Ints,
    stops: Ints,
    rare_slice: Ints,
    rare_cell: Ints,
    rare_code: Ints,
    excess: Sums,
    minima: Sums,
) -> None:
    """The smallest row sums of each range for many queries at once, into `minima` `[ranges, queries]`.

    `tables` `[cells * places, queries]` holds all queries' entries for one cell and id side by side. Neighbouring
    slices share most of their ids, so only cells that changed are taken out of the sums and put in again; whole
    numbers make that exact.
    """
    width, step = np.uint64(cells), np.uint64(places)
    sums = np.zeros(QUERIES_PER_BATCH, np.int32)
    total = np.zeros(QUERIES_PER_BATCH, np.int32)
    best = np.zeros(QUERIES_PER_BATCH, np.int32)
    changed = np.zeros(cells + 1, np.uint64)
    for r in range(len(starts)):
        best[:] = HUGE
        rare = np.searchsorted(rare_slice, starts[r]) if len(rare_slice) else 0
        for row in range(starts[r], stops[r]):
            first = np.uint64(row) * width
            if row == starts[r]:
                sums[:] = 0
                for p in range(width):
                    entries = tables[p * step + np.uint64(ids[first + p])]
                    for q in range(QUERIES_PER_BATCH):
                        sums[q] += entries[q]
            else:
                count = np.uint64(0)
                for p in range(width):
                    changed[count] = p
                    count += np.uint64(ids[first + p] != ids[first + p - width])
                exchange(sums, tables, step, ids, first, width, changed[:count])
            until = rare
            while until < len(rare_slice) and rare_slice[until] == row:
                until += 1
            if until > rare:
                lower_with_rare(best, sums, total, rare, until, rare_cell, rare_code, excess)
                rare = until
            else:
                lower(best, sums)
        minima[r] = best
