"""Bounds on runs are never too high, and what is left out is decided by them alone."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from diptych.search.bounds import admitted
from diptych.search.chunks import LENGTH, PART, Chunks, group_codes, mark_chunks, run_starts
from diptych.search.lookup import LookUp
from diptych.search.panel_codes import pack
from diptych.search.pool import Pool
from diptych.search.tables import table_from

CELLS, CODES = 35, 30
VOLUMES = np.array([0, 100, 100, 201, 500])


def sparse_ids() -> NDArray[np.int64]:
    """Mostly code 0; elsewhere so many sets of codes that few have symbols of their own."""
    rng = np.random.default_rng(0)
    return np.where(rng.random((500, CELLS)) < 0.9, 0, rng.integers(0, CODES, (500, CELLS)))


def chunks_of(ids: NDArray[np.int64]) -> Chunks:
    groups = group_codes(ids, table_from(1.0 - np.eye(CODES), cells=CELLS))
    return mark_chunks(ids, VOLUMES, groups, pack(ids, codes=CODES).packed)


@pytest.mark.parametrize("lesion", [0, 4, CELLS])
@pytest.mark.parametrize("level", ["runs", "parts"])
def test_no_slice_undercuts_the_bound_of_its_run(lesion: int, level: str) -> None:
    ids = sparse_ids()
    entries = np.random.default_rng(1).integers(-50, 1000, (CELLS, CODES)).astype(np.int32)
    entries[lesion:] = np.where(np.arange(CODES) == 0, 3, entries[lesion:] % 5 + 3)  # hardly tells anything
    look_up = LookUp(entries, pack(ids, codes=CODES), chunks_of(ids))
    starts = look_up.chunks.level(level).starts  # type: ignore[arg-type]
    smallest = np.minimum.reduceat(entries[np.arange(CELLS), ids].sum(axis=1), starts[:-1])
    bounds = look_up.bounds(level, np.arange(len(smallest)), Pool(1))  # type: ignore[arg-type]
    assert (bounds <= smallest).all()


def test_few_positions_are_looked_at_where_few_tell() -> None:
    ids = sparse_ids()
    entries = np.zeros((CELLS, CODES), np.int32)
    entries[3:5, 0] = 100
    look_up = LookUp(entries, pack(ids, codes=CODES), chunks_of(ids))
    assert set(look_up._run_bounds.cells.tolist()) == {3, 4}


def test_parts_make_up_runs() -> None:
    chunks = chunks_of(sparse_ids())
    np.testing.assert_array_equal(chunks.part_starts[chunks.first_of_run], chunks.starts)
    np.testing.assert_array_equal(chunks.part_starts, run_starts(VOLUMES, PART))
    assert LENGTH % PART == 0
    assert len(chunks.volumes_of_parts) == len(chunks.part_symbols)


def test_equal_bounds_are_settled_by_volume() -> None:
    runs, volumes = np.arange(4), np.array([0, 1, 2, 3], np.int32)
    bounds = np.array([7, 5, 5, 4], np.int32)
    assert admitted(runs, bounds, volumes, 5, 1).tolist() == [1, 3]
