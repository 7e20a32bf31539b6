"""Whole patients compared in three dimensions: how well the label maps of all their slices overlap.

Errors of single slices average out over a patient. Slices are stacked by height, one every four millimetres, and two
stacks are compared height by height: what they share in a class, over both amounts, is a Dice coefficient in three
dimensions, and the distance is 1 - its mean over the classes that either has. Exact; a patient whom sums over coarse
blocks of space exclude is never unpacked. Knows stored label maps and catalogues; nothing about pixels or commands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.archive import VolumeInfo
from diptych.compiling import compiled
from diptych.errors import UsageError
from diptych.metrics.label_rows import LabelRows
from diptych.search import Query, SearchEngine
from diptych.search.label_maps import BLOCKS, Levels
from diptych.search.label_stack import LabelStack
from diptych.search.query import panels_of
from diptych.search.scan import rank
from diptych.search.score import expand

STEP_MM = 4.0
"""Distance of the heights at which patients are compared."""
SHIFTS = (-6, -3, 0, 3, 6)
"""Pixels of the 32 × 32 maps by which a lesion is moved along rows and columns."""
LIFTS = (-3, 0, 3)
"""Heights by which it is moved up or down."""
BAND = 4
"""Heights whose sums over blocks are added up for bounds."""
FIRST_BATCH = 32

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PatientMatch:
    """A patient's volume that was found."""

    volume: VolumeInfo
    distance: float
    """1 - Dice in three dimensions, weighted over the panels; smaller is nearer."""
    panels: Mapping[str, float]
    """The same of each panel that was compared."""
    z_index: int
    """The slice that shares most with the query's at the same height."""
    query_z_index: int
    """The query's slice at that height."""
    heights: NDArray[np.float64]
    """Millimetres, bottom to top, at which both have slices."""
    profile: NDArray[np.float64]
    """Distance of the two slices at each of these heights."""
    shift: tuple[int, int, int] = (0, 0, 0)
    """Where the query's lesion was put: heights up, pixels down and to the right."""
    mirrored: bool = False
    lesion_ratio: float | None = None
    """Amount of the match's decoded lesion over the query's; None where lesions were not compared, or the query has
    none."""

    def to_json(self) -> dict[str, Any]:
        return {
            "volume_key": self.volume.volume_key,
            "patient_key": self.volume.patient_key,
            "distance": self.distance,
            "panels": dict(self.panels),
            "z_index": self.z_index,
            "query_z_index": self.query_z_index,
            "heights_mm": self.heights.tolist(),
            "profile": self.profile.tolist(),
            "shift": list(self.shift),
            "mirrored": self.mirrored,
            "lesion_ratio": self.lesion_ratio,
        }


@dataclass(frozen=True, eq=False)
class Stack:
    """A patient to ask about: label maps of its slices from bottom to top."""

    levels: Mapping[str, Levels]
    """By panel, `[S, C, H, W]`."""
    z_mm: NDArray[np.floating]
    z_index: NDArray[np.integer]


@dataclass(frozen=True, eq=False)
class Placement:
    """One way to put the query into the archive's space."""

    stacks: Mapping[str, LabelStack]
    """By panel."""
    shift: tuple[int, int, int]
    mirrored: bool


