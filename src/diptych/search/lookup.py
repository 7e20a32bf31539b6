"""`LookUp`: one query's distances to every code at every grid position of one panel, laid out for the

Knows packed codes, chunk marks and tables. Sums over it are exact whole numbers; a smaller sum is nearer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from diptych.search.bounds import Bounds
from diptych.search.changes import change_minima, change_sums
from diptych.search.chunks import Chunks, LevelName
from diptych.search.joined import JoinedCodes
from diptych.search.kernels import BYTE_STRIDE, HUGE, Ints, Sums, placed, range_minima, range_sums
from diptych.search.panel_codes import PanelCodes
from diptych.search.pool import Pool
from diptych.search.search_index import SearchIndex


@dataclass(frozen=True, eq=False)
class LookUp:
    """Entries `[P, K]` for one panel of one query; positions outside the query's region are zero."""

    entries: NDArray[np.int32]
    codes: PanelCodes
    chunks: Chunks

    def row_sums(self, rows: Ints) -> Sums:
        """Row sums of single slices, in any order."""
        out = np.empty(len(rows), dtype=np.int32)
        range_sums(*self._packed, rows, rows + 1, *self._rare, out)
        return out

    def sums(self, starts: Ints, stops: Ints, pool: Pool) -> Sums:
        """Row sums of all slices in the ranges, one range after the other."""
        out = np.empty(int((stops - starts).sum()), dtype=np.int32)
        ends = np.cumsum(stops - starts)
        runs = self._runs(starts, stops)

        def work(share: slice) -> None:
            mine = out[int(ends[share.start - 1]) if share.start else 0 :]
            if runs is None:
                range_sums(*self._packed, starts[share], stops[share], *self._rare, mine)
            else:
                change_sums(*self._changes, runs[0][share], runs[1][share], *self._rare, mine)

        pool.run(work, stops - starts)
        return out

    def minima(self, starts: Ints, stops: Ints, pool: Pool) -> Sums:
        """The smallest row sum of each range."""
        out = np.empty(len(starts), dtype=np.int32)
        runs = self._runs(starts, stops)

        def work(share: slice) -> None:
            if runs is None:
                range_minima(*self._packed, starts[share], stops[share], *self._rare, out[share])
            else:
                change_minima(*self._changes, runs[0][share], runs[1][share], *self._rare, out[share])

        pool.run(work, stops - starts)
        return out

    def _runs(self, starts: Ints, stops: Ints) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """The ranges in runs, where their changes can be scanned."""
        return self.chunks.runs_between(starts, stops) if self.chunks.changes else None

    def bounds(self, level: LevelName, places: Ints, pool: Pool) -> Sums:
        """For each of some runs, or parts of runs, a sum that none of its slices undercuts."""
        return (self._run_bounds if level == "runs" else self._part_bounds).sums(places, pool)

    @cached_property
    def _run_bounds(self) -> Bounds:
        return Bounds.of(self.entries, self.chunks.groups, self.chunks.runs)

    @cached_property
    def _part_bounds(self) -> Bounds:
        return Bounds.of(self.entries, self.chunks.groups, self.chunks.parts)

    @cached_property
    def cheapest_rare(self) -> NDArray[np.int32]:
        """Smallest entry among the rare codes of each position, `[P]`; zero where there are none."""
        cheapest = np.where(self.codes.rare, self.entries, HUGE).min(axis=1)
        return np.where(self.codes.rare.any(axis=1), cheapest, 0).astype(np.int32)

    @cached_property
    def places(self) -> NDArray[np.int32]:
        """Entries by place in the alphabet, `[P, A]`; the place after the last common code stands for rare ones."""
        places = placed(self.entries, self.codes.alphabet)
        if len(self.codes.rare_slice):
            rare = np.flatnonzero(self.codes.rare.any(axis=1))
            places[rare, -1] = self.cheapest_rare[rare]
        return places

    @cached_property
    def excess(self) -> NDArray[np.int32]:
        """What a rare code costs beyond the cheapest rare one, `[P, K]`."""
        return self.entries - self.cheapest_rare[:, None]

    @cached_property
    def _changes(self) -> tuple[NDArray[np.uint64], int, Sums, Ints, Ints, Ints, Ints, Sums]:
        changes = self.chunks.changes
        words = changes.rows.view(np.uint64)
        table, entries = self._packed[2], changes.flat_table(self.places)
        starts = self.chunks.starts
        return (
            words.reshape(-1),
            words.shape[1],
            table,
            changes.places,
            changes.slots,
            changes.firsts,
            starts,
            entries,
        )

    @cached_property
    def _packed(self) -> tuple[NDArray[np.uint64], int, Sums, int]:
        words = self.codes.packed.view(np.uint64)
        table, stride = flat_table(self.places, self.codes.packed.shape[1])
        return words.reshape(-1), words.shape[1], table, stride

    @cached_property
    def _rare(self) -> tuple[Ints, Ints, Ints, Sums]:
        codes = self.codes
        excess = self.excess if len(codes.rare_slice) else np.empty((0, 0), np.int32)
        return codes.rare_slice, codes.rare_cell, codes.rare_code, excess


