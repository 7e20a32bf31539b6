"""The lesion wherever it sits: the query's lesion is put in every place of the grid, and the best place counts.

Knows id grids and the searcher; nothing about images. A placement lifts the lesion's cells off the query (what is
usual without a lesion takes their place) and lays them down some rows and columns away. Each placement is a query of
its own; a patient's distance is that of its best placement, so an answer equals a search over all placements at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from diptych.metrics.searcher import Searcher
from diptych.search import Match, Query

Grid = NDArray[np.integer]


@dataclass(frozen=True, eq=False)
class PlacedLesion:
    """A query whose lesion was put in some place before it was compared."""

    ids: Grid
    """Abnormal ids, `[h, w]`."""
    cells: NDArray[np.bool_]
    """Cells that the lesion has come to lie in, `[h, w]`."""
    rows: int = 0
    """Cells that it was moved down."""
    columns: int = 0
    """Cells that it was moved towards the patient's left."""
    mirrored: bool = False
    """Whether it was taken to the other side of the head first."""


def place_lesion(
    ids: Grid, lesion: NDArray[np.bool_], quiet: Grid, *, mirrored: bool = False
) -> Iterator[PlacedLesion]:
    """The lesion in every place where all of it stays on the grid, its own place first.

    Args:
        ids: abnormal ids `[h, w]`.
        lesion: the cells that move, `[h, w]`.
        quiet: what stands in a cell without a lesion, `[h, w]`.
        mirrored: whether `ids` were mirrored before, for the record.
    """
    h, w = ids.shape
    rows, columns = np.nonzero(lesion)
    without = np.where(lesion, quiet, ids)
    moves = [
        (down, across)
        for down in range(-int(rows.min()), h - int(rows.max()))
        for across in range(-int(columns.min()), w - int(columns.max()))
    ]
    for down, across in sorted(moves, key=lambda move: move != (0, 0)):
        placed, there = without.copy(), np.zeros_like(lesion)
        placed[rows + down, columns + across] = ids[rows, columns]
        there[rows + down, columns + across] = True
        yield PlacedLesion(placed, there, down, across, mirrored)


def search_placements(
    searcher: Searcher, query: Query, lesions: Sequence[PlacedLesion], *, inside_lesion: bool = False
) -> list[tuple[Match, PlacedLesion]]:
    """The best matches over all places; of equally good places the first counts.

    With `inside_lesion` only the cells that the lesion has come to lie in are compared, otherwise the whole grid.
    """
    query = searcher.settle_codes(query, "to search anywhere")
    queries = [replace(query, abnormal=one.ids, region=one.cells if inside_lesion else None) for one in lesions]
    answers = searcher.search_batch(queries)  # the best of all places are among the best of their own place
    found = [(match, one) for one, matches in zip(lesions, answers, strict=True) for match in matches]
    found.sort(key=lambda pair: (pair[0].distance, pair[0].volume))
    best: dict[int, tuple[Match, PlacedLesion]] = {}
    for match, one in found:
        best.setdefault(match.patient if query.group == "patient" else match.volume, (match, one))
    return list(best.values())[: query.top]
