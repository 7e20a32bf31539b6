"""What each code of a model stands for in an archive: how often, where, at which level, and what it decodes to.

Knows archived ids and the network; how the atlas is shown is `code_atlas_page.py`. A code is live when some slice of
the archive holds it, dead otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from diptych.archive import ArchiveCodes
from diptych.drawing.tile import Window, window_of
from diptych.errors import UsageError
from diptych.model import FeatureDecomposingNetwork
from diptych.progress import Progress, silent
from diptych.retrieval.explanation import SliceView, decode, view_slices

Panel = Literal["normal", "abnormal"]

LEVELS = 10
"""Parts into which the brain is divided from bottom to top."""
BANDS = 5
"""Levels of the head for which a mean brain is made."""
SLICES_PER_BAND = 12
CANDIDATES = 2000
"""Slices among which the most typical one for a code is looked for."""
BATCH_SIZE = 16


@dataclass(frozen=True, eq=False)
class CodeEntry:
    """One live code."""

    id: int
    count: int
    """Cells of the archive that hold it."""
    share: float
    """The same as a share of all cells."""
    heat: NDArray[np.int64]
    """Slices that hold it, by cell, `[h, w]`."""
    levels: NDArray[np.int64]
    """Cells that hold it, by level from bottom to top, `[LEVELS]`."""
    cell: tuple[int, int]
    """Where it is most frequent."""
    example: int
    """The slice, among those that hold it there, whose neighbouring cells are most like those of the others."""


@dataclass(frozen=True)
class CodePlace:
    """A slice that holds a code."""

    volume_key: str
    patient_key: str
    slice: int
    """Index of the axial plane in its volume."""
    z_mm: float
    position: float
    lesion_area_mm2: float | None
    cells: tuple[tuple[int, int], ...]
    """Row and column of each cell that holds the code."""


@dataclass(frozen=True, eq=False)
class MeanBrains:
    """What the archive's anatomy looks like on average, from the bottom of the head to its top."""

    images: NDArray[np.float32]
    """Mean healthy twin of each band, `[BANDS, C, H, W]`."""
    windows: tuple[Window, ...]
    """One per channel, from the slices that were averaged: alike for all codes, so that these can be compared."""

    def band(self, entry: CodeEntry) -> int:
        """The band in which a code is most frequent."""
        return int(entry.levels.reshape(BANDS, -1).sum(axis=1).argmax())


def code_entries(codes: ArchiveCodes, panel: Panel) -> list[CodeEntry]:
    """All live codes of a panel, the most frequent first."""
    ids, size = _panel(codes, panel)
    level = np.minimum((codes.position * LEVELS).astype(np.int64), LEVELS - 1)
    heat = np.stack([np.bincount(column, minlength=size) for column in ids.T], axis=1)  # [K, P]
    levels = np.zeros((size, LEVELS), dtype=np.int64)
    for column in ids.T:
        levels += np.bincount(column * np.int64(LEVELS) + level, minlength=size * LEVELS).reshape(size, LEVELS)
    counts = heat.sum(axis=1)
    order = np.argsort(-counts, kind="stable")
    return [
        CodeEntry(
            id=int(code),
            count=int(counts[code]),
            share=float(counts[code] / ids.size),
            heat=heat[code].reshape(codes.model.grid),
            levels=levels[code],
            cell=_row_and_column(int(heat[code].argmax()), codes),
            example=_typical_slice(ids, int(code), int(heat[code].argmax()), codes.model.grid),
        )
        for code in order
        if counts[code]
    ]


def decode_entries(
    network: FeatureDecomposingNetwork, codes: ArchiveCodes, entries: list[CodeEntry], *, progress: Progress = silent
) -> Iterator[tuple[CodeEntry, SliceView]]:
    """Each entry with its example slice decoded."""
    examples = np.array([entry.example for entry in entries], dtype=np.int64)
    for start in range(0, len(entries), BATCH_SIZE):
        batch = entries[start : start + BATCH_SIZE]
        ids = _grids(codes, examples[start : start + BATCH_SIZE])
        yield from zip(batch, view_slices(network, *ids, [None] * len(batch)), strict=True)
        progress(start + len(batch), len(entries))


