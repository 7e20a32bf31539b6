"""Whole volumes: the same distances as long code vectors by the definition, from either side."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from diptych.archive import VolumeRecord
from diptych.errors import UsageError
from diptych.retrieval import Archive, Question
from diptych.retrieval.question import volume_query
from diptych.retrieval.volume_search import align


def vectors(archive: Archive, panel: str, one: VolumeRecord, other: VolumeRecord) -> list[NDArray[np.float64]]:
    """The aligned slices' code vectors end to end."""
    book = getattr(archive.network, f"{panel}_quantizer").codebook.numpy().astype(np.float64)
    parts = align(one.slice_count, other.slice_count)
    return [book[getattr(r, f"{panel}_ids")[part]].reshape(-1) for r, part in zip((one, other), parts, strict=True)]


@pytest.mark.parametrize("by", ["normal", "abnormal"])
@pytest.mark.parametrize("metric", ["euclidean", "angular"])
def test_ranking_equals_brute_force(archive: Archive, records: list[VolumeRecord], by: str, metric: str) -> None:
    query = records[3]
    expected = []
    for record in records:
        one, other = vectors(archive, by, query, record)
        if metric == "euclidean":
            distance = np.linalg.norm(one - other) / np.sqrt(max(query.slice_count, record.slice_count))
        else:
            distance = np.arccos(np.clip(one @ other / np.linalg.norm(one) / np.linalg.norm(other), -1, 1))
        if record.info.patient_key != query.info.patient_key:
            expected.append((float(distance), record.info.volume_key))
    matches = archive.similar_volumes(query, Question(by=by, metric=metric, group="volume"))  # type: ignore[arg-type]
    assert [match.volume.volume_key for match in matches] == [key for _, key in sorted(expected)]
    assert [match.distance for match in matches] == pytest.approx([d for d, _ in sorted(expected)], rel=1e-5)


def test_both_panels_have_equal_say_and_profiles_add_up(archive: Archive, records: list[VolumeRecord]) -> None:
    for match in archive.similar_volumes(records[0], Question(metric="angular")):
        assert match.profile.sum() == pytest.approx(match.distance, rel=1e-12)
    asked = volume_query(archive.settled(Question()), (), archive.catalogue)
    spreads = [archive.volume_search.spread(asked, panel) for panel in ("normal", "abnormal")]
    for match in archive.similar_volumes(records[0]):
        assert match.distance == pytest.approx(0.5 * match.normal / spreads[0] + 0.5 * match.abnormal / spreads[1])


def test_a_volume_is_nearest_to_itself_and_distances_are_symmetric(
    archive: Archive, records: list[VolumeRecord]
) -> None:
    everything = Question(include_own=True, group="volume", combine="paper")
    table = {
        (one.info.volume_key, match.volume.volume_key): match.distance
        for one in records
        for match in archive.similar_volumes(one, everything)
    }
    assert all(table[one, other] == pytest.approx(table[other, one], rel=1e-12) for one, other in table)
    assert all(table[record.info.volume_key, record.info.volume_key] == 0 for record in records)


def test_every_slice_of_both_volumes_takes_part() -> None:
    for slices, others in ((1, 5), (7, 7), (9, 4), (155, 60)):
        here, there = align(slices, others)
        assert (sorted(set(here)), sorted(set(there))) == (list(range(slices)), list(range(others)))


def test_questions_about_single_slices_are_refused(archive: Archive, records: list[VolumeRecord]) -> None:
    for question in (Question(lesion_free=True), Question(by="abnormal", anywhere="shifted"), Question(weight=2)):
        with pytest.raises(UsageError):
            archive.similar_volumes(records[0], question)
