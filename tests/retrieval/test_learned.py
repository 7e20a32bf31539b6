"""Learned tables: what fitting finds on made-up codes whose meaning is known, and what loading refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from diptych.errors import InputError, ModelError
from diptych.evaluation.compare_metrics import Trial
from diptych.fitting.fit_data import LabelledSlices
from diptych.fitting.table_fit import FitSettings, code_contents, fit_table, small_labels
from diptych.metrics.learned_tables import FILE, LearnedTable, LearnedTables, load_learned_tables, save_learned_tables
from diptych.search import Query, SearchEngine
from diptych.search.tables import Tables, euclidean_table, table_from
from tests.search.oracle import make_archive

GRID, CODES = (4, 3), 12
QUICK = FitSettings(steps=60, queries=8, candidates=64)


def make_slices(patients: int = 12, per_patient: int = 8, seed: int = 0) -> LabelledSlices:
    """Codes 0-2 mean nothing, 3-5 label 1, 6-8 label 2, 9-11 label 3: three names for each thing.

    Lesions are rectangles; within a patient they grow and shrink.
    """
    rng = np.random.default_rng(seed)
    (h, w), scale = GRID, 4
    labels, volume = [], []
    for patient in range(patients):
        row, column, label = rng.integers(0, h - 1), rng.integers(0, w - 1), rng.integers(1, 4)
        for place in range(per_patient):
            cells = np.zeros(GRID, np.uint8)
            reach = 1 + min(place, per_patient - place) // 2
            cells[row : row + reach, column : column + reach] = label
            labels.append(cells)
            volume.append(patient)
    cells = np.stack(labels)
    ids = (3 * cells + rng.integers(0, 3, cells.shape)).reshape(len(cells), -1).astype(np.int64)
    large = cells.repeat(scale, axis=1).repeat(scale, axis=2)
    return LabelledSlices(
        GRID,
        {"normal": ids, "abnormal": ids},
        {"abnormal": large},
        np.array(volume),
        tuple(f"P{patient}" for patient in range(patients)),
    )


@pytest.fixture(scope="module")
def fitted() -> LearnedTable:
    return fit_table(make_slices(), "abnormal", codes=CODES, settings=QUICK)


def test_contents_are_the_mean_shares_of_labels() -> None:
    ids = np.array([[0, 1], [1, 1]])
    labels = np.zeros((2, 4, 8), np.uint8)
    labels[0, :, 4:] = 1  # the whole right cell of the first slice
    contents = code_contents(ids, labels, (1, 2), classes=1, codes=3, doubt=0.5)
    usual = 1 / 4
    expected = [(0.5 * usual) / 1.5, (1 + 0.5 * usual) / 3.5, usual]
    assert contents == pytest.approx(np.tile(np.array(expected)[:, None], (1, 16)))


def test_parts_of_a_cell_keep_their_place() -> None:
    labels = np.zeros((1, 8, 4), np.uint8)
    labels[0, 4:6, 3] = 1  # the second of two cells: top right corner
    contents = code_contents(np.array([[0, 1]]), labels, (2, 1), classes=1, codes=2, doubt=0.0)
    corner = np.zeros((4, 4))
    corner[:2, 3] = 1
    assert np.array_equal(contents[1].reshape(4, 4), corner)


def test_tables_are_symmetric_and_not_negative(fitted: LearnedTable) -> None:
    assert np.array_equal(fitted.products, fitted.products.T)
    assert fitted.products.min() >= 0
    assert fitted.weights.min() >= 1


def test_names_of_one_thing_become_alike(fitted: LearnedTable) -> None:
    products = fitted.products[3:, 3:]  # of codes that mean something
    cosine = products / np.sqrt(np.outer(np.diag(products), np.diag(products)))
    assert cosine[0, 1] > 0.9 > 0.5 > cosine[0, 4]


def test_learned_beats_euclid_where_codes_lie_at_random(fitted: LearnedTable) -> None:
    codebook = np.random.default_rng(1).standard_normal((CODES, 5))
    cells = GRID[0] * GRID[1]
    tables = {"euclidean": euclidean_table(codebook, cells=cells), "learned": fitted.distance_table()}
    scores = Trial(make_slices(seed=5), Tables(tables, tables)).scores(["euclidean", "learned"])["abnormal"]
    assert scores["learned"].of_oracle()[5] > scores["euclidean"].of_oracle()[5] + 0.1


def test_the_same_seed_gives_the_same_table(fitted: LearnedTable) -> None:
    again = fit_table(make_slices(), "abnormal", codes=CODES, settings=QUICK)
    assert np.array_equal(again.products, fitted.products)
    assert np.array_equal(again.weights, fitted.weights)


def test_one_patient_is_too_few() -> None:
    with pytest.raises(InputError, match="two or more"):
        fit_table(make_slices(patients=1), "abnormal", codes=CODES)


def test_small_labels_take_the_middle_of_non_square_maps() -> None:
    labels = np.arange(64 * 96, dtype=np.int64).reshape(1, 64, 96) % 250
    assert small_labels(labels.astype(np.uint8)).shape == (1, 32, 32)


def weighted_angles(query: NDArray[Any], ids: NDArray[Any], table: LearnedTable) -> NDArray[np.float64]:
    weights = table.weights.astype(np.float64)
    dot = (table.products[query, ids] * weights).sum(axis=1)
    norms = np.sqrt((np.diag(table.products)[ids] * weights).sum(axis=1))
    own = np.sqrt((np.diag(table.products)[query] * weights).sum())
    return np.asarray(np.arccos(np.clip(dot / (own * norms), -1, 1)))


def test_the_engine_counts_each_position_as_often_as_its_weight() -> None:
    archive, rng = make_archive(3), np.random.default_rng(0)
    contents = rng.random((7, 4)).astype(np.float32)
    table = LearnedTable(contents @ contents.T, rng.integers(1, 9, 6).astype(np.int32))
    tables = Tables({"learned": table.distance_table()}, {"learned": table.distance_table()})
    engine = SearchEngine(replace(archive, tables=tables).index(), tables)
    query = Query(normal=archive.ids["normal"][2].reshape(archive.grid), metric="learned", top=50)
    expected = weighted_angles(archive.ids["normal"][2], archive.ids["normal"], table)
    for match in engine.search(query):
        assert match.distance == pytest.approx(expected[match.slice], abs=1e-3)
        assert match.contributions.sum() == pytest.approx(match.distance)


def test_weighted_sums_are_exact() -> None:
    archive, weights = make_archive(4), np.array([1, 0, 5, 2, 1, 3])
    entries = np.random.default_rng(0).integers(0, 9, (7, 7)).astype(float)
    table = table_from(entries + entries.T, cells=6, weights=weights)
    engine = SearchEngine(archive.index(), Tables({"given": table}, {"given": table}))
    query = Query(abnormal=archive.ids["abnormal"][1].reshape(archive.grid), by="abnormal", metric="given", top=50)
    sums = (table.entries[archive.ids["abnormal"][1], archive.ids["abnormal"]] * weights).sum(axis=1)
    found = engine.search(query)
    assert [match.distance for match in found] == [sums[match.slice] * table.unit for match in found]


def saved(tmp_path: Path, table: LearnedTable) -> Path:
    return save_learned_tables(LearnedTables("a" * 64, {"abnormal": table}, {"patients": 12}), tmp_path)


def load(tmp_path: Path, *, fingerprint: str = "a" * 64, cells: int = 12, codes: int = CODES) -> LearnedTables | None:
    return load_learned_tables(tmp_path, fingerprint=fingerprint, cells=cells, codes=codes)


def test_tables_come_back_as_saved(tmp_path: Path, fitted: LearnedTable) -> None:
    saved(tmp_path, fitted)
    found = load(tmp_path)
    assert found is not None
    assert found.panels.keys() == {"abnormal"}
    assert found.report == {"patients": 12}
    assert np.array_equal(found.panels["abnormal"].products, fitted.products)


def test_a_model_without_tables_has_none(tmp_path: Path) -> None:
    assert load(tmp_path) is None


def test_tables_of_another_model_are_refused(tmp_path: Path, fitted: LearnedTable) -> None:
    saved(tmp_path, fitted)
    with pytest.raises(ModelError, match="was made for model aaaaaaaaaaaa, this is bbbbbbbbbbbb"):
        load(tmp_path, fingerprint="b" * 64)


def test_tables_of_another_shape_are_refused(tmp_path: Path, fitted: LearnedTable) -> None:
    saved(tmp_path, fitted)
    with pytest.raises(ModelError, match="does not fit 13 codes"):
        load(tmp_path, codes=13)


def test_a_file_cut_short_is_refused(tmp_path: Path, fitted: LearnedTable) -> None:
    path = saved(tmp_path, fitted)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ModelError, match="cannot be read"):
        load(tmp_path)


def test_other_safetensors_are_refused(tmp_path: Path) -> None:
    save_file({"weights": np.zeros(3)}, tmp_path / FILE)
    with pytest.raises(ModelError, match="not learned tables"):
        load(tmp_path)


def test_a_lopsided_table_is_refused(tmp_path: Path, fitted: LearnedTable) -> None:
    lopsided = fitted.products.copy()
    lopsided[0, 1] += 1
    path = saved(tmp_path, replace(fitted, products=lopsided))
    assert set(load_file(path)) == {"abnormal.products", "abnormal.weights"}
    with pytest.raises(ModelError, match="not symmetric"):
        load(tmp_path)
