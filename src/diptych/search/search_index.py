"""`SearchIndex`: what searching needs of an archive, and nothing else: ids, volumes, patients, lesion-free flags.

Arrays in, arrays out. Knows nothing about files, models or where the arrays came from.

Slices stand in the order of their stable ids, those of one volume together; the place of a slice, a volume or a
patient in these arrays is how queries and matches name it, and equal distances are settled by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.errors import InputError
from diptych.search.chunks import Chunks, group_codes, mark_chunks
from diptych.search.joined import JoinedCodes, Places
from diptych.search.panel_codes import PanelCodes, pack
from diptych.search.query import PANELS
from diptych.search.tables import Tables

LAYOUT = 2
"""Which arrays an index is made of, and what they mean; another layout is not taken back."""


@dataclass(frozen=True, eq=False)
class SearchIndex:
    """N slices of V volumes, packed for scanning; make one with `SearchIndex.build`."""

    grid: tuple[int, int]
    """Rows and columns of an id grid, h × w."""
    codes: Mapping[str, PanelCodes]
    """Packed ids by panel."""
    chunks: Mapping[str, Chunks]
    """What is known of runs of neighbouring slices, by panel; nothing where several segments have each their own."""
    volume_starts: NDArray[np.int64]
    """First slice of each volume, and N at the end, `[V + 1]`."""
    patient_of_volume: NDArray[np.int64]
    """`[V]`."""
    lesion_free: NDArray[np.bool_]
    """Slices known to hold no lesion, `[N]`."""

    def __len__(self) -> int:
        return len(self.lesion_free)

    @property
    def joined(self) -> bool:
        """Whether the slices lie in several segments."""
        return isinstance(self.codes["normal"], JoinedCodes)

    @property
    def cells(self) -> int:
        return self.grid[0] * self.grid[1]

    @property
    def volumes(self) -> int:
        return len(self.patient_of_volume)

    @classmethod
    def build(
        cls,
        *,
        grid: tuple[int, int],
        normal: NDArray[np.integer],
        abnormal: NDArray[np.integer],
        volume_of_slice: NDArray[np.integer],
        patient_of_volume: NDArray[np.integer],
        lesion_free: NDArray[np.bool_],
        tables: Tables,
    ) -> SearchIndex:
        """Pack ids `[N, h*w]` of both panels; the tables tell how many codes there are and which are alike."""
        panels = {"normal": np.asarray(normal), "abnormal": np.asarray(abnormal)}
        _check(grid, panels, volume_of_slice, len(patient_of_volume), len(lesion_free))
        starts = np.searchsorted(volume_of_slice, np.arange(len(patient_of_volume) + 1)).astype(np.int64)
        patients = np.asarray(patient_of_volume, dtype=np.int64)
        codes, chunks = {}, {}
        for panel, ids in panels.items():
            table = next(iter(tables.panel(panel).values()))
            codes[panel] = pack(ids, codes=table.codes)
            chunks[panel] = mark_chunks(ids, starts, group_codes(ids, table), codes[panel].packed)
        return cls(grid, codes, chunks, starts, patients, np.asarray(lesion_free, dtype=np.bool_))

    @classmethod
    def join(cls, parts: Sequence[SearchIndex], places: Places, patient_of_volume: NDArray[np.int64]) -> SearchIndex:
        """The volumes of several indexes as one, in the order and places given; nothing but flags is copied."""
        part, rows = places.rows(np.arange(len(places)))
        lesion_free = np.empty(len(places), dtype=np.bool_)
        for number, index in enumerate(parts):
            lesion_free[part == number] = index.lesion_free[rows[part == number]]
        codes = {
            panel: JoinedCodes.of([(index.codes[panel], index.chunks[panel]) for index in parts], places)
            for panel in PANELS
        }
        return cls(parts[0].grid, codes, {}, places.begins, patient_of_volume, lesion_free)

    def volume_of(self, slices: NDArray[np.integer]) -> NDArray[np.int64]:
        """The volume that each slice belongs to."""
        return np.searchsorted(self.volume_starts, slices, side="right").astype(np.int64) - 1

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything as named arrays, for `diptych.archive.array_file`; `restore` takes them back."""
        named: dict[str, NDArray[Any]] = {
            "layout": np.array([LAYOUT], dtype=np.int64),
            "grid": np.array(self.grid, dtype=np.int64),
            "volume_starts": self.volume_starts,
            "patient_of_volume": self.patient_of_volume,
            "lesion_free": self.lesion_free,
        }
        for panel in PANELS:
            for part in (self.codes[panel], self.chunks[panel]):
                named |= {f"{panel}.{field.name}": getattr(part, field.name) for field in fields(part)}
        return named

    @classmethod
    def restore(cls, arrays: Mapping[str, NDArray[Any]]) -> SearchIndex:
        """Take back what `arrays` gave; nothing is copied, so the arrays may be memory-mapped.

        Raises KeyError or ValueError for arrays of another layout: they are built anew.
        """

        def part(panel: str, of: type[PanelCodes] | type[Chunks]) -> dict[str, NDArray[Any]]:
            return {field.name: arrays[f"{panel}.{field.name}"] for field in fields(of)}

        if int(arrays["layout"][0]) != LAYOUT:
            raise ValueError("an index of another layout")
        rows, columns = (int(n) for n in arrays["grid"])
        return cls(
            (rows, columns),
            {panel: PanelCodes(**part(panel, PanelCodes)) for panel in PANELS},
            {panel: Chunks(**part(panel, Chunks)) for panel in PANELS},
            arrays["volume_starts"].astype(np.int64),
            arrays["patient_of_volume"].astype(np.int64),
            arrays["lesion_free"].astype(np.bool_),
        )


def _check(
    grid: tuple[int, int],
    panels: Mapping[str, NDArray[np.integer]],
    volume_of_slice: NDArray[np.integer],
    volumes: int,
    flags: int,
) -> None:
    slices = len(volume_of_slice)
    for panel, ids in panels.items():
        if ids.shape != (slices, grid[0] * grid[1]):
            raise InputError(
                f"{panel} ids of shape {ids.shape}: {slices} slices of a {grid[0]}x{grid[1]} grid need "
                f"({slices}, {grid[0] * grid[1]}); index the archive again"
            )
    if flags != slices:
        raise InputError(f"{flags} lesion-free flags for {slices} slices: one per slice is needed")
    if slices and (
        np.any(volume_of_slice[1:] < volume_of_slice[:-1])
        or not 0 <= volume_of_slice[0] <= volume_of_slice[-1] < volumes
    ):
        raise InputError(f"volumes of slices: slices stand in the order of their volumes, 0…{volumes - 1}")
