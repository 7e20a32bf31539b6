"""Stored label maps: what pruned searches find is what a look at every slice finds, ties included."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from diptych.metrics import fusion, label_pruning
from diptych.metrics.fusion import Fusion
from diptych.metrics.label_planes import Planes
from diptych.metrics.label_rows import LabelRows, planes_of
from diptych.metrics.label_search import LabelSearch
from diptych.metrics.overlap import Overlap
from diptych.search import PANELS, Filter, Query, SearchEngine
from diptych.search.joined import Places
from diptych.search.label_maps import LabelMaps
from tests.retrieval.test_fusion import with_learned
from tests.search.oracle import Archive, make_archive

CLASSES = {"normal": 4, "abnormal": 2}


def toy_levels(panel: str, ids: NDArray[np.integer]) -> NDArray[np.uint8]:
    """Each code stands for a level of each class in its cell: `[n, h, w]` to `[n, C, 4h, 4w]`."""
    rng = np.random.default_rng(len(panel))
    table = rng.integers(4, size=(1024, CLASSES[panel])) * (rng.random((1024, CLASSES[panel])) < 0.3)
    levels = table[ids].transpose(0, 3, 1, 2).repeat(4, axis=2).repeat(4, axis=3)
    return np.asarray(levels, dtype=np.uint8)


def toy_planes(panel: str, ids: NDArray[np.integer]) -> Planes:
    return planes_of(toy_levels(panel, ids))


def make_search(archive: Archive, *, segments: int, fused: bool, prunes: bool) -> LabelSearch:
    engine = SearchEngine(archive.index(), archive.tables)
    index = engine.index
    starts, part = index.volume_starts, np.arange(index.volumes) % segments
    places = Places(part, np.zeros(index.volumes, dtype=np.int64), starts)
    local = np.zeros(segments, dtype=np.int64)
    chosen: list[list[NDArray[np.int64]]] = [[] for _ in range(segments)]
    for volume in range(index.volumes):
        places.start[volume] = local[part[volume]]
        chosen[part[volume]].append(np.arange(starts[volume], starts[volume + 1]))
        local[part[volume]] += starts[volume + 1] - starts[volume]
    stored = {}
    for panel in PANELS:
        grids = archive.ids[panel].reshape(-1, *archive.grid)
        parts = [LabelMaps.pack(toy_levels(panel, grids[np.concatenate(mine)])) for mine in chosen]
        stored[panel] = LabelRows(parts, places)
    overlap = Overlap(engine, stored, toy_planes)
    heights = (np.arange(len(index)) * 2.5).astype(np.float32)
    return LabelSearch(Fusion(overlap) if fused else overlap, heights=heights, prunes=prunes)


def test_fusion_orders_those_that_overlap_best(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusion, "CANDIDATES", 4)
    monkeypatch.setattr(fusion, "CANDIDATES_EACH", 1)
    archive = with_learned(make_archive(4))
    by_overlap = make_search(archive, segments=1, fused=False, prunes=False)
    fused = make_search(archive, segments=2, fused=True, prunes=True)
    for number in range(4):
        query = replace(archive.query(number, by="both"), top=2)
        best = [match.volume for match in by_overlap.search(replace(query, top=4))]
        distances = fused.distances(query)
        starts = fused.engine.index.volume_starts
        lowest = {volume: distances[starts[volume] : starts[volume + 1]].min() for volume in sorted(best)}
        expected = sorted(lowest, key=lambda volume: lowest[volume])[:2]
        assert [volume for volume, _ in found(fused, query)] == expected


def test_queries_in_a_batch_are_answered_as_alone() -> None:
    archive = with_learned(make_archive(3))
    search = make_search(archive, segments=2, fused=True, prunes=True)
    queries = [archive.query(number, by=by) for number, by in enumerate(["normal", "abnormal", "both", "normal"])]
    together = [[(match.volume, match.slice, match.distance) for match in one] for one in search.search_batch(queries)]
    alone = [[(match.volume, match.slice, match.distance) for match in search.search(query)] for query in queries]
    assert together == alone


def found(search: LabelSearch, query: Query) -> list[tuple[int, int]]:
    return [(match.volume, match.slice) for match in search.search(query)]


@pytest.mark.parametrize("segments", [1, 3])
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("by", [*PANELS, "both"])
def test_pruned_searches_equal_plain_ones(segments: int, fused: bool, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_pruning, "FIRST_BATCH", 2)
    archive = with_learned(make_archive(3, volumes=24))
    pruned = make_search(archive, segments=segments, fused=fused, prunes=True)
    plain = make_search(archive, segments=1, fused=fused, prunes=False)
    rng = np.random.default_rng(7)
    for number in range(6):
        query = replace(archive.query(number, by=by), top=1 + number % 4)
        if number % 2:
            query = replace(query, group="patient", where=Filter(slices=rng.random(len(pruned.engine.index)) < 0.7))
        if number % 3 == 2:
            region = np.zeros(archive.grid, dtype=np.bool_)
            region[: archive.grid[0] // 2 + 1] = True
            query = replace(query, region=region)
        assert found(pruned, query) == found(plain, query)
