"""`LabelMaps`: decoded label maps of one panel over many slices, in a few hundred bytes each, ready to be compared.

A pixel holds a level 0…L for each class: how many of L thresholds its probability reaches. The levels of all classes
in one pixel are a *state*; a slice is a list of runs of equal states, row by row. Real maps have a few dozen states and
some 180 runs for six anatomy and three lesion classes together. Beside the runs stand each class's area and its sums
over 4 × 4 blocks: they bound the overlap of two maps, so that most maps are never unpacked (`label_scan.py`).

Arrays in, arrays out. Knows nothing about models, files or queries. The overlap of two maps in a class is the sum over
pixels of the smaller level: the bits that two stacks of L planes share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.compiling import compiled
from diptych.errors import InputError

LEVELS = 3
"""Thresholds that a probability may reach."""
BLOCKS = 4
"""Blocks along a side of the map."""
LONGEST = 256
"""Pixels of one run, at most: its length less one is a byte."""

Levels = NDArray[np.uint8]
"""`[N, C, H, W]`, 0…LEVELS."""
Bytes = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class LabelMaps:
    """N maps of C classes; make some with `LabelMaps.pack`."""

    size: NDArray[np.int64]
    """Rows and columns of a map, `[2]`."""
    states: Bytes
    """Levels of each state, `[U, C]`, at most 256 states; the first one is empty everywhere."""
    run_state: Bytes
    """`[R]`."""
    run_length: Bytes
    """Pixels of each run less one, `[R]`."""
    firsts: NDArray[np.int64]
    """First run of each map, and R at the end, `[N + 1]`."""
    areas: NDArray[np.uint16]
    """Sum of levels, `[N, C]`."""
    blocks: Bytes
    """Sums of levels over blocks, `[N, C, BLOCKS²]`."""

    def __len__(self) -> int:
        return len(self.areas)

    @property
    def classes(self) -> int:
        return int(self.states.shape[1])

    @property
    def grid(self) -> tuple[int, int]:
        return int(self.size[0]), int(self.size[1])

    @property
    def nbytes(self) -> int:
        """Bytes that grow with the archive."""
        return sum(getattr(self, name).nbytes for name in ("run_state", "run_length", "firsts", "areas", "blocks"))

    @classmethod
    def pack(cls, levels: Levels) -> LabelMaps:
        """Pack maps `[N, C, H, W]`."""
        count, classes, rows, columns = levels.shape
        if levels.size and int(levels.max()) > LEVELS:
            raise InputError(f"level {int(levels.max())}: label maps hold 0…{LEVELS}")
        if rows % BLOCKS or columns % BLOCKS or rows * columns // BLOCKS**2 * LEVELS > 255:
            raise InputError(f"maps of {rows}x{columns} pixels: sides are multiples of {BLOCKS}, at most 32")
        keys = np.zeros((count, rows * columns), dtype=np.int64)
        for place in range(classes):
            keys = keys * (LEVELS + 1) + levels[:, place].reshape(count, -1)
        known = np.unique(np.append(keys.reshape(-1), 0))
        if len(known) > 256:
            raise InputError(f"{len(known)} states of pixels: label maps that belong together have at most 256")
        states = np.stack([known // (LEVELS + 1) ** (classes - 1 - c) % (LEVELS + 1) for c in range(classes)], axis=1)
        return cls.of_states(np.searchsorted(known, keys).astype(np.uint8), states.astype(np.uint8), (rows, columns))

    @classmethod
    def of_states(cls, pixels: Bytes, states: Bytes, grid: tuple[int, int]) -> LabelMaps:
        """Pack the state of each pixel, `[N, H·W]`, a row of `states` `[U, C]`."""
        firsts = np.append(0, np.cumsum(_count_runs(pixels)))
        run_state, run_length = np.empty(firsts[-1], np.uint8), np.empty(firsts[-1], np.uint8)
        _list_runs(pixels, run_state, run_length)
        blocks = np.zeros((len(pixels), states.shape[1], BLOCKS**2), dtype=np.uint8)
        _sum_blocks(pixels, states, _block_of_pixel(grid), blocks)
        areas = blocks.sum(axis=2, dtype=np.uint16)
        return cls(np.array(grid, dtype=np.int64), states, run_state, run_length, firsts, areas, blocks)

    def levels(self, rows: NDArray[np.integer]) -> Levels:
        """Unpack some maps, `[n, C, H, W]`."""
        pixels = np.zeros((len(rows), int(self.size.prod())), dtype=np.uint8)
        _unpack(self.run_state, self.run_length, self.firsts, np.asarray(rows, dtype=np.int64), pixels)
        return np.ascontiguousarray(self.states[pixels].transpose(0, 2, 1)).reshape(len(rows), -1, *self.grid)

    def take(self, rows: NDArray[np.int64]) -> LabelMaps:
        """Some of the maps, in any order."""
        counts = self.firsts[rows + 1] - self.firsts[rows]
        firsts = np.append(0, np.cumsum(counts))
        runs = np.repeat(self.firsts[rows] - firsts[:-1], counts) + np.arange(firsts[-1])
        return replace(
            self,
            run_state=self.run_state[runs],
            run_length=self.run_length[runs],
            firsts=firsts,
            areas=self.areas[rows],
            blocks=self.blocks[rows],
        )

    def slice(self, start: int, stop: int) -> LabelMaps:
        """Neighbouring maps; nothing is copied but the list of first runs."""
        first, end = int(self.firsts[start]), int(self.firsts[stop])
        return replace(
            self,
            run_state=self.run_state[first:end],
            run_length=self.run_length[first:end],
            firsts=self.firsts[start : stop + 1] - first,
            areas=self.areas[start:stop],
            blocks=self.blocks[start:stop],
        )

    @classmethod
    def join(cls, parts: Sequence[LabelMaps]) -> LabelMaps:
        """Maps of several lists, one after the other, with their states brought together."""
        if any(not np.array_equal(part.size, parts[0].size) or part.classes != parts[0].classes for part in parts):
            raise InputError("label maps of different shapes: decode the archive again with one model")
        known = np.unique(np.concatenate([part.states for part in parts]), axis=0)
        if len(known) > 256:
            raise InputError(f"{len(known)} states of pixels: label maps that belong together have at most 256")
        keys = {row.tobytes(): place for place, row in enumerate(known)}
        moved = [np.array([keys[row.tobytes()] for row in part.states], dtype=np.uint8) for part in parts]
        begins = np.cumsum([0, *[len(part.run_state) for part in parts]])
        return cls(
            parts[0].size,
            known,
            np.concatenate([move[part.run_state] for move, part in zip(moved, parts, strict=True)]),
            np.concatenate([part.run_length for part in parts]),
            np.concatenate(
                [*[part.firsts[:-1] + begin for begin, part in zip(begins, parts, strict=False)], begins[-1:]]
            ),
            np.concatenate([part.areas for part in parts]),
            np.concatenate([part.blocks for part in parts]),
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything as named arrays, for files; `restore` takes them back."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def restore(cls, arrays: dict[str, NDArray[Any]]) -> LabelMaps:
        """Take back what `arrays` gave, memory-mapped or not; ValueError for arrays that do not fit together."""
        maps = cls(**{field.name: arrays[field.name] for field in fields(cls)})
        count, runs = len(maps.areas), len(maps.run_state)
        fits = (
            maps.states.ndim == 2
            and 0 < len(maps.states) <= 256
            and maps.areas.shape == (count, maps.classes)
            and maps.blocks.shape == (count, maps.classes, BLOCKS**2)
            and maps.firsts.shape == (count + 1,)
            and maps.run_length.shape == (runs,)
            and (int(maps.firsts[0]), int(maps.firsts[-1])) == (0, runs)
            and bool((np.diff(maps.firsts) > 0).all())
            and (runs == 0 or int(maps.run_state.max()) < len(maps.states))
        )
        if not fits or not np.array_equal(_covered(maps.run_length, maps.firsts), np.full(count, maps.size.prod())):
            raise ValueError("arrays of label maps that do not fit together")
        return maps


def _block_of_pixel(grid: tuple[int, int]) -> NDArray[np.int64]:
    """The block that each pixel lies in, row by row, `[H·W]`."""
    rows, columns = (np.arange(side) * BLOCKS // side for side in grid)
    return np.asarray((rows[:, None] * BLOCKS + columns).reshape(-1))


@compiled
def _sum_blocks(pixels: Bytes, states: Bytes, block: NDArray[np.int64], blocks: Bytes) -> None:
    for row in range(len(pixels)):
        for at in range(pixels.shape[1]):
            state = pixels[row, at]
            if state > 0:
                for c in range(states.shape[1]):
                    blocks[row, c, block[at]] += states[state, c]


@compiled
def _count_runs(pixels: Bytes) -> NDArray[np.int64]:
    """Runs of each map."""
    counts = np.zeros(len(pixels), np.int64)
    for row in range(len(pixels)):
        begin = 0
        for at in range(1, pixels.shape[1] + 1):
            if at == pixels.shape[1] or pixels[row, at] != pixels[row, at - 1] or at - begin == LONGEST:
                counts[row] += 1
                begin = at
    return counts


@compiled
def _list_runs(pixels: Bytes, states: Bytes, lengths: Bytes) -> None:
    """Write the runs of all maps down, as `_count_runs` counts them."""
    place = 0
    for row in range(len(pixels)):
        begin = 0
        for at in range(1, pixels.shape[1] + 1):
            if at == pixels.shape[1] or pixels[row, at] != pixels[row, at - 1] or at - begin == LONGEST:
                states[place] = pixels[row, begin]
                lengths[place] = at - begin - 1
                place += 1
                begin = at


@compiled
def _unpack(states: Bytes, lengths: Bytes, firsts: NDArray[np.int64], rows: NDArray[np.int64], pixels: Bytes) -> None:
    for place in range(len(rows)):
        at = np.int64(0)
        for run in range(firsts[rows[place]], firsts[rows[place] + 1]):
            end = at + np.int64(lengths[run]) + 1
            pixels[place, at:end] = states[run]
            at = end


@compiled
def _covered(lengths: Bytes, firsts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Pixels that the runs of each map cover."""
    covered = np.zeros(len(firsts) - 1, np.int64)
    for row in range(len(covered)):
        for run in range(firsts[row], firsts[row + 1]):
            covered[row] += np.int64(lengths[run]) + 1
    return covered
