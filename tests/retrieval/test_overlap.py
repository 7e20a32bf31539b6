"""Search by overlap equals a few lines of NumPy over unpacked masks, with filters, regions and both panels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from diptych.config import ModelConfig
from diptych.errors import UsageError
from diptych.metrics.decoded_planes import LEVELS, ArchivePlanes, PlaneDecoder
from diptych.metrics.label_planes import Planes, count_bits, pack_bits, shared_bits, unpack_bits
from diptych.metrics.label_search import LabelSearch
from diptych.metrics.overlap import Overlap, pair_distances
from diptych.metrics.searcher import Searcher
from diptych.model import FeatureDecomposingNetwork
from diptych.model.label_networks import GRID
from diptych.search import PANELS, Filter, Query, SearchEngine
from tests.search.oracle import Archive, allowed, make_archive

CLASSES = {"normal": 4, "abnormal": 3}
CODES = 7


def toy_masks(panel: str, ids: NDArray[Any]) -> NDArray[np.bool_]:
    """Each code stands for a small patch of each class, often for nothing: `[n, h, w]` to `[n, C, 3h, 4w]`."""
    rng = np.random.default_rng(len(panel))
    patches = (rng.random((CODES, CLASSES[panel], 3, 4)) < 0.5) & (rng.random((CODES, CLASSES[panel], 1, 1)) < 0.4)
    n, h, w = ids.shape
    return np.asarray(patches[ids].transpose(0, 3, 1, 4, 2, 5).reshape(n, CLASSES[panel], 3 * h, 4 * w))


def toy_planes(panel: str, ids: NDArray[Any]) -> Planes:
    return Planes.of_masks(toy_masks(panel, ids))


class ToyDecoder:
    panels: tuple[str, ...] = PANELS
    version = "toy"

    def __call__(self, panel: str, ids: NDArray[Any]) -> Planes:
        return toy_planes(panel, ids.astype(np.int64))


def make_searcher(archive: Archive, *, threads: int = 1, heights: NDArray[np.float64] | None = None) -> Searcher:
    index = archive.index()
    planes = ArchivePlanes(index, ToyDecoder(), cache=None, version="")
    return Searcher(SearchEngine(index, archive.tables, threads=threads), planes, heights=heights)


def make_search(archive: Archive, *, threads: int = 1) -> LabelSearch:
    engine = SearchEngine(archive.index(), archive.tables, threads=threads)
    planes = {panel: toy_planes(panel, archive.ids[panel].reshape(-1, *archive.grid)) for panel in PANELS}
    return LabelSearch(Overlap(engine, planes, toy_planes))


def brute_distances(archive: Archive, query: Query, panel: str) -> NDArray[np.float64]:
    """1 - mean Dice over classes that either slice has; 0 where neither has any."""
    region = np.ones(archive.grid, bool) if query.region is None else query.region
    pixels = region.repeat(3, axis=0).repeat(4, axis=1)
    one = toy_masks(panel, getattr(query, panel)[None])[0] & pixels
    distances = []
    for other in toy_masks(panel, archive.ids[panel].reshape(-1, *archive.grid)) & pixels:
        dice = [2 * (a & b).sum() / (a.sum() + b.sum()) for a, b in zip(one, other, strict=True) if (a | b).any()]
        distances.append(1 - float(np.mean(dice)) if dice else 0.0)
    return np.array(distances)


def brute_search(archive: Archive, query: Query, search: LabelSearch) -> list[tuple[int, float]]:
    total = np.zeros(len(archive.volume_of_slice))
    for panel in PANELS if query.by == "both" else (query.by,):
        share = query.weight if panel == "normal" else 1 - query.weight
        normalised = query.by == "both" and query.combine == "normalised"
        factor = share / search.comparison.spread(query, panel) if normalised else 1.0
        total += factor * brute_distances(archive, query, panel)
    found: dict[int, tuple[float, int, int]] = {}
    for slice_, volume in enumerate(archive.volume_of_slice.tolist()):
        patient = int(archive.patient_of_volume[volume])
        group = patient if query.group == "patient" else volume
        if allowed(archive, query, slice_, volume, patient):
            found[group] = min(found.get(group, (np.inf, 0, 0)), (round(total[slice_], 12), volume, slice_))
    return [(slice_, distance) for distance, _, slice_ in sorted(found.values())[: query.top]]


@st.composite
def options(draw: st.DrawFn, archive: Archive) -> dict[str, Any]:
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    region = rng.random(archive.grid) < 0.5
    region[0, 0] = True
    slices, volumes = len(archive.volume_of_slice), len(archive.patient_of_volume)
    return {
        "by": draw(st.sampled_from(["normal", "abnormal", "both"])),
        "combine": draw(st.sampled_from(["normalised", "paper"])),
        "weight": draw(st.sampled_from([0.0, 0.3, 1.0])),
        "region": draw(st.sampled_from([None, region])),
        "top": draw(st.integers(1, 12)),
        "group": draw(st.sampled_from(["volume", "patient"])),
        "where": Filter(
            volumes=draw(st.sampled_from([None, rng.random(volumes) < 0.7])),
            slices=draw(st.sampled_from([None, rng.random(slices) < 0.5])),
            exclude_patients=draw(st.sampled_from([(), (0, 2)])),
            lesion_free=draw(st.booleans()),
        ),
    }


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.data())
def test_search_equals_brute_force(data: st.DataObject) -> None:
    archive = make_archive(data.draw(st.integers(0, 500)), grid=data.draw(st.sampled_from([(2, 3), (3, 2), (1, 1)])))
    search = make_search(archive, threads=data.draw(st.sampled_from([1, 2])))
    place = data.draw(st.integers(0, len(archive.volume_of_slice) - 1))
    query = archive.query(place, **data.draw(options(archive)))

    found, expected = search.search(query), brute_search(archive, query, search)

    assert [match.distance for match in found] == pytest.approx([distance for _, distance in expected], abs=1e-9)
    if query.by != "both":  # with both, ties may differ in the last bit
        assert [match.slice for match in found] == [slice_ for slice_, _ in expected]


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.data())
def test_contributions_add_up_to_the_distance(data: st.DataObject) -> None:
    archive = make_archive(data.draw(st.integers(0, 500)))
    chosen = data.draw(options(archive))
    for match in make_search(archive).search(archive.query(0, **chosen)):
        assert match.contributions.shape == archive.grid
        assert match.contributions.min() >= 0
        assert match.contributions.sum() == pytest.approx(match.distance, abs=1e-9)
        outside = np.zeros(archive.grid, bool) if chosen["region"] is None else ~chosen["region"]
        assert not match.contributions[outside].any()
        for panel in (match.normal, match.abnormal):
            assert panel is not None
            assert panel.contributions.sum() == pytest.approx(panel.distance, abs=1e-9)


def test_a_slice_finds_itself_at_distance_zero() -> None:
    archive = make_archive(3)
    match = make_search(archive).search(archive.query(4, by="both", top=1))[0]
    assert match.distance == 0


def test_two_lesion_free_slices_are_alike_and_a_lesion_is_not() -> None:
    masks = np.zeros((2, 3, 4, 5), bool)
    masks[1, 1, 2, 3] = True
    planes = Planes.of_masks(masks)
    assert pair_distances(planes.take([0, 0, 1]), planes.take([0, 1, 1])).tolist() == [0.0, 1.0, 0.0]


def test_reranking_all_volumes_is_searching() -> None:
    archive = make_archive(5)
    searcher, query = make_searcher(archive), archive.query(3, by="abnormal", top=4)
    everywhere = searcher.search(query, rerank=archive.patient_of_volume.size)
    by_overlap = searcher.search(replace(query, metric="overlap"))
    assert [match.slice for match in everywhere] == [match.slice for match in by_overlap]


def test_reranking_orders_what_the_table_chose() -> None:
    archive = make_archive(5)
    searcher, query = make_searcher(archive), archive.query(3, by="abnormal", top=3, metric="angular")
    chosen = {match.volume for match in searcher.search(replace(query, top=5))}
    found = searcher.search(query, rerank=5)
    assert {match.volume for match in found} <= chosen
    assert [match.distance for match in found] == sorted(match.distance for match in found)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"by": "neither"}, "search by anatomy, lesion or both"),
        ({"weight": 2.0, "by": "both"}, "lies in 0…1"),
        ({"top": 0}, "at least one match"),
        ({"normal": None}, "needs the query's normal ids"),
        ({"region": np.zeros((2, 3), bool)}, "mark at least one cell"),
    ],
)
def test_bad_queries_get_one_line(options: dict[str, Any], line: str) -> None:
    archive = make_archive(2)
    with pytest.raises(UsageError, match=line):
        make_search(archive).search(archive.query(0, **options))


def test_reranking_fewer_than_wanted_is_refused() -> None:
    archive = make_archive(2)
    with pytest.raises(UsageError, match="re-rank at least"):
        make_searcher(archive).search(archive.query(0, top=5), rerank=4)


@given(st.integers(1, 9), st.integers(1, 40), st.integers(0, 99))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_bits_survive_packing_and_are_counted(rows: int, columns: int, seed: int) -> None:
    masks = np.random.default_rng(seed).random((4, 2, rows, columns)) < 0.4
    words = pack_bits(masks)
    assert np.array_equal(unpack_bits(words, (rows, columns)), masks)
    assert np.array_equal(count_bits(words), masks.sum(axis=(2, 3)))
    assert np.array_equal(shared_bits(words[1], words), (masks & masks[1]).sum(axis=(2, 3)))


def test_levels_make_a_soft_dice() -> None:
    rng = np.random.default_rng(0)
    one, other = np.round(rng.random((2, 1, 2, 6, 5)) * len(LEVELS)) / len(LEVELS)
    a, b = Planes.of_probabilities(one, LEVELS), Planes.of_probabilities(other, LEVELS)
    soft = 2 * np.minimum(one, other).sum(axis=(2, 3)) / (one + other).sum(axis=(2, 3))
    assert 2 * count_bits(a.words & b.words) / (a.areas + b.areas) == pytest.approx(soft)


@pytest.fixture(scope="module")
def network() -> FeatureDecomposingNetwork:
    torch.manual_seed(0)
    config = ModelConfig(
        image_size=(64, 32), latent_size=(4, 2), widths=(8, 8, 16, 16, 16), code_width=8, codebook_size=CODES
    )
    return FeatureDecomposingNetwork(config).eval()


def test_planes_are_what_the_network_decodes(network: FeatureDecomposingNetwork) -> None:
    decomposed = network.decompose(torch.randn(3, 4, 64, 32))
    decoder = PlaneDecoder(network)
    for panel, expected in (
        ("abnormal", decomposed.lesion_probabilities),
        ("normal", decomposed.anatomy_probabilities),
    ):
        assert expected is not None
        found = decoder.probabilities(panel, getattr(decomposed, f"{panel}_ids").numpy())
        assert found.shape[2:] == GRID
        small = expected[:, 1:].reshape(3, -1, GRID[0], 2, GRID[1], 1).mean(dim=(3, 5)).numpy()
        assert found == pytest.approx(small, abs=1e-5)


def test_an_archives_planes_come_back_from_the_cache(network: FeatureDecomposingNetwork, tmp_path: Path) -> None:
    index, decoder = make_archive(0, grid=(4, 2)).index(), PlaneDecoder(network)
    said: list[Any] = []
    for _ in range(2):
        archived = ArchivePlanes(index, decoder, cache=tmp_path / "cache", version="v")
        assert not archived.ready
        planes = archived.planes(lambda *a: said.append(a))["abnormal"]
        ids = index.codes["abnormal"].ids(np.arange(len(index))).reshape(-1, 4, 2)
        assert np.array_equal(planes.masks(), decoder("abnormal", ids).masks())
        assert np.array_equal(planes.areas, count_bits(planes.words))
    assert [done == total for done, total, _ in said].count(True) == len(PANELS), "the second time nothing was decoded"


def test_planes_of_another_version_are_made_anew(network: FeatureDecomposingNetwork, tmp_path: Path) -> None:
    index, decoder, said = make_archive(0, grid=(4, 2)).index(), PlaneDecoder(network), list[Any]()
    for version in ("one", "two"):
        ArchivePlanes(index, decoder, cache=tmp_path, version=version).planes(lambda *a: said.append(a))
    assert [done == total for done, total, _ in said].count(True) == 2 * len(PANELS)
