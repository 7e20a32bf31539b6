"""`Chunks`: which kinds of codes occur in runs of neighbouring slices, one byte per run and grid position.

Knows ids and volumes' borders; nothing about queries.

At each position the codes are put into eight groups of similar ones. A run of slices is marked, per position, with
the groups that occur in it. No slice of a run can be nearer to a query than the sum, over positions, of the nearest
code in any marked group: an exact bound at the price of one row scan per run. Coarse runs are looked at first, fine
ones where coarse ones survive.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.compiling import compiled
from diptych.tables import DistanceTable

__all__ = ["GROUPS", "LENGTHS", "Chunks", "Level", "group_codes", "mark_chunks"]

GROUPS = 8
"""Groups of codes per position: as many as a byte has bits."""

UNUSED = 255
"""Group of codes that no slice has at a position."""

LENGTHS = {"coarse": 16, "fine": 4}
"""Slices per run."""


@dataclass(frozen=True, eq=False)
class Level:
    """All runs of one length."""

    name: str
    marks: NDArray[np.uint8]
    starts: NDArray[np.int32]
    """First slice of each run, and N at the end."""
    volumes: NDArray[np.int32]
    """Volume of each run."""
    children: NDArray[np.int64]
    """First fine run in each coarse run, and their number at the end."""

    @cached_property
    def first_of_volume(self) -> NDArray[np.int64]:
        """First run of each volume up to the last that has slices, and the number of runs at the end."""
        last = int(self.volumes[-1]) if len(self.volumes) else -1
        return np.searchsorted(self.volumes, np.arange(last + 2)).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Chunks:
    """Marks of one panel. Runs never cross volumes."""

    groups: NDArray[np.uint8]
    """`[P, K]`, group of each code at each position, or `UNUSED`."""
    coarse: NDArray[np.uint8]
    """`[G, P]`, one bit per group that occurs in the run."""
    coarse_starts: NDArray[np.int32]
    """First slice of each run, and N at the end, `[G + 1]`."""
    coarse_volumes: NDArray[np.int32]
    """Volume of each run, `[G]`."""
    fine: NDArray[np.uint8]
    fine_starts: NDArray[np.int32]
    fine_volumes: NDArray[np.int32]

    @cached_property
    def levels(self) -> dict[str, Level]:
        """The two levels of runs, coarse first."""
        fine = Level("fine", self.fine, self.fine_starts, self.fine_volumes, np.empty(0, np.int64))
        children = np.searchsorted(self.fine_starts, self.coarse_starts).astype(np.int64)
        return {"coarse": Level("coarse", self.coarse, self.coarse_starts, self.coarse_volumes, children), "fine": fine}

    @property
    def nbytes(self) -> int:
        """Bytes that grow with the archive."""
        return sum(int(getattr(self, field.name).nbytes) for field in fields(self) if field.name != "groups")


def group_codes(ids: NDArray[np.integer], table: DistanceTable, *, rounds: int = 6) -> NDArray[np.uint8]:
    """Put the codes that occur at each position into groups of near ones (k-medoids on the table), `[P, K]`."""
    entries = table.entries.astype(np.float64)
    if table.kind == "angle":
        entries = np.add.outer(np.diag(entries), np.diag(entries)) - 2 * entries
    groups = np.full((ids.shape[1], table.codes), UNUSED, dtype=np.uint8)
    for cell, column in enumerate(ids.T):
        counts = np.bincount(column, minlength=table.codes)
        used = np.flatnonzero(counts)
        if len(used):
            groups[cell, used] = _medoid_groups(entries[np.ix_(used, used)], np.sqrt(counts[used]), rounds)
    return groups


def _medoid_groups(distances: NDArray[np.float64], weights: NDArray[np.float64], rounds: int) -> NDArray[np.intp]:
    """Nearest of at most eight medoids for each of n codes; the commonest codes are the first medoids."""
    medoids = np.argsort(-weights, kind="stable")[:GROUPS]
    for _ in range(rounds if len(distances) > GROUPS else 0):
        nearest = np.argmin(distances[:, medoids], axis=1)
        member = nearest[:, None] == np.arange(len(medoids))
        cost = np.where(member, distances @ (member * weights[:, None]), np.inf)
        medoids = np.where(member.any(axis=0), np.argmin(cost, axis=0), medoids)
    return np.asarray(np.argmin(distances[:, medoids], axis=1))


def mark_chunks(ids: NDArray[np.integer], volume_starts: NDArray[np.int64], groups: NDArray[np.uint8]) -> Chunks:
    """Cut each volume into runs and mark the groups that occur in them."""
    marks: dict[str, NDArray[Any]] = {}
    for name, length in LENGTHS.items():
        starts = run_starts(volume_starts, length)
        marks[name] = np.zeros((len(starts) - 1, ids.shape[1]), dtype=np.uint8)
        _mark(ids, groups, starts, marks[name])
        marks[f"{name}_starts"] = starts
        volumes = np.searchsorted(volume_starts, starts[:-1], side="right") - 1
        marks[f"{name}_volumes"] = volumes.astype(np.int32)
    return Chunks(groups, **marks)


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
def _mark(
    ids: NDArray[np.integer], groups: NDArray[np.uint8], starts: NDArray[np.int32], marks: NDArray[np.uint8]
) -> None:
    for run in range(len(starts) - 1):
        for row in range(starts[run], starts[run + 1]):
            for cell in range(ids.shape[1]):
                marks[run, cell] |= np.uint8(1 << groups[cell, ids[row, cell]])
