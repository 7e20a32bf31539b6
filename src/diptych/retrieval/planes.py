"""`Planes`: label maps as packed bit planes, one or several per class, background left out.

A probability takes several planes, one per level that it reaches, one below the other in a taller mask: what two such
masks share is then the smaller of two probabilities, and their Dice coefficient is a soft one, rounded to the levels.
Knows label maps and probabilities; nothing about archives or searching.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.errors import InputError
from diptych.retrieval.bits import Words, count_bits, pack_bits, unpack_bits

__all__ = ["Planes"]


@dataclass(frozen=True, eq=False)
class Planes:
    """N label maps of C classes each."""

    grid: tuple[int, int]
    """Rows and columns of a mask; with several levels, those of all levels together."""
    words: Words
    """`[N, C, W]`."""
    areas: NDArray[np.int32]
    """Set bits of each class, `[N, C]`."""
    levels: int = 1
    """Planes per class."""

    def __len__(self) -> int:
        return len(self.words)

    @property
    def classes(self) -> int:
        return int(self.words.shape[1])

    @classmethod
    def of_masks(cls, masks: NDArray[np.bool_], *, levels: int = 1) -> Planes:
        """Pack one mask per class, `[N, C, H, W]`; each counts at every level."""
        tall = np.tile(masks, (1, 1, levels, 1))
        words = pack_bits(tall)
        return cls((tall.shape[2], tall.shape[3]), words, count_bits(words), levels)

    @classmethod
    def of_labels(cls, labels: NDArray[np.integer], *, classes: int, levels: int = 1) -> Planes:
        """Pack label maps `[N, H, W]` with labels 0 (background) to `classes`."""
        if labels.size and int(labels.max()) > classes:
            raise InputError(f"label {int(labels.max())}: label maps hold 0…{classes}; map the labels first")
        return cls.of_masks(labels[:, None] == np.arange(1, classes + 1)[:, None, None], levels=levels)

    @classmethod
    def of_probabilities(cls, probabilities: NDArray[np.floating], levels: tuple[float, ...]) -> Planes:
        """Pack probabilities of the classes, `[N, C, H, W]`: one plane for each level that they reach."""
        tall = np.concatenate([probabilities >= level for level in levels], axis=2)
        return replace(cls.of_masks(tall), levels=len(levels))

    @classmethod
    def join(cls, parts: list[Planes]) -> Planes:
        """Put planes of equal shape one after the other."""
        words, areas = (np.concatenate([getattr(part, name) for part in parts]) for name in ("words", "areas"))
        return replace(parts[0], words=words, areas=areas)

    def take(self, rows: Any) -> Planes:
        """Some of the label maps, by index, slice or mask."""
        return replace(self, words=self.words[rows], areas=self.areas[rows])

    def within(self, pixels: NDArray[np.bool_]) -> Planes:
        """The part of every mask that lies in `pixels`, as `scatter` gives them."""
        mask = pack_bits(pixels)
        return replace(self, words=self.words & mask, areas=count_bits(self.words, mask))

    def masks(self) -> NDArray[np.bool_]:
        """Unpacked, `[N, C, H, W]`."""
        return unpack_bits(self.words, self.grid)

    def scatter(self, cells: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Pixels of the masks that lie in marked cells of a coarser grid `[h, w]`."""
        rows, columns = self._cells(cells.shape)
        return cells[rows[:, None], columns]

    def gather(self, pixels: NDArray[np.float64], grid: tuple[int, int]) -> NDArray[np.float64]:
        """Sum values of pixels over the cells of a coarser grid."""
        rows, columns = self._cells(grid)
        sums = np.zeros(grid)
        np.add.at(sums, (rows[:, None], columns), pixels)
        return sums

    def _cells(self, grid: tuple[int, ...]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Row of cells of each row of pixels, and column of each column."""
        height, width = self.grid[0] // self.levels, self.grid[1]
        return np.arange(self.grid[0]) % height * grid[0] // height, np.arange(width) * grid[1] // width
