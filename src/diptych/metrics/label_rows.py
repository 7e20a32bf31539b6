"""`LabelRows`: the stored label maps of an archive's slices in one panel, in whatever segments they lie.

Looks like `Planes` to whoever takes single slices out of it, and answers for many slices at once what a search needs:
exact distances, and bounds that cost next to nothing. Knows label maps and places; nothing about queries' words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.metrics.label_planes import Planes
from diptych.search.joined import Places
from diptych.search.label_groups import TILE, LabelGroups
from diptych.search.label_maps import LEVELS, LabelMaps, Levels
from diptych.search.label_scan import LabelQuery, exact_distances, pair_distances
from diptych.search.pool import Pool

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class LabelRows:
    """N label maps in one or several segments."""

    parts: Sequence[LabelMaps]
    places: Places
    pool: Pool = field(default_factory=lambda: Pool(1))

    def __len__(self) -> int:
        return len(self.places)

    @property
    def classes(self) -> int:
        return self.parts[0].classes

    @property
    def nbytes(self) -> int:
        """Bytes that grow with the archive."""
        return sum(part.nbytes for part in self.parts) + self.groups.nbytes

    def take(self, rows: Any) -> Planes:
        """Some of the maps, unpacked."""
        return planes_of(self.level_maps(rows))

    def level_maps(self, rows: Any) -> Levels:
        """Some of the maps, unpacked, `[n, C, H, W]`."""
        return self.maps(np.asarray(rows, dtype=np.int64)).levels(np.arange(len(rows)))

    def maps(self, rows: Ints) -> LabelMaps:
        """Some of the maps, packed and in order."""
        part, local = self.places.rows(rows)
        if len(self.parts) == 1:
            return self.parts[0].take(local)
        numbers = np.unique(part).tolist()
        joined = LabelMaps.join([self.parts[number].take(local[part == number]) for number in numbers])
        order = np.concatenate([np.flatnonzero(part == number) for number in numbers])
        return joined.take(np.argsort(order))

    def scatter(self, cells: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Pixels of the planes that lie in marked cells of a coarser grid `[h, w]`."""
        rows, columns = self.parts[0].grid
        return np.tile(
            cells[np.arange(rows) * cells.shape[0] // rows][:, np.arange(columns) * cells.shape[1] // columns],
            (LEVELS, 1),
        )

    def asked(self, one: Planes, region: NDArray[np.bool_] | None) -> LabelQuery:
        """A query's planes, within a region of pixels as `scatter` gives them, ready to be compared."""
        rows = self.parts[0].grid[0]
        return LabelQuery(one.level_maps([0])[0], None if region is None else region[:rows])

    def exact(self, query: LabelQuery, rows: Ints) -> NDArray[np.float64]:
        """1 - mean Dice between the query and some slices."""
        return self._each(lambda maps, local: exact_distances(maps, query, local), rows)

    def add_group_bounds(self, query: LabelQuery, weight: float, bounds: NDArray[np.float32]) -> None:
        """Add weighted bounds to those of all groups of slices."""

        def work(share: slice) -> None:
            self.groups.add_bounds(query.blocks, query.areas, query.outside, weight, share, bounds)

        self.pool.run(work, np.full(len(self.groups.blocks), TILE))

    def pairs(self, one: Ints, other: Ints, region: NDArray[np.bool_] | None) -> NDArray[np.float64]:
        """Distances between slices, pair by pair, within a region of pixels as `scatter` gives them."""
        inside = None if region is None else region[: self.parts[0].grid[0]]
        both = self.maps(np.concatenate([one, other]))
        return pair_distances(both, np.arange(len(one)), len(one) + np.arange(len(one)), inside)

    def _each(self, work: Any, rows: Ints) -> NDArray[np.float64]:
        part, local = self.places.rows(rows)
        out = np.empty(len(rows))
        for number, maps in enumerate(self.parts):
            mine = np.flatnonzero(part == number) if len(self.parts) > 1 else np.arange(len(rows))
            if len(mine):
                chosen = local[mine]

                def share_out(share: slice, maps: LabelMaps = maps, mine: Any = mine, chosen: Ints = chosen) -> None:
                    out[mine[share]] = work(maps, chosen[share])

                self.pool.run(share_out, np.full(len(mine), 16))
        return out

    @cached_property
    def groups(self) -> LabelGroups:
        """What neighbouring slices have in common."""
        places, found = self.places, LabelGroups.empty(self.places.begins, self.classes)
        for number, maps in enumerate(self.parts):
            mine = np.flatnonzero(places.part == number)
            found.add(maps.blocks, maps.areas, mine, places.start[mine], np.diff(places.begins)[mine])
        return found


def planes_of(levels: NDArray[np.uint8]) -> Planes:
    """Levels `[n, C, H, W]` as planes, one for each level."""
    tall = np.concatenate([levels >= level for level in range(1, LEVELS + 1)], axis=2)
    return replace(Planes.of_masks(tall), levels=LEVELS)


def stored_rows(labels: Sequence[Mapping[str, LabelMaps]], places: Places | None, pool: Pool) -> dict[str, LabelRows]:
    """By panel, where every segment has its maps, all of the same classes."""
    found = {}
    for panel in labels[0] if labels and places is not None else ():
        parts = [one[panel] for one in labels if panel in one]
        alike = {(part.classes, *part.grid) for part in parts}
        if len(parts) == len(labels) and len(alike) == 1 and places is not None:
            found[panel] = LabelRows(parts, places, pool)
    return found
