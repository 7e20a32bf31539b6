"""Whole patients: exact, with filters, mirrored and moved, found first where they are alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from diptych.archive import VolumeInfo
from diptych.errors import UsageError
from diptych.metrics.label_rows import LabelRows
from diptych.retrieval import patient_search
from diptych.retrieval.patient_search import BAND, PatientSearch, Stack, nearest_slices, placements
from diptych.search import PANELS, Filter, Query, SearchEngine
from diptych.search.joined import Places
from diptych.search.label_maps import LabelMaps
from tests.search.oracle import Archive, make_archive

CLASSES = {"normal": 3, "abnormal": 2}


@pytest.fixture(scope="module")
def archive() -> Archive:
    return make_archive(5, volumes=14, longest=12)


@pytest.fixture(scope="module")
def levels(archive: Archive) -> dict[str, NDArray[np.uint8]]:
    rng = np.random.default_rng(1)
    count = len(archive.volume_of_slice)
    found = {}
    for panel, classes in CLASSES.items():
        found[panel] = np.zeros((count, classes, 16, 16), dtype=np.uint8)
        for one in found[panel]:
            row, column = rng.integers(11, size=2)
            one[rng.integers(classes), row : row + 4, column : column + 5] = rng.integers(1, 4)
    return found


def heights(archive: Archive) -> NDArray[np.float32]:
    """Two millimetres apart, each volume from zero on."""
    starts = archive.index().volume_starts
    return np.concatenate([2.0 * np.arange(n) for n in np.diff(starts)]).astype(np.float32)


def make_search(archive: Archive, levels: Mapping[str, NDArray[np.uint8]]) -> PatientSearch:
    engine = SearchEngine(archive.index(), archive.tables)
    index = engine.index
    places = Places(np.zeros(index.volumes, np.int64), index.volume_starts[:-1], index.volume_starts)
    labels = {panel: LabelRows([LabelMaps.pack(levels[panel])], places) for panel in PANELS}
    infos = [VolumeInfo(f"V{n}", f"P{n}") for n in range(index.volumes)]
    z_index = np.arange(len(index)) - np.repeat(index.volume_starts[:-1], np.diff(index.volume_starts))
    return PatientSearch(engine, labels, infos, heights(archive), z_index)


def stack_of(search: PatientSearch, levels: Mapping[str, NDArray[np.uint8]], volume: int) -> Stack:
    first, last = search.engine.index.volume_starts[volume : volume + 2]
    return Stack(
        {panel: levels[panel][first:last] for panel in PANELS}, search.z_mm[first:last], search.z_index[first:last]
    )


def plain(one: Stack, other: Stack, panel: str) -> float:
    """The twin: stacks of arrays, height by height."""
    here, there = nearest_slices(one.z_mm), nearest_slices(other.z_mm)
    a = {height: one.levels[panel][place].astype(int) for height, place in here.items()}
    b = {height: other.levels[panel][place].astype(int) for height, place in there.items()}
    dice = []
    for c in range(CLASSES[panel]):
        both = sum(m[c].sum() for m in a.values()) + sum(m[c].sum() for m in b.values())
        shared = sum(np.minimum(a[h][c], b[h][c]).sum() for h in a.keys() & b.keys())
        if both:
            dice.append(2 * shared / both)
    return 1 - sum(dice) / len(dice) if dice else 0.0


@pytest.mark.parametrize("by", [*PANELS, "both"])
def test_what_is_found_is_what_plain_arithmetic_finds(
    archive: Archive, levels: dict[str, NDArray[np.uint8]], by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patient_search, "FIRST_BATCH", 2)
    search = make_search(archive, levels)
    volumes = np.flatnonzero(np.diff(search.engine.index.volume_starts)).tolist()
    shares = {"normal": 0.3, "abnormal": 0.7} if by == "both" else {by: 1.0}
    for asked in volumes[:4]:
        one = stack_of(search, levels, asked)
        query = Query(by=by, weight=0.3, top=5)  # type: ignore[arg-type]
        expected = sorted(
            (sum(w * plain(one, stack_of(search, levels, v), panel) for panel, w in shares.items()), v) for v in volumes
        )
        found = search.search(one, query)
        assert [match.volume.volume_key for match in found] == [f"V{volume}" for _, volume in expected[:5]]
        assert [match.distance for match in found] == pytest.approx([distance for distance, _ in expected[:5]])
        assert found[0].volume.volume_key == f"V{asked}"
        assert found[0].z_index == found[0].query_z_index


@pytest.mark.parametrize("by", PANELS)
def test_bounds_are_sums_of_smaller_blocks(archive: Archive, levels: dict[str, NDArray[np.uint8]], by: str) -> None:
    search = make_search(archive, levels)
    volumes = np.flatnonzero(np.diff(search.engine.index.volume_starts))
    one, query = stack_of(search, levels, int(volumes[1])), Query(by=by)  # type: ignore[arg-type]
    placement = next(placements(search._region(one, query), [by], None))
    coarse = search._bounds(placement, {by: 1.0}, volumes, query)
    fine = search._finer_bounds(placement, {by: 1.0}, volumes)[by]
    for place, volume in enumerate(volumes.tolist()):
        other = stack_of(search, levels, volume)
        assert coarse[place] == pytest.approx(bound(one, other, by, band=BAND))
        assert fine[place] == pytest.approx(bound(one, other, by, band=1))
        assert coarse[place] <= fine[place] + 1e-9 <= plain(one, other, by) + 2e-9


def bound(one: Stack, other: Stack, panel: str, *, band: int) -> float:
    """The twin: what two stacks share at most, from sums over blocks of four by four pixels and some heights."""
    sums: list[dict[int, NDArray[np.int64]]] = [{}, {}]
    for side, stack in enumerate((one, other)):
        for height, place in nearest_slices(stack.z_mm).items():
            blocks = stack.levels[panel][place].astype(int).reshape(-1, 4, 4, 4, 4).sum(axis=(2, 4))
            sums[side][height // band] = sums[side].get(height // band, 0) + blocks
    both = sum(b.sum(axis=(1, 2)) for side in sums for b in side.values())
    most = sum(np.minimum(sums[0][h], sums[1][h]).sum(axis=(1, 2)) for h in sums[0].keys() & sums[1].keys())
    dice = [2 * m / b for m, b in zip(most + 0 * both, both, strict=True) if b]
    return 1 - sum(dice) / len(dice) if dice else 0.0


def test_a_match_tells_how_much_more_lesion_it_has(archive: Archive, levels: dict[str, NDArray[np.uint8]]) -> None:
    search = make_search(archive, levels)
    one = stack_of(search, levels, 0)
    own, *others = search.search(one, Query(by="abnormal", top=3))
    assert own.lesion_ratio == 1.0
    amounts = [stack_of(search, levels, int(match.volume.volume_key[1:])).levels["abnormal"] for match in others]
    chosen = [stack[list(nearest_slices(2.0 * np.arange(len(stack))).values())].sum() for stack in amounts]
    whole = one.levels["abnormal"][list(nearest_slices(one.z_mm).values())].sum()
    assert [match.lesion_ratio for match in others] == pytest.approx([amount / whole for amount in chosen])
    assert search.search(one, Query(by="normal", top=1))[0].lesion_ratio is None


def test_a_mirrored_lesion_is_found_where_it_is(archive: Archive, levels: dict[str, NDArray[np.uint8]]) -> None:
    search = make_search(archive, levels)
    volume = int(np.argmax(np.diff(search.engine.index.volume_starts)))
    one = stack_of(search, levels, volume)
    mirrored = replace(one, levels={"abnormal": one.levels["abnormal"][..., ::-1]})
    found = search.search(mirrored, Query(by="abnormal", top=1), anywhere="mirrored")
    assert (found[0].volume.volume_key, found[0].distance, found[0].mirrored) == (f"V{volume}", 0.0, True)


def test_a_moved_lesion_is_found_with_its_move(archive: Archive, levels: dict[str, NDArray[np.uint8]]) -> None:
    search = make_search(archive, levels)
    volume = int(np.argmax(np.diff(search.engine.index.volume_starts)))
    one = stack_of(search, levels, volume)
    moved = replace(one, levels={"abnormal": np.roll(one.levels["abnormal"], 3, axis=3)})
    kept = moved.levels["abnormal"][..., :3].any()
    found = search.search(moved, Query(by="abnormal", top=1), anywhere="shifted")
    assert found[0].distance == 0.0 or kept


def test_filters_and_wrong_words(archive: Archive, levels: dict[str, NDArray[np.uint8]]) -> None:
    search = make_search(archive, levels)
    one = stack_of(search, levels, int(np.argmax(np.diff(search.engine.index.volume_starts))))
    allowed = np.zeros(len(search.volumes), dtype=np.bool_)
    allowed[:6] = True
    found = search.search(one, Query(by="normal", where=Filter(volumes=allowed)))
    assert {int(match.volume.volume_key[1:]) for match in found} <= set(range(6))
    with pytest.raises(UsageError, match="by lesion"):
        search.search(one, Query(by="both"), anywhere="mirrored")
