"""The cache file: what went in comes out, and nothing else ever does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from diptych.search import SearchEngine, SearchIndex, load_arrays, save_arrays
from tests.search.oracle import make_archive

ARRAYS: dict[str, NDArray[Any]] = {
    "ids": np.arange(60, dtype=np.uint8).reshape(4, 15),
    "empty": np.empty((0, 3), dtype=np.int32),
    "flags": np.array([True, False]),
}


def test_arrays_come_back_as_they_were(tmp_path: Path) -> None:
    assert save_arrays(tmp_path / "cache", ARRAYS, key="v1")
    loaded = load_arrays(tmp_path / "cache", key="v1")
    assert loaded is not None
    for name, array in ARRAYS.items():
        assert loaded[name].dtype == array.dtype
        np.testing.assert_array_equal(loaded[name], array)


def test_another_key_is_stale(tmp_path: Path) -> None:
    save_arrays(tmp_path / "cache", ARRAYS, key="v1")
    assert load_arrays(tmp_path / "cache", key="v2") is None


def test_an_absent_file_is_nothing(tmp_path: Path) -> None:
    assert load_arrays(tmp_path / "cache", key="v1") is None


def test_no_flipped_byte_gives_other_arrays(tmp_path: Path) -> None:
    path = tmp_path / "cache"
    save_arrays(path, ARRAYS, key="v1")
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        loaded = load_arrays(path, key="v1")
        assert loaded is None or all((loaded[name] == array).all() for name, array in ARRAYS.items())


def test_no_truncation_is_believed(tmp_path: Path) -> None:
    path = tmp_path / "cache"
    save_arrays(path, {"ids": ARRAYS["ids"]}, key="v1")
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert load_arrays(path, key="v1") is None


def test_a_folder_that_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    assert not save_arrays(tmp_path / "missing" / "cache", ARRAYS, key="v1")


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    assert not save_arrays(tmp_path / "cache", ARRAYS, key="v1")
    assert list(tmp_path.iterdir()) == []


def test_an_index_from_the_cache_answers_alike(tmp_path: Path) -> None:
    archive = make_archive(8)
    index = archive.index()
    save_arrays(tmp_path / "cache", index.arrays(), key="archive 1")
    loaded = load_arrays(tmp_path / "cache", key="archive 1")
    assert loaded is not None
    query = archive.query(0, by="both", metric="angular")
    one, other = (SearchEngine(made, archive.tables) for made in (index, SearchIndex.restore(loaded)))
    assert [m.slice for m in one.search(query)] == [m.slice for m in other.search(query)]


def test_an_index_of_another_layout_is_refused() -> None:
    arrays = make_archive(8).index().arrays()
    with pytest.raises(ValueError, match="another layout"):
        SearchIndex.restore(arrays | {"layout": arrays["layout"] + 1})
