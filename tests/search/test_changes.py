"""Scans of changes equal a plain sum over cells."""

from __future__ import annotations

import numpy as np
import pytest

from diptych.search import changes as module
from diptych.search.changes import list_changes
from diptych.search.chunks import LENGTH, group_codes, mark_chunks
from diptych.search.lookup import LookUp
from diptych.search.panel_codes import PanelCodes, pack
from diptych.search.pool import Pool
from diptych.search.tables import table_from

CELLS, CODES = 15, 9


def slowly_changing(slices: int, *, cells: int = CELLS, codes: int = CODES) -> np.ndarray:
    """Ids `[N, P]` of which about one in eight changes from slice to slice."""
    rng = np.random.default_rng(0)
    ids = rng.integers(0, codes, (slices, cells))
    for row in range(1, slices):
        kept = rng.random(cells) < 0.875
        ids[row, kept] = ids[row - 1, kept]
    return ids


def look_up(ids: np.ndarray, codes: PanelCodes, volume_starts: np.ndarray) -> LookUp:
    entries = np.random.default_rng(1).integers(0, 1000, (ids.shape[1], CODES)).astype(np.int32)
    groups = group_codes(ids, table_from(1.0 - np.eye(CODES), cells=ids.shape[1]))
    return LookUp(entries, codes, mark_chunks(ids, volume_starts, groups, codes.packed))


@pytest.mark.parametrize("byte_codes", [256, 8])
def test_sums_and_minima_are_those_of_rows(byte_codes: int) -> None:
    ids = slowly_changing(300)
    volumes = np.array([0, 100, 100, 201, 300])
    looked = look_up(ids, pack(ids, codes=CODES, byte_codes=byte_codes), volumes)
    expected = looked.entries[np.arange(CELLS), ids].sum(axis=1)
    assert looked.chunks.changes
    starts, stops = np.array([0, 201]), np.array([100, 300])
    sums = looked.sums(starts, stops, Pool(1))
    np.testing.assert_array_equal(sums, np.concatenate([expected[:100], expected[201:]]))
    minima = looked.minima(starts, stops, Pool(1))
    np.testing.assert_array_equal(minima, [expected[:100].min(), expected[201:].min()])


def test_a_range_that_cuts_a_run_is_scanned_by_rows() -> None:
    ids = slowly_changing(100)
    looked = look_up(ids, pack(ids, codes=CODES), np.array([0, 100]))
    starts, stops = np.array([3]), np.array([LENGTH + 5])
    assert looked.chunks.runs_between(starts, stops) is None
    expected = looked.entries[np.arange(CELLS), ids].sum(axis=1)[3 : LENGTH + 5]
    np.testing.assert_array_equal(looked.sums(starts, stops, Pool(1)), expected)


def test_changes_are_listed_only_where_that_pays() -> None:
    starts = np.array([0, 32, 64], np.int32)
    rng = np.random.default_rng(0)
    assert not list_changes(rng.integers(0, 200, (64, 8)).astype(np.uint8), 8, starts)
    assert list_changes(np.repeat(rng.integers(0, 200, (4, 8)), 16, axis=0).astype(np.uint8), 8, starts)


def test_two_byte_ids_and_huge_tables_have_no_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DEARER", 0)
    starts = np.array([0, 4], np.int32)
    assert not list_changes(np.zeros((4, 8), np.uint16), 8, starts)
    assert not list_changes(np.full((4, 264), 255, np.uint8), 264, starts)
    assert list_changes(np.full((4, 256), 255, np.uint8), 256, starts)