@dataclass(frozen=True, eq=False)
class JoinedLookUp(LookUp):
    """The same over several segments; ranges begin and end with volumes. There are no bounds over runs here."""

    codes: JoinedCodes

    def sums(self, starts: Ints, stops: Ints, pool: Pool) -> Sums:
        """Row sums of all slices in the ranges, one range after the other."""
        places = self.codes.places
        volumes = places.volumes(starts, stops)
        lengths = np.diff(places.begins)[volumes]
        ends = np.cumsum(lengths)
        out = np.empty(int(ends[-1]) if len(ends) else 0, dtype=np.int32)
        for part in np.unique(places.part[volumes]).tolist():
            mine = np.flatnonzero(places.part[volumes] == part)
            first = places.start[volumes[mine]]
            sums = self._parts[part].sums(first, first + lengths[mine], pool)
            for at, until, end in zip(ends[mine] - lengths[mine], ends[mine], np.cumsum(lengths[mine]), strict=True):
                out[at:until] = sums[end - (until - at) : end]
        return out

    def minima(self, starts: Ints, stops: Ints, pool: Pool) -> Sums:
        """The smallest row sum of each range."""
        lengths = stops - starts
        return np.minimum.reduceat(self.sums(starts, stops, pool), np.cumsum(lengths) - lengths)

    def row_sums(self, rows: Ints) -> Sums:
        """Row sums of single slices, in any order."""
        part, local = self.codes.places.rows(rows)
        out = np.empty(len(rows), dtype=np.int32)
        for number in np.unique(part).tolist():
            out[part == number] = self._parts[number].row_sums(local[part == number])
        return out

    @cached_property
    def _parts(self) -> list[LookUp]:
        return [LookUp(self.entries, *part) for part in self.codes.parts]


def look_up(entries: NDArray[np.int32], index: SearchIndex, panel: str) -> LookUp:
    """The look-up that fits the codes of a panel."""
    codes = index.codes[panel]
    if isinstance(codes, JoinedCodes):
        return JoinedLookUp(entries, codes, codes.parts[0][1])
    return LookUp(entries, codes, index.chunks[panel])


def flat_table(places: NDArray[np.int32], cells: int) -> tuple[Sums, int]:
    """Rows of `cells` positions, an odd number of cache lines apart, flat; and their distance.

    Up to 256 places share one distance. Positions that only fill up a word have zeros.
    """
    lines = -(-max(places.shape[1], BYTE_STRIDE + 1) // 16) | 1  # the kernels tell two-byte ids by their distance
    stride = BYTE_STRIDE if places.shape[1] <= 256 else 16 * lines
    table = np.zeros((cells, stride), dtype=np.int32)
    table[: len(places), : places.shape[1]] = places
    return table.reshape(-1), stride
