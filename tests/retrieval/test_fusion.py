"""Fusion is the mean of what learned tables and overlap say, slice by slice and cell by cell."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from diptych.errors import UsageError
from diptych.metrics.fusion import OVERLAP_SHARE, Fusion
from diptych.metrics.label_search import LabelSearch
from diptych.metrics.overlap import Overlap
from diptych.search import PANELS, Query, SearchEngine
from diptych.search.tables import Tables
from tests.retrieval.test_overlap import brute_distances, make_searcher, toy_planes
from tests.search.oracle import Archive, make_archive


def with_learned(archive: Archive) -> Archive:
    panels = [
        {**panel, "learned": replace(panel["euclidean"], metric="learned")}
        for panel in (archive.tables.normal, archive.tables.abnormal)
    ]
    return replace(archive, tables=Tables(*panels))


def make_search(archive: Archive) -> tuple[LabelSearch, Overlap]:
    planes = {panel: toy_planes(panel, archive.ids[panel].reshape(-1, *archive.grid)) for panel in PANELS}
    overlap = Overlap(SearchEngine(archive.index(), archive.tables), planes, toy_planes)
    return LabelSearch(Fusion(overlap)), overlap


def brute_total(archive: Archive, overlap: Overlap, query: Query) -> dict[int, float]:
    """The fused distance of every slice, from overlap by hand and from the engine's own learned search."""
    learned = replace(query, metric="learned")
    shares = {"normal": query.weight, "abnormal": 1 - query.weight} if query.by == "both" else {query.by: 1.0}
    total = np.zeros(len(archive.volume_of_slice))
    for panel, share in shares.items():
        entries = archive.tables.panel(panel)["learned"]
        ids = np.asarray(getattr(query, panel)).reshape(-1)
        sums = entries.entries[ids, archive.ids[panel]].sum(axis=1)
        by_table = entries.distance(sums) / overlap.engine.spread(learned, panel)
        by_label = brute_distances(archive, query, panel) / overlap.spread(query, panel)
        total += share * (OVERLAP_SHARE * by_label + (1 - OVERLAP_SHARE) * by_table)
    return dict(enumerate(total.tolist()))


@pytest.mark.parametrize("by", ["normal", "abnormal", "both"])
@pytest.mark.parametrize("seed", range(4))
def test_search_equals_brute_force(by: str, seed: int) -> None:
    archive = with_learned(make_archive(seed, grid=(2, 3)))
    search, overlap = make_search(archive)
    query = archive.query(3, by=by, weight=0.3, top=6, group="volume")
    total = brute_total(archive, overlap, query)
    found = search.search(query)
    assert [match.distance for match in found] == pytest.approx([total[match.slice] for match in found])
    best = sorted(
        min(total[place] for place in np.flatnonzero(archive.volume_of_slice == volume).tolist())
        for volume in np.unique(archive.volume_of_slice)
    )
    assert [match.distance for match in found] == pytest.approx(best[:6])


def test_cells_add_up_to_the_distance() -> None:
    archive = with_learned(make_archive(1, grid=(2, 3)))
    for match in make_search(archive)[0].search(archive.query(3, by="both")):
        assert match.contributions.sum() == pytest.approx(match.distance)


def test_without_learned_tables_there_is_no_fusion() -> None:
    archive = make_archive(1, grid=(2, 3))
    with pytest.raises(UsageError, match="no learned tables; make them with 'diptych fit tables'"):
        make_searcher(archive).search(archive.query(3, by="normal", metric="fusion"))
