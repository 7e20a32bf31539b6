"""Anywhere: each mode equals its twin in a few lines; a moved, mirrored or scattered lesion finds its like first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from diptych.archive import VolumeRecord
from diptych.errors import UsageError
from diptych.metrics.histogram import code_distances
from diptych.model import FeatureDecomposingNetwork
from diptych.retrieval import Archive, EncodedSlice, Question, region_of_cells
from diptych.retrieval.anywhere import place_lesion
from tests.retrieval.making import make_record, write_archive

LESION = region_of_cells([(1, 2), (1, 3), (2, 3)], grid=(4, 8))


def distance(archive: Archive, one: NDArray[np.integer], other: NDArray[np.integer]) -> float:
    book = archive.network.abnormal_quantizer.codebook.numpy().astype(np.float64)
    return float(np.linalg.norm(book[one] - book[other]))


def energy(pairs: NDArray[np.float64], one: NDArray[np.integer], other: NDArray[np.integer]) -> float:
    """By the definition, cell by cell."""
    one, other = one.reshape(-1), other.reshape(-1)
    return float(
        2 * pairs[np.ix_(one, other)].mean() - pairs[np.ix_(one, one)].mean() - pairs[np.ix_(other, other)].mean()
    )


def best_per_patient(found: list[tuple[float, str, str, int]], own: frozenset[str]) -> list[tuple[str, int]]:
    best: dict[str, tuple[str, int]] = {}
    for _, patient, key, z in sorted(found):
        if patient not in own:
            best.setdefault(patient, (key, z))
    return list(best.values())


@pytest.mark.parametrize("inside", [False, True])
def test_shifted_equals_brute_force_over_all_places(
    archive: Archive, records: list[VolumeRecord], inside: bool
) -> None:
    subject = archive.stored("V02", z_index=6)
    quiet = archive.catalogue.quiet_ids
    found = []
    for record in records:
        for z, grid in zip(record.z_index.tolist(), record.abnormal_ids, strict=True):
            for one in place_lesion(subject.abnormal_ids, LESION, quiet):
                cells = one.cells if inside else np.ones_like(LESION)
                info = record.info
                found.append((distance(archive, one.ids[cells], grid[cells]), info.patient_key, info.volume_key, z))
    question = Question(by="abnormal", anywhere="shifted", region=LESION, inside_lesion=inside)
    matches = archive.query(subject, question).matches
    assert [(match.volume.volume_key, match.z_index) for match in matches] == best_per_patient(found, subject.patients)


def test_the_lesion_takes_every_place_on_the_grid_and_its_own_first() -> None:
    ids = np.arange(32).reshape(4, 8)
    places = list(place_lesion(ids, LESION, np.full((4, 8), 99)))
    assert np.array_equal(places[0].ids, ids)
    assert {(one.rows, one.columns) for one in places} == {(r, c) for r in (-1, 0, 1) for c in range(-2, 5)}
    assert all(set(one.ids[one.cells]) == {10, 11, 19} for one in places)
    assert all(np.count_nonzero(one.ids == 99) + np.count_nonzero(one.cells & LESION) == 3 for one in places)


def test_histogram_equals_brute_force(archive: Archive, records: list[VolumeRecord]) -> None:
    subject = archive.stored("V05", z_index=9)
    for metric in ("euclidean", "angular"):
        pairs = code_distances(archive.tables.abnormal[metric])
        found = [
            (energy(pairs, subject.abnormal_ids, grid), record.info.patient_key, record.info.volume_key, z)
            for record in records
            for z, grid in zip(record.z_index.tolist(), record.abnormal_ids, strict=True)
        ]
        answer = archive.query(subject, Question(by="abnormal", anywhere="histogram", metric=metric))
        keys = [(match.volume.volume_key, match.z_index) for match in answer.matches]
        assert keys == best_per_patient(found, subject.patients)
        assert answer.matches[0].distance == pytest.approx(min(found, key=lambda f: (f[1] == "P02", f))[0], rel=1e-4)


def test_histogram_distance_between_codes_is_the_metrics_own(archive: Archive) -> None:
    book = archive.network.abnormal_quantizer.codebook.numpy().astype(np.float64)
    expected = np.linalg.norm(book[:, None] - book[None], axis=2)
    assert code_distances(archive.tables.abnormal["euclidean"]) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("anywhere", ["shifted", "histogram"])
def test_contributions_add_up(archive: Archive, anywhere: str) -> None:
    question = Question(by="abnormal", anywhere=anywhere, region=LESION)  # type: ignore[arg-type]
    for match in archive.query(archive.stored("V04", z_index=8), question).matches:
        assert match.contributions.sum() == pytest.approx(match.distance, rel=1e-12)


@pytest.fixture
def lonely(network: FeatureDecomposingNetwork, tmp_path: Path) -> tuple[Archive, EncodedSlice]:
    """Slices that are all quiet but for one lesion each; V07's is the query's, four columns and one row away."""
    rng = np.random.default_rng(5)
    records = []
    for number in range(8):
        record = make_record(number)
        ids = np.zeros_like(record.abnormal_ids)
        ids[1:3, 0:2, 0:2] = rng.integers(1, 20, size=(2, 2))
        records.append(replace(record, abnormal_ids=ids))
    query = np.zeros((4, 8), dtype=np.uint8)
    query[LESION] = (4, 9, 14)
    records[7].abnormal_ids[5] = np.roll(query, (1, 4), axis=(0, 1))
    archive = Archive.open(write_archive(tmp_path / "L", network, records), model=network)
    return archive, EncodedSlice("query", records[0].normal_ids[0], query, frozenset({"P00"}))


@pytest.mark.parametrize("inside", [False, True])
def test_a_moved_lesion_finds_its_twin_first(lonely: tuple[Archive, EncodedSlice], inside: bool) -> None:
    archive, subject = lonely
    question = Question(by="abnormal", anywhere="shifted", region=LESION, inside_lesion=inside)
    first = archive.query(subject, question).matches[0]
    assert first.placed is not None
    assert (first.volume.volume_key, first.z_index, first.distance) == ("V07", 8, 0.0)
    assert (first.placed.rows, first.placed.columns, first.placed.mirrored) == (1, 4, False)


def test_a_histogram_finds_the_same_codes_in_any_order(lonely: tuple[Archive, EncodedSlice]) -> None:
    archive, subject = lonely
    scattered = np.random.default_rng(0).permutation(subject.abnormal_ids.reshape(-1)).reshape(4, 8)
    question = Question(by="abnormal", anywhere="histogram")
    first = archive.query(replace(subject, abnormal_ids=scattered), question).matches[0]
    assert (first.volume.volume_key, first.z_index) == ("V07", 8)
    assert first.distance == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("anywhere", ["mirrored", "both"])
def test_a_mirrored_image_finds_its_twin_first(
    network: FeatureDecomposingNetwork, tmp_path: Path, anywhere: str
) -> None:
    rng = np.random.default_rng(1)
    image = rng.standard_normal((4, 32, 64)).astype(np.float32)
    records = [make_record(number) for number in range(8)]
    archive = Archive.open(write_archive(tmp_path / "first", network, records), model=network)
    _, abnormal = archive.encoder.encode(image[None, :, :, ::-1])
    records[6].abnormal_ids[2] = abnormal[0]
    archive = Archive.open(write_archive(tmp_path / "second", network, records), model=network)
    normal_ids, abnormal_ids = archive.encoder.encode(image[None])
    subject = EncodedSlice("query", normal_ids[0], abnormal_ids[0], frozenset(), image=image)
    question = Question(by="abnormal", anywhere=anywhere, region=LESION)  # type: ignore[arg-type]
    first = archive.query(subject, question).matches[0]
    assert (first.volume.volume_key, first.z_index, first.distance) == ("V06", 5, 0.0)
    assert first.placed is not None
    assert first.placed.mirrored


def test_only_a_lesion_can_be_looked_for_anywhere(archive: Archive) -> None:
    with pytest.raises(UsageError, match="search by lesion"):
        archive.query(archive.stored("V00", z_index=4), Question(by="both", anywhere="shifted"))
    with pytest.raises(UsageError, match="anywhere 'upside down'"):
        archive.query(archive.stored("V00", z_index=4), Question(by="abnormal", anywhere="upside down"))  # type: ignore[arg-type]
