"""Single expectations of the engine: edges, refusals, what a match says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from diptych.errors import InputError, UsageError
from diptych.search import Filter, Query, SearchEngine, SearchIndex
from diptych.search import search_index as index_module
from diptych.search.panel_codes import pack
from diptych.search.prune import pruned_scan
from diptych.search.synthetic import synthetic_archive
from diptych.search.tables import Tables, panel_tables, table_from
from tests.search.oracle import Archive, make_archive, oracle


@pytest.fixture(scope="module")
def archive() -> Archive:
    return make_archive(3)


@pytest.fixture(scope="module")
def engine(archive: Archive) -> SearchEngine:
    return SearchEngine(archive.index(), archive.tables)


def test_every_slice_finds_itself_first(archive: Archive, engine: SearchEngine) -> None:
    for place in range(len(archive.volume_of_slice)):
        first = engine.search(archive.query(place, by="both"))[0]
        assert first.distance == 0
        for panel in ("normal", "abnormal"):
            assert (archive.ids[panel][first.slice] == archive.ids[panel][place]).all()


def test_an_empty_archive_has_no_matches() -> None:
    empty = make_archive(volumes=3, longest=0)
    assert SearchEngine(empty.index(), empty.tables).search(Query(normal=np.zeros((2, 3), int))) == []


def test_a_batch_over_an_empty_archive_has_no_matches() -> None:
    empty = make_archive(volumes=3, longest=0)
    queries = [Query(normal=np.zeros((2, 3), int))] * 9
    assert SearchEngine(empty.index(), empty.tables).search_batch(queries) == [[]] * 9


def test_one_slice_is_found() -> None:
    single = make_archive(0, volumes=1, longest=1)
    assert len(single.volume_of_slice) == 1
    found = SearchEngine(single.index(), single.tables).search(single.query(0, top=50))
    assert [match.slice for match in found] == [0]


def test_more_matches_than_volumes_gives_all_volumes(archive: Archive, engine: SearchEngine) -> None:
    assert len(engine.search(archive.query(0, top=999))) == len(np.unique(archive.volume_of_slice))


def test_one_match_per_patient(archive: Archive, engine: SearchEngine) -> None:
    patients = [match.patient for match in engine.search(archive.query(0, top=999, group="patient"))]
    assert len(set(patients)) == len(patients)


def test_a_filter_that_lets_nothing_through(archive: Archive, engine: SearchEngine) -> None:
    nobody = Filter(slices=np.zeros(len(archive.volume_of_slice), bool))
    assert engine.search(archive.query(0, where=nobody)) == []


def test_a_match_by_one_panel_still_compares_the_other(archive: Archive, engine: SearchEngine) -> None:
    match = engine.search(archive.query(0, by="normal"))[0]
    assert match.normal is not None
    assert match.abnormal is not None
    assert match.distance == match.normal.distance


def test_a_query_with_one_panel_is_enough(archive: Archive, engine: SearchEngine) -> None:
    match = engine.search(Query(normal=archive.ids["normal"][0].reshape(2, 3)))[0]
    assert match.abnormal is None


def test_weight_one_orders_as_the_normal_panel(archive: Archive, engine: SearchEngine) -> None:
    both = engine.search(archive.query(1, by="both", weight=1.0))
    assert [m.slice for m in both] == [m.slice for m in engine.search(archive.query(1, by="normal"))]


def test_paper_adds_raw_distances(archive: Archive, engine: SearchEngine) -> None:
    for match in engine.search(archive.query(2, by="both", combine="paper")):
        assert match.normal is not None
        assert match.abnormal is not None
        assert match.distance == pytest.approx(match.normal.distance + match.abnormal.distance)


def test_a_given_table_is_a_metric(archive: Archive) -> None:
    table = table_from(1.0 - np.eye(7), cells=6, metric="differing cells")
    tables = Tables({table.metric: table}, {table.metric: table})
    given = SearchEngine(archive.index(), tables)
    query = archive.query(0, metric="differing cells", top=99)
    expected = [(archive.ids["normal"][m.slice] != archive.ids["normal"][0]).sum() for m in given.search(query)]
    assert [m.distance for m in given.search(query)] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"normal": np.zeros((3, 2), int)}, r"shape \(3, 2\): this archive's grids are 2x3"),
        ({"normal": np.full((2, 3), 7)}, "codes 0…6"),
        ({"normal": None}, "needs the query's normal ids"),
        ({"metric": "cosine"}, "'cosine': this engine has angular, euclidean, hamming"),
        ({"by": "left"}, "anatomy, lesion or both"),
        ({"by": "both", "weight": 1.5}, "0…1"),
        ({"region": np.zeros((2, 3), bool)}, "at least one cell"),
        ({"region": np.ones((3, 2), bool)}, "2x3"),
        ({"top": 0}, "at least one"),
        ({"where": Filter(volumes=np.ones(2, bool))}, "allowed volumes"),
        ({"where": Filter(slices=np.ones(2, bool))}, "allowed slices"),
    ],
)
def test_a_query_that_cannot_be_is_refused(
    archive: Archive, engine: SearchEngine, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        engine.search(archive.query(0, **options))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"normal": np.zeros((4, 5), int)}, "index the archive again"),
        ({"normal": np.full((4, 6), 99)}, "id 99"),
        ({"lesion_free": np.zeros(3, bool)}, "3 lesion-free flags for 4 slices"),
        ({"volume_of_slice": np.array([0, 1, 0, 1])}, "order of their volumes"),
        ({"volume_of_slice": np.array([0, 1, 2, 5])}, "0…1"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(archive: Archive, change: dict[str, Any], message: str) -> None:
    arrays: dict[str, Any] = {
        "grid": (2, 3),
        "normal": np.zeros((4, 6), int),
        "abnormal": np.zeros((4, 6), int),
        "volume_of_slice": np.array([0, 0, 1, 1]),
        "patient_of_volume": np.array([0, 1]),
        "lesion_free": np.zeros(4, bool),
        "tables": archive.tables,
    }
    with pytest.raises(InputError, match=message):
        SearchIndex.build(**(arrays | change))


@pytest.mark.parametrize("byte_codes", [2, 3, 5])
@pytest.mark.parametrize("dearer", [0, 2])
def test_rare_codes_are_searched_exactly(monkeypatch: pytest.MonkeyPatch, byte_codes: int, dearer: int) -> None:
    archive = make_archive(5, codes=9, grid=(3, 5))
    monkeypatch.setattr("diptych.search.panel_codes.RARE_SHARE", 1.0)
    monkeypatch.setattr("diptych.search.changes.DEARER", dearer)
    monkeypatch.setattr(index_module, "pack", lambda ids, codes: pack(ids, codes=codes, byte_codes=byte_codes))
    engine = SearchEngine(archive.index(), archive.tables)
    assert len(engine.index.codes["normal"].rare_slice)
    queries = [archive.query(place, top=99, metric=metric) for place in range(9) for metric in ("euclidean", "angular")]
    for query, together in zip(queries, engine.search_batch(queries), strict=True):
        expected = [slice_ for slice_, _ in oracle(archive, query, engine)]
        assert [match.slice for match in engine.search(query)] == expected
        assert [match.slice for match in together] == expected


@pytest.mark.parametrize("codes", [40, 420, 700])
def test_packed_ids_unpack(codes: int) -> None:
    ids = np.random.default_rng(0).integers(0, codes, (900, 6))
    packed = pack(ids, codes=codes)
    assert packed.packed.dtype == (np.uint8 if codes <= 256 else np.uint16)
    assert (packed.ids(np.arange(900)) == ids).all()


@pytest.mark.parametrize("byte_codes", [3, 256])
def test_equal_slices_are_found_by_a_few_cells(byte_codes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diptych.search.panel_codes.RARE_SHARE", 1.0)
    ids = np.random.default_rng(0).integers(0, 4, (900, 6))
    packed, some = pack(ids, codes=4, byte_codes=byte_codes), np.arange(899, 3, -1)
    for wanted in (ids[7], ids[500], ids[3] + 10):
        assert np.array_equal(packed.equal(some, wanted), (ids[some] == wanted).all(axis=1))


def test_skewed_ids_take_one_byte_and_unpack() -> None:
    ids = (np.random.default_rng(0).random((20_000, 6)) ** 20 * 700).astype(np.int64)
    packed = pack(ids, codes=700)
    assert packed.packed.dtype == np.uint8
    assert 0 < len(packed.rare_slice) < ids.size / 16
    assert (packed.ids(np.arange(20_000)) == ids).all()


def test_two_byte_ids_are_searched_exactly() -> None:
    rng = np.random.default_rng(0)
    tables = panel_tables(rng.normal(size=(400, 4)), cells=6)
    ids = {panel: rng.integers(0, 400, (1500, 6)) for panel in ("normal", "abnormal")}
    archive = Archive((2, 3), ids, np.arange(1500) // 30, np.arange(50), rng.random(1500) < 0.5, Tables(tables, tables))
    engine = SearchEngine(archive.index(), archive.tables)
    assert engine.index.codes["normal"].packed.dtype == np.uint16
    query = archive.query(77)
    assert [m.slice for m in engine.search(query)] == [slice_ for slice_, _ in oracle(archive, query, engine)]


def test_pruning_is_chosen_where_it_pays_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diptych.search.prune.OVERHEAD", 0)
    made = synthetic_archive(155 * 160, codes=40, abnormal_codes=40, grid=(4, 3))
    tables = Tables(panel_tables(made.normal_codebook, cells=12), panel_tables(made.abnormal_codebook, cells=12))
    index = SearchIndex.build(
        grid=made.grid,
        normal=made.normal,
        abnormal=made.abnormal,
        volume_of_slice=made.volume_of_slice,
        patient_of_volume=np.arange(160),
        lesion_free=made.lesion_free,
        tables=tables,
    )
    pruned, plain = SearchEngine(index, tables), SearchEngine(index, tables, prune=False)
    query = Query(normal=made.normal[1000].reshape(4, 3))
    assert pruned_scan(pruned.score(query), pruned.select(query), pruned.pool).paid
    assert [m.slice for m in pruned.search(query)] == [m.slice for m in plain.search(query)]


def test_where_nothing_can_be_left_out_pruning_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diptych.search.prune.OVERHEAD", 0)
    everybody = make_archive(1, volumes=40, longest=60)
    engine = SearchEngine(everybody.index(), everybody.tables)
    assert len(engine.search(everybody.query(0, top=99))) == len(np.unique(everybody.volume_of_slice))
    assert not engine.habit.tries(("normal", "euclidean", True))


def test_a_restored_index_answers_alike(archive: Archive, engine: SearchEngine) -> None:
    again = SearchEngine(SearchIndex.restore(archive.index().arrays()), archive.tables)
    query = archive.query(4, by="both")
    assert [m.slice for m in again.search(query)] == [m.slice for m in engine.search(query)]
