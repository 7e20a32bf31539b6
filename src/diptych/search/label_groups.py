"""`LabelGroups`: what label maps of neighbouring slices have in common, so that one look bounds eight distances.

For each group of slices of one volume: the largest sum of levels in every block, and the smallest area. No slice of the
group shares more with a query than the sum over blocks of the smaller of the query's amount and the group's largest.
Groups lie in tiles, block by block, so that the same block of all groups of a tile is compared at once. Knows arrays;
nothing about queries' words or segments.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diptych.compiling import compiled
from diptych.search.label_maps import BLOCKS

GROUP = 8
"""Slices of a group, at most."""
TILE = 64
"""Groups of a tile."""
BLOCK_COUNT = BLOCKS * BLOCKS

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Counts = NDArray[np.uint16]
Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class LabelGroups:
    """The groups of all volumes of one panel, in the archive's order; T tiles."""

    firsts: Ints
    """First group of each volume, and their number at the end, `[V + 1]`."""
    blocks: Bytes
    """Largest sums over blocks, `[T, C · BLOCKS², TILE]`."""
    areas: Counts
    """Smallest areas, `[T, C, TILE]`."""

    @classmethod
    def empty(cls, volume_starts: Ints, classes: int) -> LabelGroups:
        """Groups of volumes with these slices, still to be filled by `add`."""
        firsts = np.append(0, np.cumsum(-(-np.diff(volume_starts) // GROUP))).astype(np.int64)
        tiles = -(-int(firsts[-1]) // TILE)
        blocks = np.zeros((tiles, classes * BLOCK_COUNT, TILE), dtype=np.uint8)
        return cls(firsts, blocks, np.zeros((tiles, classes, TILE), dtype=np.uint16))

    def __len__(self) -> int:
        return int(self.firsts[-1])

    @property
    def room(self) -> int:
        """Groups that all tiles have room for."""
        return len(self.blocks) * TILE

    @property
    def nbytes(self) -> int:
        """Bytes that grow with the archive."""
        return self.blocks.nbytes + self.areas.nbytes

    def add(self, blocks: Bytes, areas: Counts, volumes: Ints, starts: Ints, lengths: Ints) -> None:
        """Take in some volumes, whose slices begin at `starts` in the arrays given."""
        _collect(blocks.reshape(len(blocks), -1), areas, volumes, starts, lengths, self.firsts, self.blocks, self.areas)

    def add_bounds(self, blocks: Bytes, areas: Ints, outside: int, weight: float, tiles: slice, out: Floats) -> None:
        """Add weighted bounds of a query with these sums over blocks `[C, BLOCKS²]` to those of groups in some tiles.

        Of a group's area, `outside` levels may not count. `out` has room for all groups of all tiles.
        """
        asked = np.ascontiguousarray(blocks).reshape(-1)
        own, room = areas.astype(np.float32), out.reshape(-1, TILE)[tiles]
        _bound(self.blocks[tiles], self.areas[tiles], asked, np.flatnonzero(asked), own, outside, weight, room)


@compiled
def _collect(
    blocks: Bytes,
    areas: Counts,
    volumes: Ints,
    starts: Ints,
    lengths: Ints,
    firsts: Ints,
    largest: Bytes,
    smallest: Counts,
) -> None:
    most, least = np.zeros(blocks.shape[1], np.uint8), np.zeros(areas.shape[1], np.uint16)
    for v in range(len(volumes)):
        for place in range(0, lengths[v], GROUP):
            first, last = starts[v] + place, starts[v] + min(place + GROUP, lengths[v])
            most[:], least[:] = blocks[first], areas[first]
            for row in range(first + 1, last):
                for k in range(len(most)):
                    most[k] = max(most[k], blocks[row, k])
                for c in range(len(least)):
                    least[c] = min(least[c], areas[row, c])
            group = firsts[volumes[v]] + place // GROUP
            largest[group // TILE, :, group % TILE] = most
            smallest[group // TILE, :, group % TILE] = least


@compiled
def _bound(
    blocks: Bytes,
    areas: Counts,
    asked: Bytes,
    filled: Ints,
    own: Floats,
    outside: int,
    weight: float,
    out: Floats,
) -> None:
    """Only blocks that the query fills are read."""
    most = np.empty((len(own), TILE), np.uint16)
    total, present = np.empty(TILE, np.float32), np.empty(TILE, np.float32)
    for tile in range(len(blocks)):
        most[:] = 0
        for k in filled:
            _add_smaller(blocks[tile, k], asked[k], most[k // BLOCK_COUNT])
        total[:], present[:] = 0, 0
        for c in range(len(own)):
            _add_dice(most[c], areas[tile, c], own[c], np.float32(outside), total, present)
        for i in range(TILE):
            mean = total[i] / max(present[i], np.float32(1))
            out[tile, i] += np.float32(weight) * (np.float32(present[i] > 0) - mean)


@compiled
def _add_smaller(amounts: Bytes, asked: np.uint8, most: Counts) -> None:
    """A function of its own: what compilers make quick."""
    for i in range(TILE):
        most[i] += min(amounts[i], asked)


@compiled
def _add_dice(
    most: Counts, areas: Counts, own: np.float32, outside: np.float32, total: Floats, present: Floats
) -> None:
    for i in range(TILE):
        shared, least = np.float32(most[i]), max(np.float32(areas[i]) - outside, np.float32(0))
        present[i] += np.float32(own + least > 0)
        total[i] += np.float32(2) * shared / max(own + max(shared, least), np.float32(1))


@compiled
def lowest_of_volumes(bounds: Floats, volumes: Ints, firsts: Ints, out: Floats) -> None:
    """The lowest bound among the groups of each volume."""
    for v in range(len(volumes)):
        lowest = np.float32(np.inf)
        for group in range(firsts[volumes[v]], firsts[volumes[v] + 1]):
            lowest = min(lowest, bounds[group])
        out[v] = lowest