def mean_brains(network: FeatureDecomposingNetwork, codes: ArchiveCodes) -> MeanBrains:
    """Decode a few slices of each band and average them; a band without any slice takes the nearest one's."""
    band = np.minimum((codes.position * BANDS).astype(np.int64), BANDS - 1)
    twins: dict[int, NDArray[np.float32]] = {}
    for number in range(BANDS):
        members = np.flatnonzero(band == number)
        if len(members):
            chosen = members[np.unique(np.linspace(0, len(members) - 1, SLICES_PER_BAND).astype(np.int64))]
            twins[number] = decode(network, *_grids(codes, chosen)).healthy_twin
    nearest = [min(twins, key=lambda known: abs(known - number)) for number in range(BANDS)]
    channels = np.concatenate(list(twins.values())).swapaxes(0, 1)  # [C, n, H, W]
    return MeanBrains(
        np.stack([twins[number].mean(axis=0) for number in nearest]), tuple(window_of(images) for images in channels)
    )


def find_code(codes: ArchiveCodes, panel: Panel, code: int, *, cell: tuple[int, int] | None = None) -> list[CodePlace]:
    """All slices that hold a code, anywhere or in one cell, in the archive's order."""
    ids, size = _panel(codes, panel)
    h, w = codes.model.grid
    if not 0 <= code < size:
        raise UsageError(f"id {code}: the {panel} codebook has ids 0 to {size - 1}")
    if cell is not None and not (0 <= cell[0] < h and 0 <= cell[1] < w):
        raise UsageError(f"cell {cell[0]},{cell[1]}: this grid has rows 0 to {h - 1} and columns 0 to {w - 1}")
    held = ids == code
    if cell is not None:
        held = held & (np.arange(h * w) == cell[0] * w + cell[1])
    places = []
    for number in np.flatnonzero(held.any(axis=1)):
        info, area = codes.volumes[codes.volume[number]], float(codes.lesion_area[number])
        places.append(
            CodePlace(
                volume_key=info.volume_key,
                patient_key=info.patient_key,
                slice=int(codes.z_index[number]),
                z_mm=round(float(codes.z_mm[number]), 2),
                position=round(float(codes.position[number]), 4),
                lesion_area_mm2=None if np.isnan(area) else area,
                cells=tuple(_row_and_column(int(place), codes) for place in np.flatnonzero(held[number])),
            )
        )
    return places


def _typical_slice(ids: NDArray[Any], code: int, cell: int, grid: tuple[int, int]) -> int:
    """Of the slices with a code in a cell, the one whose eight neighbours of it are commonest among them."""
    holders = np.flatnonzero(ids[:, cell] == code)
    holders = holders[np.unique(np.linspace(0, len(holders) - 1, CANDIDATES).astype(np.int64))]
    (h, w), (row, column) = grid, divmod(cell, grid[1])
    score = np.zeros(len(holders), dtype=np.int64)
    for r in range(max(row - 1, 0), min(row + 2, h)):
        for c in range(max(column - 1, 0), min(column + 2, w)):
            neighbours = ids[holders, r * w + c]
            score += np.bincount(neighbours)[neighbours]
    return int(holders[score.argmax()])


def _panel(codes: ArchiveCodes, panel: Panel) -> tuple[NDArray[Any], int]:
    """Ids `[N, P]` and size of the codebook."""
    if panel == "normal":
        return codes.normal_ids, codes.model.normal_codes
    return codes.abnormal_ids, codes.model.abnormal_codes


def _grids(codes: ArchiveCodes, slices: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
    grid = codes.model.grid
    return codes.normal_ids[slices].reshape(-1, *grid), codes.abnormal_ids[slices].reshape(-1, *grid)


def _row_and_column(cell: int, codes: ArchiveCodes) -> tuple[int, int]:
    row, column = divmod(cell, codes.model.grid[1])
    return row, column
