"""`Chunks`: the slices of one panel in runs, and the runs in parts: what occurs in each, and what changes.

Knows ids and volumes' borders; nothing about queries. `symbols.py` tells how it is written what occurs, `changes.py`
what changes. Bounds of runs are looked at first; bounds of parts are tighter, and looked at where runs do not suffice.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from diptych.compiling import compiled
from diptych.search.changes import DEARER, Changes, list_changes
from diptych.search.codes import Ids
from diptych.search.symbols import Level, describe_runs

__all__ = ["LENGTH", "PART", "Chunks", "LevelName", "mark_chunks"]

Ints = NDArray[np.integer]
LevelName = Literal["runs", "parts"]

LENGTH = 32
"""Slices per run."""

PART = 8
"""Slices per part of a run."""


@dataclass(frozen=True, eq=False)
class Chunks:
    """The G runs of one panel. They never cross volumes."""

    groups: NDArray[np.uint8]
    """`[P, K]`, group of each code at each position, or `UNUSED`."""
    volumes: NDArray[np.int32]
    """Volume of each run."""
    symbols: NDArray[np.uint8]
    sets: NDArray[np.uint16]
    starts: NDArray[np.int32]
    """The `Level` of runs."""
    part_symbols: NDArray[np.uint8]
    part_sets: NDArray[np.uint16]
    part_starts: NDArray[np.int32]
    """The `Level` of parts."""
    change_rows: Ids
    change_places: NDArray[np.uint16]
    change_slots: NDArray[np.uint8]
    change_firsts: NDArray[np.int64]
    change_offsets: NDArray[np.int64]
    """The runs' `Changes`."""

    @cached_property
    def runs(self) -> Level:
        """What occurs in runs."""
        return Level(self.symbols, self.sets, self.starts)

    @cached_property
    def parts(self) -> Level:
        """What occurs in parts of runs."""
        return Level(self.part_symbols, self.part_sets, self.part_starts)

    def level(self, name: LevelName) -> Level:
        """Runs, or parts of runs."""
        return self.runs if name == "runs" else self.parts

    @cached_property
    def changes(self) -> Changes:
        """What changes from slice to slice within the runs."""
        return Changes(self.change_rows, self.change_places, self.change_slots, self.change_firsts, self.change_offsets)

    @cached_property
    def first_of_volume(self) -> NDArray[np.int64]:
        """First run of each volume up to the last that has slices, and the number of runs at the end."""
        last = int(self.volumes[-1]) if len(self.volumes) else -1
        return np.searchsorted(self.volumes, np.arange(last + 2)).astype(np.int64)

    @cached_property
    def first_of_run(self) -> NDArray[np.int64]:
        """First part of each run, and the number of parts at the end."""
        return np.searchsorted(self.part_starts, self.starts).astype(np.int64)

    @cached_property
    def volumes_of_parts(self) -> NDArray[np.int32]:
        """Volume of each part."""
        return np.repeat(self.volumes, np.diff(self.first_of_run))

    @property
    def cost(self) -> float:
        """What a slice costs a scan, in cells looked up."""
        cells = len(self.groups)
        return DEARER * len(self.change_places) / int(self.starts[-1]) if self.changes else cells

    def runs_between(self, starts: Ints, stops: Ints) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """First run, and run after the last, of each range of slices; nothing where a range cuts a run."""
        begins, ends = np.empty(len(starts), np.int64), np.empty(len(starts), np.int64)
        whole = _find_runs(self.starts, self._first_near, starts, begins) and _find_runs(
            self.starts, self._first_near, stops, ends
        )
        return (begins, ends) if whole else None

    @cached_property
    def _first_near(self) -> NDArray[np.int32]:
        """The first run that begins at or after each `LENGTH`th slice."""
        return np.searchsorted(self.starts, np.arange(0, int(self.starts[-1]) + 1, LENGTH)).astype(np.int32)

    @property
    def nbytes(self) -> int:
        """Bytes that grow with the archive."""
        return self.runs.nbytes + self.parts.nbytes + self.volumes.nbytes + self.changes.nbytes


def mark_chunks(
    ids: NDArray[np.integer], volume_starts: NDArray[np.int64], groups: NDArray[np.uint8], packed: Ids
) -> Chunks:
    """Cut each volume into runs and write down what occurs in them, and what changes."""
    starts, part_starts = run_starts(volume_starts, LENGTH), run_starts(volume_starts, PART)
    volumes = np.searchsorted(volume_starts, starts[:-1], side="right") - 1
    changes = list_changes(packed, ids.shape[1], starts)
    return Chunks(
        groups,
        volumes.astype(np.int32),
        *describe_runs(ids, starts, groups),
        starts,
        *describe_runs(ids, part_starts, groups),
        part_starts,
        changes.rows,
        changes.places,
        changes.slots,
        changes.firsts,
        changes.offsets,
    )


def run_starts(volume_starts: NDArray[np.int64], length: int) -> NDArray[np.int32]:
    """First slices of runs of `length` that begin anew with each volume, and N at the end.

    >>> run_starts(np.array([0, 5, 5, 7]), 3).tolist()
    [0, 3, 5, 7]
    """
    runs = -(-np.diff(volume_starts) // length)
    within = np.arange(runs.sum()) - np.repeat(np.cumsum(runs) - runs, runs)
    starts = np.repeat(volume_starts[:-1], runs) + within * length
    return np.append(starts, volume_starts[-1]).astype(np.int32)


@compiled
def _find_runs(starts: Ints, first_near: Ints, slices: Ints, found: Ints) -> bool:
    """The runs that begin with some slices, into `found`; false when one of them begins no run."""
    for place in range(len(slices)):
        run = first_near[slices[place] // LENGTH]
        while starts[run] < slices[place]:
            run += 1
        if starts[run] != slices[place]:
            return False
        found[place] = run
    return True