class PatientSearch:
    """Ranks the volumes of an archive by overlap in three dimensions with a whole patient."""

    def __init__(
        self,
        engine: SearchEngine,
        labels: Mapping[str, LabelRows],
        volumes: Sequence[VolumeInfo],
        z_mm: NDArray[np.floating],
        z_index: NDArray[np.integer],
    ) -> None:
        self.engine = engine
        self.labels = labels
        self.volumes = volumes
        self.z_mm = z_mm
        self.z_index = z_index

    def search(self, stack: Stack, query: Query, *, anywhere: str | None = None) -> list[PatientMatch]:
        """The volumes nearest to a patient; filters, region, weight and top are the query's."""
        panels = panels_of(query.by)
        missing = [panel for panel in panels if panel not in self.labels or panel not in stack.levels]
        if missing:
            raise UsageError(
                f"patients by {missing[0]}: this archive has no {missing[0]} label maps of all its volumes; "
                "run 'diptych archive decode' on it"
            )
        shares = {"normal": query.weight, "abnormal": 1 - query.weight} if len(panels) > 1 else {panels[0]: 1.0}
        selection = self.engine.select(query)
        keys = np.full(len(self.volumes), np.inf)
        best: dict[int, Placement] = {}
        for placement in placements(self._region(stack, query), panels, anywhere):
            bounds = self._bounds(placement, shares, selection.volumes, query)
            order = selection.volumes[np.argsort(bounds, kind="stable")]
            bounds, size = np.sort(bounds, kind="stable"), FIRST_BATCH
            while len(order):
                nearest = rank(keys, np.arange(len(keys)), selection.groups, selection.top, np.inf)
                limit = keys[nearest[-1]] if len(nearest) == selection.top else np.inf
                if bounds[0] > limit + 1e-9:
                    break
                batch, order, bounds, size = order[:size], order[size:], bounds[size:], 2 * size
                finer = np.isfinite(limit) and query.region is None
                batch, distances = self._within(placement, shares, batch, limit, finer=finer)
                for volume, distance in zip(batch.tolist(), distances.tolist(), strict=True):
                    if distance < keys[volume]:
                        keys[volume], best[volume] = distance, placement
        found = rank(keys, np.arange(len(keys)), selection.groups, selection.top, np.inf)
        matches = self._matches(stack, best, shares, found)
        return [replace(matches[volume], distance=float(keys[volume])) for volume in found]

    def _region(self, stack: Stack, query: Query) -> dict[str, LabelStack]:
        """The query's maps by panel, within its region."""
        slices = nearest_slices(stack.z_mm)
        heights, places = (np.array(list(one), dtype=np.int64) for one in (slices, slices.values()))
        found: dict[str, LabelStack] = {}
        for panel in panels_of(query.by):
            levels, region = stack.levels[panel][places], None
            if query.region is not None:
                cells = self.engine.region(query).reshape(self.engine.index.grid)
                region = self.labels[panel].scatter(cells)[: levels.shape[2]]
                levels = levels * region
            found[panel] = LabelStack(heights, levels, region)
        return found

    def _bounds(
        self, placement: Placement, shares: Mapping[str, float], volumes: Ints, query: Query
    ) -> NDArray[np.float64]:
        """What the distance of each volume is at least, by sums over blocks; nothing is known with a region."""
        total = np.zeros(len(volumes))
        for panel, share in shares.items() if query.region is None else ():
            one = placement.stacks[panel]
            most = self._bands[panel].most(one, volumes)
            total += share * mean_distance(most, one.amounts + self._amounts[panel][volumes])
        return total

    def _finer_bounds(
        self, placement: Placement, shares: Mapping[str, float], volumes: Ints
    ) -> dict[str, NDArray[np.float64]]:
        """The same by panel, from the blocks of single slices, height by height."""
        bounds = {}
        chosen = expand(self._begins[volumes], self._begins[volumes + 1])
        begins = np.append(0, np.cumsum(np.diff(self._begins)[volumes]))
        for panel, share in shares.items():
            labels, one = self.labels[panel], placement.stacks[panel]
            which = one.which(self._heights[chosen])
            most = np.zeros((len(chosen), labels.classes), dtype=np.int64)
            part, local = labels.places.rows(self._rows[chosen])
            for number, maps in enumerate(labels.parts):
                mine = np.flatnonzero(part == number)
                _share_blocks(maps.blocks.reshape(len(maps), -1), local[mine], which[mine], mine, one.blocks, most)
            bounds[panel] = share * mean_distance(_sums(most, begins), one.amounts + self._amounts[panel][volumes])
        return bounds

    def _within(
        self, placement: Placement, shares: Mapping[str, float], volumes: Ints, limit: float, *, finer: bool
    ) -> tuple[Ints, NDArray[np.float64]]:
        """The volumes that are within a limit, and their distances: bounded, if told so, before maps are unpacked.

        The abnormal panel's maps are short, so they are looked at first; the other's only where that does not decide.
        """
        known = {panel: np.zeros(len(volumes)) for panel in shares}
        if finer:
            known = self._finer_bounds(placement, shares, volumes)
        for panel in reversed(list(shares)):
            near = np.sum(list(known.values()), axis=0) <= limit + 1e-9
            volumes, known = volumes[near], {each: values[near] for each, values in known.items()}
            known[panel] = shares[panel] * self._panel(placement.stacks[panel], panel, volumes)
        return volumes, np.asarray(np.sum(list(known.values()), axis=0))

    def _panel(self, one: LabelStack, panel: str, volumes: Ints) -> NDArray[np.float64]:
        """1 - mean Dice in three dimensions of some volumes."""
        chosen = expand(self._begins[volumes], self._begins[volumes + 1])
        begins = np.append(0, np.cumsum(np.diff(self._begins)[volumes]))
        shared, areas = self._compared(one, panel, chosen)
        return mean_distance(_sums(shared, begins), one.amounts + _sums(areas, begins))

    def _compared(self, one: LabelStack, panel: str, chosen: Ints) -> tuple[Ints, Ints]:
        """Levels that stacked slices share with the query at their height, and their own, `[n, C]`."""
        labels, which = self.labels[panel], one.which(self._heights[chosen])
        part, local = labels.places.rows(self._rows[chosen])
        shared = np.zeros((len(chosen), labels.classes), dtype=np.int64)
        areas = np.zeros_like(shared)
        for number in np.unique(part).tolist():
            mine = part == number
            shared[mine], areas[mine] = one.shared_levels(labels.parts[number], local[mine], which[mine])
        return shared, areas

    def _matches(
        self, stack: Stack, best: Mapping[int, Placement], shares: Mapping[str, float], volumes: Sequence[int]
    ) -> dict[int, PatientMatch]:
        """What is told about the volumes found; those that lie alike are compared together."""
        matches: dict[int, PatientMatch] = {}
        for placement in {id(best[volume]): best[volume] for volume in volumes}.values():
            mine = np.array([volume for volume in volumes if best[volume] is placement])
            every = expand(self._begins[mine], self._begins[mine + 1])
            compared = {panel: self._compared(placement.stacks[panel], panel, every) for panel in shares}
            ends = np.cumsum(np.diff(self._begins)[mine]).tolist()
            for volume, begin, end in zip(mine.tolist(), [0, *ends[:-1]], ends, strict=True):
                own = {panel: (shared[begin:end], areas[begin:end]) for panel, (shared, areas) in compared.items()}
                matches[volume] = self._match(stack, placement, shares, volume, own)
        return matches

    def _match(
        self,
        stack: Stack,
        placement: Placement,
        shares: Mapping[str, float],
        volume: int,
        compared: Mapping[str, tuple[Ints, Ints]],
    ) -> PatientMatch:
        """The distances of one volume, height by height, from what its slices share and hold in each panel."""
        every = np.arange(*self._begins[volume : volume + 2])
        both = np.isin(self._heights[every], placement.stacks[next(iter(shares))].heights)
        chosen = every[both]
        profile, common, panels = np.zeros(len(chosen)), np.zeros(len(chosen)), {}
        for panel, share in shares.items():
            one, (shared, areas) = placement.stacks[panel], compared[panel]
            panels[panel] = float(mean_distance(shared.sum(axis=0)[None], (one.amounts + areas.sum(axis=0))[None])[0])
            if len(chosen):
                asked = one.areas[one.which(self._heights[chosen])]
                profile += share * mean_distance(shared[both], asked + areas[both])
            common += shared[both].sum(axis=1)
        at = int(chosen[np.argmax(common)]) if len(chosen) else int(self._begins[volume])
        height = int(self._heights[at]) - placement.shift[0]
        slices = nearest_slices(stack.z_mm)
        return PatientMatch(
            volume=self.volumes[volume],
            distance=sum(share * panels[panel] for panel, share in shares.items()),
            panels=panels,
            z_index=int(self.z_index[self._rows[at]]),
            query_z_index=int(stack.z_index[slices.get(height, 0)]),
            heights=np.asarray(self._heights[chosen] * STEP_MM, dtype=np.float64),
            profile=profile,
            shift=placement.shift,
            mirrored=placement.mirrored,
            lesion_ratio=self._ratio(placement, volume),
        )

    def _ratio(self, placement: Placement, volume: int) -> float | None:
        """How much lesion the volume has for each of the query's; a region leaves it open."""
        asked = placement.stacks.get("abnormal")
        if asked is None or asked.region is not None:
            return None
        own = int(asked.amounts.sum())
        return float(self._amounts["abnormal"][volume].sum()) / own if own else None

    def _areas(self, panel: str, rows: Ints) -> Ints:
        labels = self.labels[panel]
        part, local = labels.places.rows(rows)
        areas = np.zeros((len(rows), labels.classes), dtype=np.int64)
        for number in np.unique(part).tolist():
            areas[part == number] = labels.parts[number].areas[local[part == number]]
        return areas

    @cached_property
    def _stacked(self) -> tuple[Ints, Ints, Ints]:
        """Height and slice of everything that is compared, volume by volume, and where each volume begins."""
        starts, heights, rows, begins = self.engine.index.volume_starts.tolist(), [], [], [0]
        for first, last in pairwise(starts):
            slices = nearest_slices(self.z_mm[first:last])
            heights += list(slices)
            rows += [first + place for place in slices.values()]
            begins.append(len(rows))
        return np.array(heights, dtype=np.int64), np.array(rows, dtype=np.int64), np.array(begins, dtype=np.int64)

    @property
    def _heights(self) -> Ints:
        return self._stacked[0]

    @property
    def _rows(self) -> Ints:
        return self._stacked[1]

    @property
    def _begins(self) -> Ints:
        return self._stacked[2]

    @cached_property
    def _amounts(self) -> dict[str, Ints]:
        """Sums of levels of every volume, `[V, C]`, by panel."""
        return {panel: _sums(self._areas(panel, self._rows), self._begins) for panel in self.labels}

    @cached_property
    def _bands(self) -> dict[str, Bands]:
        return {panel: self._bands_of(labels) for panel, labels in self.labels.items()}

    def _bands_of(self, labels: LabelRows) -> Bands:
        bands = self._heights // BAND
        owner = np.repeat(np.arange(len(self.volumes)), np.diff(self._begins))
        first = np.append(True, (np.diff(bands) != 0) | (np.diff(owner) != 0))[: len(bands)]
        target = np.cumsum(first) - 1
        sums = np.zeros((int(first.sum()), labels.classes * BLOCKS**2), dtype=np.uint16)
        part, local = labels.places.rows(self._rows)
        for number, maps in enumerate(labels.parts):
            mine = part == number
            _add_rows(maps.blocks.reshape(len(maps), -1), local[mine], target[mine], sums)
        return Bands(np.searchsorted(owner[first], np.arange(len(self.volumes) + 1)), bands[first], sums)


