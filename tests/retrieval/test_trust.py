"""Trust: numbers against their definition, and warnings when a query is like nothing in the archive."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from diptych.archive import VolumeRecord
from diptych.model import FeatureDecomposingNetwork
from diptych.retrieval import Archive, EncodedSlice
from diptych.search import SearchEngine
from tests.archive.patients import write_patient
from tests.retrieval.making import make_record, write_archive


def test_isolation_is_relative_to_the_archives_median(archive: Archive, records: list[VolumeRecord]) -> None:
    subject = archive.stored("V03", z_index=6)
    book = archive.network.normal_quantizer.codebook.numpy().astype(np.float64)

    def nearest(ids: NDArray[np.integer], patient: str) -> float:
        others = [r.normal_ids for r in records if r.info.patient_key != patient]
        return min(float(np.linalg.norm(book[ids] - book[grid])) for grids in others for grid in grids)

    everything = [
        (grid, r.info.patient_key)
        for r in records
        for grid, area in zip(r.normal_ids, r.lesion_area, strict=True)
        if area > 0
    ]
    assert archive.lesion_cells(subject).any()
    places = np.unique(np.linspace(0, len(everything) - 1, 48).round().astype(int))
    usual = np.median([nearest(*everything[place]) for place in places])
    assert archive.trust(subject).normal_isolation == pytest.approx(nearest(subject.normal_ids, "P01") / usual, 1e-5)


def test_rare_codes_are_counted_among_other_patients(archive: Archive, records: list[VolumeRecord]) -> None:
    subject = archive.stored("V03", z_index=6)
    rare = []
    for panel in ("normal_ids", "abnormal_ids"):
        others = np.concatenate([getattr(r, panel) for r in records if r.info.patient_key != "P01"])
        rare.append((others == getattr(subject, panel)).mean(axis=0) < 0.001)
    assert archive.trust(subject).rare_codes == pytest.approx(np.mean(rare))


def test_a_query_unlike_the_archive_is_said(network: FeatureDecomposingNetwork, tmp_path: Path) -> None:
    records = [make_record(number) for number in range(6)]
    calm = [replace(r, normal_ids=r.normal_ids % 2, abnormal_ids=r.abnormal_ids % 2) for r in records]
    archive = Archive.open(write_archive(tmp_path / "A", network, calm), model=network)
    strange = EncodedSlice("strange", np.full((4, 8), 9), np.full((4, 8), 11), frozenset())
    warnings = archive.trust(strange).warnings
    assert [word for text in warnings for word in ("normal", "abnormal", "hardly ever") if f" {word} " in text] == [
        "normal",
        "abnormal",
        "hardly ever",
    ]
    assert archive.trust(archive.stored("V00", z_index=5)).warnings == ()


def test_quantisation_error_needs_pixels(archive: Archive, tmp_path: Path) -> None:
    folder = write_patient(tmp_path, "New-1", seed=3)
    subject = archive.encode(folder, z_index=4)
    found = archive.trust(subject).quantisation_error
    assert found is not None
    assert subject.image is not None
    whole = archive.network.decompose(torch.from_numpy(subject.image[None]))
    book = archive.network.normal_quantizer.codebook
    normal = float(whole.normal_error.mean() / book.var(dim=0).sum())
    book = archive.network.abnormal_quantizer.codebook
    assert found == pytest.approx((normal + float(whole.abnormal_error.mean() / book.var(dim=0).sum())) / 2)
    assert archive.trust(archive.stored("V00", z_index=4)).quantisation_error is None


def test_one_patient_has_no_neighbours(network: FeatureDecomposingNetwork, tmp_path: Path) -> None:
    archive = Archive.open(write_archive(tmp_path / "A", network, [make_record(0), make_record(1)]), model=network)
    assert archive.trust(archive.stored("V00", z_index=5)).normal_isolation is None


def test_noise_in_place_of_a_brain_is_said(archive: Archive, tmp_path: Path) -> None:
    warnings = archive.encode(write_patient(tmp_path, "Noise-1"), z_index=4).warnings
    assert any("do not look like" in warning for warning in warnings)


def test_what_is_usual_is_worked_out_once_for_all_processes(
    network: FeatureDecomposingNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_archive(tmp_path / "A", network, [make_record(number) for number in range(6)])
    first = Archive.open(path, model=network)
    trust = first.trust(first.stored("V00", z_index=5))
    second = Archive.open(path, model=network)
    monkeypatch.setattr(SearchEngine, "search_batch", None)
    assert second.trust(second.stored("V00", z_index=5)) == trust


def test_what_was_usual_in_another_version_is_not_believed(network: FeatureDecomposingNetwork, tmp_path: Path) -> None:
    records = [make_record(number) for number in range(6)]
    path = write_archive(tmp_path / "A", network, records)
    archive = Archive.open(path, model=network)
    archive.trust(archive.stored("V00", z_index=5))
    write_archive(path, network, [replace(make_record(9), info=replace(make_record(9).info, patient_key="New"))])
    fresh = write_archive(tmp_path / "B", network, [*records, make_record(9)])
    grown = archive.refreshed()
    other = Archive.open(fresh, model=network)
    assert grown.trust(grown.stored("V00", z_index=5)) == other.trust(other.stored("V00", z_index=5))
