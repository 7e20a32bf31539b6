"""`Catalogue`: one version of an archive, ready to be searched, and the cache that makes opening quick.

Knows archives and search indexes; nothing about models or questions. The cache is one file in the archive's cache
folder. It is used only when every row of the archive is whole and its version is the one the cache was made from, and
only after its own checksums hold; otherwise the catalogue is built from the archive, which is always right. Where the
folder cannot be written there is no cache, and nothing else changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych import archive
from diptych.archive import VolumeInfo
from diptych.errors import ArchiveError
from diptych.search import SearchIndex, load_arrays, save_arrays
from diptych.search.tables import Tables

CACHE_FILE = "search.arrays"
CACHE_VERSION = 2
"""Raise it whenever `SearchIndex` or the columns below change."""

COLUMNS = ("z_index", "position", "z_mm", "lesion_area")
SAMPLE = 20_000
"""Slices that statistics over an archive look at, at most."""


@dataclass(frozen=True, eq=False)
class Catalogue:
    """The index with what is known of each volume and slice; all arrays are in the index's order."""

    version: str
    index: SearchIndex
    volumes: tuple[VolumeInfo, ...]
    z_index: NDArray[np.uint16]
    """`[N]`, as are the next three."""
    position: NDArray[np.float32]
    z_mm: NDArray[np.float32]
    lesion_area: NDArray[np.float32]
    problems: tuple[str, ...] = ()
    """Damaged volumes that are left out; whoever shows an answer must show these too."""

    @cached_property
    def patients(self) -> dict[str, int]:
        """The index's number of each patient."""
        numbers = self.index.patient_of_volume.tolist()
        return {info.patient_key: number for info, number in zip(self.volumes, numbers, strict=True)}

    def sample(self) -> NDArray[np.int64]:
        """Slices spread evenly over the archive, all of a small one."""
        return np.unique(np.linspace(0, len(self.index) - 1, min(len(self.index), SAMPLE)).round().astype(np.int64))

    def frequencies(self, panel: str, slices: NDArray[np.int64]) -> NDArray[np.float64]:
        """How often each code stands in each cell of these slices, `[P, K]`, as a share of them."""
        codes = self.index.codes[panel]
        counts = [np.bincount(column, minlength=codes.codes) for column in codes.ids(slices).T]
        return np.stack(counts) / max(len(slices), 1)

    @cached_property
    def quiet_ids(self) -> NDArray[np.int64]:
        """The commonest abnormal id of each cell among lesion-free slices (among all, where none is known), `[h, w]`:
        what stands where there is nothing abnormal."""
        slices = self.sample()
        free = slices[self.index.lesion_free[slices]]
        shares = self.frequencies("abnormal", free if len(free) else slices)
        return np.asarray(np.argmax(shares, axis=1), dtype=np.int64).reshape(self.index.grid)


def open_catalogue(store: archive.ArchiveStore, tables: Tables) -> Catalogue:
    """The current version of an archive, from its cache where that can be trusted."""
    listing = store.listing()
    if not listing.volumes and not listing.problems:
        raise ArchiveError(f"{store.path}: holds no volume; add some with 'diptych index'")
    if not listing.problems:
        arrays = load_arrays(store.cache_folder / CACHE_FILE, key=_key(listing.version))
        if arrays is not None and (found := _restore(arrays, listing)) is not None:
            return found
    return _build(store, tables)


def _build(store: archive.ArchiveStore, tables: Tables) -> Catalogue:
    codes = store.codes()
    if not codes.volumes:
        raise ArchiveError(f"{store.path}: every volume is damaged ({codes.problems[0]}); index the sources again")
    index = SearchIndex.build(
        grid=codes.model.grid,
        normal=codes.normal_ids,
        abnormal=codes.abnormal_ids,
        volume_of_slice=codes.volume,
        patient_of_volume=_number(codes.patient_keys),
        lesion_free=codes.lesion_area == 0,
        tables=tables,
    )
    columns: dict[str, Any] = {name: getattr(codes, name) for name in COLUMNS}
    if not codes.problems:
        _save(store, codes.version, {**index.arrays(), **columns})
    return Catalogue(codes.version, index, codes.volumes, **columns, problems=codes.problems)


def _save(store: archive.ArchiveStore, version: str, arrays: dict[str, NDArray[Any]]) -> None:
    """Write the cache, and take it back if the archive has moved on: what was removed must not linger in a cache."""
    path = store.cache_folder / CACHE_FILE
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        save_arrays(path, arrays, key=_key(version))
        if store.version != version:
            path.unlink(missing_ok=True)


def _restore(arrays: dict[str, NDArray[Any]], listing: archive.Listing) -> Catalogue | None:
    """The cached catalogue, or nothing when it does not fit the archive's volumes."""
    try:
        index = SearchIndex.restore(arrays)
        columns: dict[str, Any] = {name: arrays[name] for name in COLUMNS}
    except (KeyError, ValueError, TypeError):
        return None
    fits = (
        np.array_equal(np.diff(index.volume_starts), listing.slices)
        and np.array_equal(index.patient_of_volume, _number([info.patient_key for info in listing.volumes]))
        and all(column.shape == (len(index),) for column in columns.values())
    )
    return Catalogue(listing.version, index, listing.volumes, **columns) if fits else None


def _number(patient_keys: Sequence[str]) -> NDArray[np.int64]:
    """Number patients in the order of their keys, `[V]`."""
    return np.unique(np.array(patient_keys, dtype=object), return_inverse=True)[1].astype(np.int64)


def _key(version: str) -> str:
    return f"catalogue {CACHE_VERSION} of {version}"
