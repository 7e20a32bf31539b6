"""The code atlas: counts equal a plain count, examples hold their code, the page needs nothing from elsewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from diptych.archive import ArchiveCodes
from diptych.errors import UsageError
from diptych.model import FeatureDecomposingNetwork, save_model
from diptych.retrieval import Archive
from diptych.retrieval.code_atlas import LEVELS, code_entries, find_code, mean_brains
from diptych.retrieval.code_atlas_page import draw_code_atlas
from tests.retrieval.making import CONFIG
from tests.retrieval.running import run


@pytest.fixture(scope="module")
def codes(archive: Archive) -> ArchiveCodes:
    return archive.store.codes()


@pytest.fixture(scope="module")
def page(codes: ArchiveCodes, network: FeatureDecomposingNetwork) -> str:
    return draw_code_atlas(codes, network, title="A <b> & co")


def test_counts_equal_a_plain_count(codes: ArchiveCodes) -> None:
    grids = codes.normal_ids.reshape(-1, *CONFIG.latent_size)
    for entry in code_entries(codes, "normal"):
        np.testing.assert_array_equal(entry.heat, (grids == entry.id).sum(axis=0))
        assert entry.count == np.count_nonzero(grids == entry.id)


def test_levels_run_from_bottom_to_top(codes: ArchiveCodes) -> None:
    entry = code_entries(codes, "abnormal")[0]
    held = (codes.abnormal_ids == entry.id).sum(axis=1)
    expected = [held[np.minimum((codes.position * LEVELS).astype(int), LEVELS - 1) == n].sum() for n in range(LEVELS)]
    assert entry.levels.tolist() == expected


def test_an_example_holds_its_code_where_it_is_most_frequent(codes: ArchiveCodes) -> None:
    grids = codes.abnormal_ids.reshape(-1, *CONFIG.latent_size)
    for entry in code_entries(codes, "abnormal"):
        assert grids[entry.example][entry.cell] == entry.id
        assert entry.heat[entry.cell] == entry.heat.max()


def test_the_most_frequent_come_first(codes: ArchiveCodes) -> None:
    counts = [entry.count for entry in code_entries(codes, "normal")]
    assert counts == sorted(counts, reverse=True)


def test_every_band_has_a_brain(codes: ArchiveCodes, network: FeatureDecomposingNetwork) -> None:
    assert mean_brains(network, codes).images.shape == (5, CONFIG.channels, *CONFIG.image_size)


@pytest.mark.parametrize("cell", [None, (3, 6)])
def test_slices_with_a_code_are_found_as_one_by_one(codes: ArchiveCodes, cell: tuple[int, int] | None) -> None:
    expected = []
    for number, ids in enumerate(codes.abnormal_ids.reshape(-1, *CONFIG.latent_size)):
        held = np.asarray(ids == 7)
        if held.any() if cell is None else held[cell]:
            expected.append((codes.volumes[codes.volume[number]].volume_key, int(codes.z_index[number])))
    found = find_code(codes, "abnormal", 7, cell=cell)
    assert [(place.volume_key, place.slice) for place in found] == expected


@pytest.mark.parametrize(
    ("code", "cell", "message"),
    [
        (20, None, "id 20: the normal codebook has ids 0 to 19"),
        (-1, None, "id -1"),
        (3, (4, 0), "cell 4,0: this grid has rows 0 to 3 and columns 0 to 7"),
    ],
)
def test_what_cannot_be_is_refused(codes: ArchiveCodes, code: int, cell: tuple[int, int] | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        find_code(codes, "normal", code, cell=cell)


def test_the_page_has_a_card_for_every_live_code(page: str, codes: ArchiveCodes) -> None:
    for panel, ids in (("normal", codes.normal_ids), ("abnormal", codes.abnormal_ids)):
        cards = {int(code) for code in re.findall(rf'id="{panel}-(\d+)"', page)}
        assert cards == set(np.unique(ids).tolist())


def test_the_page_needs_nothing_from_elsewhere(page: str) -> None:
    sources = re.findall(r"""(?:src|href)=["']([^"']+)|url\(([^)]+)\)""", page)
    assert all(source.startswith(("data:", "#")) for pair in sources for source in pair if source)
    assert "<script" not in page


def test_names_are_escaped(page: str) -> None:
    assert "A &lt;b&gt; &amp; co" in page


def test_the_notice_stands_once(page: str) -> None:
    assert page.count("not a medical device") == 1


def test_the_command_writes_the_page(archive: Archive, network: FeatureDecomposingNetwork, tmp_path: Path) -> None:
    save_model(network, tmp_path / "model")
    done = run("codes", archive.store.path, "--model", tmp_path / "model", "--out", tmp_path / "atlas.html")
    assert (done.exit_code, (tmp_path / "atlas.html").is_file()) == (0, True), done.stderr


def test_the_command_lists_slices(archive: Archive, codes: ArchiveCodes) -> None:
    done = run("codes", archive.store.path, "--panel", "abnormal", "--id", 7, "--cell", "3,6", "--json")
    found = [place["volume_key"] for place in json.loads(done.stdout)]
    assert found == [place.volume_key for place in find_code(codes, "abnormal", 7, cell=(3, 6))]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ((), "give --out FILE for the atlas, or --id NUMBER"),
        (("--id", 99), "id 99: the abnormal codebook has ids 0 to 19"),
        (("--id", 3, "--cell", "3;4"), "give row and column"),
        (("--out", "atlas.html"), "does not come with Diptych; give its folder"),
    ],
)
def test_the_command_refuses_in_one_line(archive: Archive, options: tuple[object, ...], line: str) -> None:
    done = run("codes", archive.store.path, *options)
    assert (done.exit_code, line in done.stderr, done.stderr.count("\n")) == (2, True, 1)