@dataclass(frozen=True, eq=False)
class Bands:
    """What the volumes of an archive hold in coarse blocks of space: sums of levels over blocks and `BAND` heights."""

    firsts: Ints
    """First band of each volume, and their number at the end, `[V + 1]`."""
    places: Ints
    """How high each band lies, in bands."""
    sums: NDArray[np.uint16]
    """`[B, C · BLOCKS²]`."""

    def most(self, one: LabelStack, volumes: Ints) -> Ints:
        """Levels that some volumes share with a query at most, `[n, C]`."""
        bands = one.heights // BAND
        asked = np.zeros((int(bands[-1] - bands[0]) + 1, self.sums.shape[1]), dtype=np.uint16)
        np.add.at(asked, bands - bands[0], one.blocks)
        out = np.zeros((len(volumes), self.sums.shape[1] // BLOCKS**2), dtype=np.int64)
        _share_bands(self.sums, self.places - bands[0], self.firsts, asked, volumes, out)
        return out


@compiled
def _add_rows(blocks: NDArray[np.uint8], rows: Ints, target: Ints, sums: NDArray[np.uint16]) -> None:
    for place in range(len(rows)):
        for k in range(blocks.shape[1]):
            sums[target[place], k] += blocks[rows[place], k]


@compiled
def _share_bands(
    sums: NDArray[np.uint16], places: Ints, firsts: Ints, asked: NDArray[np.uint16], volumes: Ints, out: Ints
) -> None:
    size = BLOCKS * BLOCKS
    room = np.empty(sums.shape[1], np.uint16)  # one flat loop of minima is what compilers make quick
    for v in range(len(volumes)):
        room[:] = 0
        for band in range(firsts[volumes[v]], firsts[volumes[v] + 1]):
            if 0 <= places[band] < len(asked):
                for k in range(len(room)):
                    room[k] += min(sums[band, k], asked[places[band], k])
        for c in range(out.shape[1]):
            for k in range(size):
                out[v, c] += np.int64(room[c * size + k])


@compiled
def _share_blocks(
    blocks: NDArray[np.uint8], rows: Ints, heights: Ints, places: Ints, asked: NDArray[np.uint8], out: Ints
) -> None:
    size = BLOCKS * BLOCKS
    room = np.empty(blocks.shape[1], np.uint8)
    for i in range(len(rows)):
        if 0 <= heights[i] < len(asked):
            for k in range(len(room)):
                room[k] = min(blocks[rows[i], k], asked[heights[i], k])
            for c in range(out.shape[1]):
                total = np.int64(0)
                for k in range(size):
                    total += np.int64(room[c * size + k])
                out[places[i], c] = total


def _sums(values: Ints, begins: Ints) -> Ints:
    """Sums over ranges that lie one after the other, `[n, C]`."""
    totals = np.concatenate([np.zeros((1, values.shape[1]), dtype=np.int64), np.cumsum(values, axis=0)])
    return np.asarray(totals[begins[1:]] - totals[begins[:-1]])


def nearest_slices(z_mm: NDArray[np.floating]) -> dict[int, int]:
    """By height in steps of `STEP_MM`, the slice nearest to it; heights that no slice comes near have none.

    >>> nearest_slices(np.array([-2.0, 0.0, 2.0, 4.0]))
    {0: 1, 1: 3}
    """
    if not len(z_mm):
        return {}
    z = np.asarray(z_mm, dtype=np.float64)
    reach = max(STEP_MM, float(np.median(np.diff(z))) if len(z) > 1 else 0.0) / 2
    heights = np.arange(np.ceil((z[0] - reach) / STEP_MM), np.floor((z[-1] + reach) / STEP_MM) + 1).astype(np.int64)
    places = np.abs(z[None] - heights[:, None] * STEP_MM).argmin(axis=1)
    near = np.abs(z[places] - heights * STEP_MM) < reach
    return dict(zip(heights[near].tolist(), places[near].tolist(), strict=True))


def placements(
    asked: Mapping[str, LabelStack],
    panels: Sequence[str],
    anywhere: str | None,
) -> Iterator[Placement]:
    """The query in place, or also mirrored and moved, as `anywhere` says; only a lesion can be moved."""
    if anywhere is not None and (tuple(panels) != ("abnormal",) or anywhere == "histogram"):
        raise UsageError(f"anywhere {anywhere}: a patient's lesion can be mirrored or shifted; search by lesion")
    sides = {None: (False,), "shifted": (False,), "mirrored": (True,)}.get(anywhere, (False, True))
    moves = list(product(LIFTS, SHIFTS, SHIFTS)) if anywhere in ("shifted", "both") else [(0, 0, 0)]
    for mirrored, (up, down, right) in product(sides, moves):
        stacks = {
            panel: replace(
                asked[panel],
                heights=asked[panel].heights + up,
                levels=_moved(asked[panel].levels, down, right, mirrored=mirrored),
            )
            for panel in panels
        }
        yield Placement(stacks, (up, down, right), mirrored)


def _moved(levels: Levels, down: int, right: int, *, mirrored: bool) -> Levels:
    """Maps moved by some pixels; what leaves them on one side does not come in on the other."""
    side = levels[..., ::-1] if mirrored else levels
    rows, columns = side.shape[-2:]
    out = np.zeros_like(side)
    out[..., max(down, 0) : rows + min(down, 0), max(right, 0) : columns + min(right, 0)] = side[
        ..., max(-down, 0) : rows + min(-down, 0), max(-right, 0) : columns + min(-right, 0)
    ]
    return out


def mean_distance(shared: NDArray[Any], both: NDArray[Any]) -> NDArray[np.float64]:
    """1 - mean Dice over the classes `[n, C]` that either side has; 0 where neither has any."""
    present = np.count_nonzero(both, axis=1)
    dice = (2 * shared / np.maximum(both, 1)).sum(axis=1)
    return np.where(present > 0, 1 - dice / np.maximum(present, 1), 0.0)
