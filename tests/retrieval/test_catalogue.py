"""Opening: segments never change an answer, whatever happened to them or to the archive."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from diptych.archive import ArchiveStore, ArchiveWriter
from diptych.archive.array_file import save_arrays
from diptych.archive.integrity import verify_archive
from diptych.errors import ArchiveError
from diptych.model import FeatureDecomposingNetwork
from diptych.retrieval import Archive, Question
from diptych.retrieval.catalogue import MOST_SEGMENTS
from diptych.search import SearchIndex
from tests.retrieval.making import make_record, write_archive


@pytest.fixture
def path(tmp_path: Path, network: FeatureDecomposingNetwork) -> Iterator[Path]:
    path = write_archive(tmp_path / "A", network, [make_record(number) for number in range(5)])
    yield path
    path.chmod(0o700)


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows by one each time a catalogue is built instead of read from the cache."""
    counted: list[str] = []
    build = SearchIndex.build

    def counting(**arrays: object) -> object:
        counted.append("built")
        return build(**arrays)  # type: ignore[arg-type]

    monkeypatch.setattr(SearchIndex, "build", counting)
    return counted


def answer(path: Path, network: FeatureDecomposingNetwork) -> list[tuple[str, int, float]]:
    archive = Archive.open(path, model=network)
    matches = archive.query(archive.stored("V00", z_index=5), Question(group="volume")).matches
    return [(match.volume.volume_key, match.z_index, match.distance) for match in matches]


def test_a_second_opening_reads_the_segment_and_answers_alike(
    path: Path, network: FeatureDecomposingNetwork, builds: list[str]
) -> None:
    assert answer(path, network) == answer(path, network)
    assert builds == ["built"]


def _cut_short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1000])


def _flip_a_byte(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def _replace_by_nonsense(file: Path) -> None:
    file.write_bytes(b"DIPTYCH2" + os.urandom(500))


@pytest.mark.parametrize("harm", [_cut_short, _flip_a_byte, _replace_by_nonsense])
def test_a_damaged_segment_is_built_anew(
    path: Path, network: FeatureDecomposingNetwork, builds: list[str], harm: Callable[[Path], None]
) -> None:
    expected = answer(path, network)
    harm(only_segment(path))
    assert answer(path, network) == expected
    assert builds == ["built", "built"]


def test_a_segment_of_other_volumes_is_not_believed(
    path: Path, network: FeatureDecomposingNetwork, tmp_path: Path
) -> None:
    other = write_archive(tmp_path / "B", network, [make_record(9)])
    Archive.open(other, model=network)
    expected = answer(path, network)
    only_segment(path).write_bytes(only_segment(other).read_bytes())
    assert answer(path, network) == expected


def test_each_change_adds_a_segment_and_answers_stay_exact(
    path: Path, network: FeatureDecomposingNetwork, tmp_path: Path, builds: list[str]
) -> None:
    answer(path, network)
    with ArchiveWriter.open(path) as writer:
        for number in (7, 6):
            writer.add(make_record(number))
            answer(path, network)
        writer.remove("V01")
    afresh = write_archive(tmp_path / "B", network, [make_record(number) for number in (0, 2, 3, 4, 6, 7)])
    assert answer(path, network) == answer(afresh, network)
    assert len(segments(path)) == 3
    assert len(builds) == 4  # three here, one afresh


def test_many_small_segments_become_one(path: Path, network: FeatureDecomposingNetwork, tmp_path: Path) -> None:
    for number in range(5, 20):
        with ArchiveWriter.open(path) as writer:
            writer.add(make_record(number))
        found = answer(path, network)
    assert len(segments(path)) <= MOST_SEGMENTS
    afresh = write_archive(tmp_path / "B", network, [make_record(number) for number in range(20)])
    assert found == answer(afresh, network)


def test_compact_leaves_no_segment_with_removed_rows(path: Path, network: FeatureDecomposingNetwork) -> None:
    answer(path, network)
    with ArchiveWriter.open(path) as writer:
        writer.remove("V04")
        writer.compact()
    assert segments(path) == []


def test_verify_and_stat_know_segments(path: Path, network: FeatureDecomposingNetwork) -> None:
    answer(path, network)
    store = ArchiveStore.open(path)
    assert (store.stat().segments, store.stat().decoded) == (1, 0)
    assert verify_archive(store).problems == ()
    _flip_a_byte(only_segment(path))
    assert "segment: is damaged; the next search makes it again" in verify_archive(store).problems[0]


def segments(path: Path) -> list[Path]:
    return sorted((path / "segments").glob("*.segment"))


def only_segment(path: Path) -> Path:
    (one,) = segments(path)
    return one


def test_a_changed_archive_is_noticed(path: Path, network: FeatureDecomposingNetwork) -> None:
    archive = Archive.open(path, model=network)
    with ArchiveWriter.open(path) as writer:
        writer.remove("V03")
    assert "V03" in [info.volume_key for info in archive.catalogue.volumes]
    assert "V03" not in [info.volume_key for info in archive.refreshed().catalogue.volumes]


def test_nothing_changed_nothing_reopened(path: Path, network: FeatureDecomposingNetwork) -> None:
    archive = Archive.open(path, model=network)
    assert archive.refreshed() is archive


def test_a_removal_during_opening_leaves_no_segment_behind(
    path: Path, network: FeatureDecomposingNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save_late(*arguments: object, **options: object) -> bool:
        with ArchiveWriter.open(path) as writer:
            writer.remove("V04")
            writer.compact()
        return save_arrays(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("diptych.archive.segments.save_arrays", save_late)
    Archive.open(path, model=network)
    assert segments(path) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_archive_is_searched_without_segments(path: Path, network: FeatureDecomposingNetwork) -> None:
    path.chmod(0o500)
    assert len(answer(path, network)) == 3


def test_no_room_for_segments_is_no_error(path: Path, network: FeatureDecomposingNetwork) -> None:
    (path / "segments").write_text("a file where the folder should be")
    assert len(answer(path, network)) == 3


def test_a_damaged_volume_is_left_out_and_named(path: Path, network: FeatureDecomposingNetwork) -> None:
    answer(path, network)
    with closing(sqlite3.connect(path / "archive.sqlite")) as database, database:
        database.execute("UPDATE volumes SET age = age + 1 WHERE volume_key = 'V02'")
    archive = Archive.open(path, model=network)
    assert archive.refreshed() is archive
    assert "V02" in archive.problems[0]
    assert "V02" not in [key for key, _, _ in answer(path, network)]


def test_an_empty_archive_says_how_to_fill_it(tmp_path: Path, network: FeatureDecomposingNetwork) -> None:
    with pytest.raises(ArchiveError, match="holds no volume; add some with 'diptych index'"):
        Archive.open(write_archive(tmp_path / "empty", network, []), model=network)


def test_quiet_ids_are_the_commonest_of_lesion_free_slices(path: Path, network: FeatureDecomposingNetwork) -> None:
    archive = Archive.open(path, model=network)
    codes = archive.store.codes()
    free = codes.abnormal_ids[codes.lesion_area == 0]
    expected = [np.bincount(column).argmax() for column in free.T]
    assert archive.catalogue.quiet_ids.reshape(-1).tolist() == expected
