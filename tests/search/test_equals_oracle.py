"""Every way of scanning gives the oracle's answer, in its order, ties included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diptych.search import Filter, SearchEngine, changes
from diptych.search import prune as module
from tests.search.oracle import Archive, make_archive, oracle

properties = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)


@st.composite
def archives(draw: st.DrawFn) -> Archive:
    return make_archive(
        draw(st.integers(0, 10_000)),
        volumes=draw(st.integers(1, 14)),
        longest=draw(st.integers(1, 40)),
        grid=draw(st.sampled_from([(1, 1), (2, 3), (3, 2), (5, 3), (1, 17)])),
        codes=draw(st.integers(1, 12)),
    )


@st.composite
def options(draw: st.DrawFn, archive: Archive) -> dict[str, Any]:
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    slices, volumes = len(archive.volume_of_slice), len(archive.patient_of_volume)
    region = rng.random(archive.grid) < 0.6
    region[0, 0] = True
    where = Filter(
        volumes=draw(st.sampled_from([None, rng.random(volumes) < 0.7])),
        slices=draw(st.sampled_from([None, rng.random(slices) < 0.5])),
        exclude_patients=draw(st.sampled_from([(), (0,), (0, 2)])),
        lesion_free=draw(st.booleans()),
    )
    return {
        "by": draw(st.sampled_from(["normal", "abnormal", "both"])),
        "metric": draw(st.sampled_from(["euclidean", "angular", "hamming"])),
        "combine": draw(st.sampled_from(["normalised", "paper"])),
        "weight": draw(st.sampled_from([0.0, 0.3, 1.0])),
        "region": draw(st.sampled_from([None, region])),
        "top": draw(st.integers(1, 20)),
        "group": draw(st.sampled_from(["volume", "patient"])),
        "where": where,
    }


@properties
@given(st.data())
def test_search_equals_the_oracle(monkeypatch: pytest.MonkeyPatch, data: st.DataObject) -> None:
    archive = data.draw(archives())
    if not len(archive.volume_of_slice):
        return
    prune = data.draw(st.booleans())
    monkeypatch.setattr(changes, "DEARER", data.draw(st.sampled_from([0, 2])))  # 0: listed though they do not pay
    monkeypatch.setattr(module, "OVERHEAD", -(10**9))  # pruning pays whatever is left
    monkeypatch.setattr(module, "MANY", data.draw(st.sampled_from([0, 25_000])))
    monkeypatch.setattr(module, "SEEDS", {"runs": 1, "parts": data.draw(st.sampled_from([1, 9]))})
    searcher = SearchEngine(archive.index(), archive.tables, threads=data.draw(st.sampled_from([1, 2])), prune=prune)
    query = archive.query(data.draw(st.integers(0, len(archive.volume_of_slice) - 1)), **data.draw(options(archive)))

    found, expected = searcher.search(query), oracle(archive, query, searcher)

    assert [match.slice for match in found] == [slice_ for slice_, _ in expected]
    assert [match.distance for match in found] == pytest.approx([distance for _, distance in expected], abs=1e-9)


@properties
@given(st.data())
def test_batch_equals_one_by_one(monkeypatch: pytest.MonkeyPatch, data: st.DataObject) -> None:
    archive = data.draw(archives())
    monkeypatch.setattr(changes, "DEARER", data.draw(st.sampled_from([0, 2])))
    if not len(archive.volume_of_slice):
        return
    searcher = SearchEngine(archive.index(), archive.tables, threads=data.draw(st.sampled_from([1, 2])))
    places = data.draw(st.lists(st.integers(0, len(archive.volume_of_slice) - 1), min_size=8, max_size=70))
    chosen = data.draw(options(archive))
    queries = [archive.query(place, **chosen | {"top": 1 + place % 5}) for place in places]

    together = searcher.search_batch(queries)

    assert [[(m.slice, m.distance) for m in answer] for answer in together] == [
        [(m.slice, m.distance) for m in searcher.search(query)] for query in queries
    ]


@properties
@given(st.data())
def test_contributions_add_up_to_the_distance(data: st.DataObject) -> None:
    archive = data.draw(archives())
    if not len(archive.volume_of_slice):
        return
    searcher = SearchEngine(archive.index(), archive.tables)
    chosen = data.draw(options(archive))
    for match in searcher.search(archive.query(0, **chosen)):
        assert match.contributions.shape == archive.grid
        assert match.contributions.min() >= 0
        assert match.contributions.sum() == pytest.approx(match.distance, abs=1e-9)
        outside = np.zeros(archive.grid, bool) if chosen["region"] is None else ~chosen["region"]
        assert not match.contributions[outside].any()
        for panel in (match.normal, match.abnormal):
            assert panel is not None
            assert panel.contributions.sum() == pytest.approx(panel.distance, abs=1e-9)
