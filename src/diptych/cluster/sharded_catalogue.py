"""The shards as one catalogue: volumes in the order of their keys, as if they lay in one archive.

Places, patients and slices are numbered as in the single archive, so that questions, filters, ties and statistics mean
the same; codes and label maps stay where they are and are fetched for the few slices that somebody looks at. The slices
from which statistics are taken are held from the beginning: no shard that dies later can change them. Knows summaries
of shards; nothing about queries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.archive import VolumeInfo
from diptych.archive.schema import Header
from diptych.cluster.shard_calls import ShardGroup
from diptych.cluster.shard_worker import ShardSummary
from diptych.errors import ClusterError
from diptych.metrics.label_planes import Planes
from diptych.metrics.label_rows import LabelRows
from diptych.metrics.overlap import SPREAD_PAIRS
from diptych.retrieval.catalogue import COLUMNS, Catalogue
from diptych.search import PANELS, Match, SearchIndex
from diptych.search.joined import Places
from diptych.search.label_maps import LabelMaps
from diptych.search.panel_codes import PanelCodes
from diptych.search.query import Filter

Ints = NDArray[np.int64]

HELD_AT_LEAST = 64
"""Rows fetched at once that are worth keeping: samples, not matches."""
HELD_AT_MOST = 1 << 17
RECENT = 4096
"""Slices of matches whose ids are remembered for a moment."""
KEPT_MAPS = 4
NO_CODE = np.iinfo(np.uint16).max


@dataclass(frozen=True, eq=False)
class Numbering:
    """Which volume, slice and patient of the whole is which of a shard's."""

    places: Places
    """Shard and first row there of each volume; slices of the whole."""
    volumes: Mapping[int, Ints]
    """By shard, the volumes of the whole that it has, in its own order."""
    starts: Mapping[int, Ints]
    """By shard, the first row of each of its volumes."""
    patient_of_volume: Ints
    versions: Mapping[int, str]
    """By shard, the version that all this is about."""

    @cached_property
    def _patients(self) -> dict[int, Ints]:
        """By shard, the patients of the whole that it has, ascending: its own numbers are places among them."""
        return {shard: np.unique(self.patient_of_volume[mine]) for shard, mine in self.volumes.items()}

    def whole(self, shard: int, match: Match) -> Match:
        """A shard's match in the numbers of the whole."""
        volume = int(self.volumes[shard][match.volume])
        row = int(self.places.begins[volume]) + match.slice - int(self.starts[shard][match.volume])
        return replace(match, slice=row, volume=volume, patient=int(self.patient_of_volume[volume]))

    def part(self, shard: int, where: Filter) -> Filter:
        """A filter of the whole in the numbers of a shard."""
        mine, own = self.volumes[shard], self._patients[shard]
        places = np.searchsorted(own, patients := np.array(sorted(where.exclude_patients), dtype=np.int64))
        held = own[np.minimum(places, len(own) - 1)] == patients
        excluded = places[held].tolist()
        slices = None
        if where.slices is not None:
            lengths = np.diff(self.places.begins)[mine]
            begins = np.repeat(self.places.begins[mine] - np.append(0, np.cumsum(lengths)[:-1]), lengths)
            slices = where.slices[begins + np.arange(len(begins))]
        volumes = None if where.volumes is None else np.asarray(where.volumes)[mine]
        return replace(where, volumes=volumes, slices=slices, exclude_patients=excluded)


@dataclass(frozen=True, eq=False)
class RemoteCodes(PanelCodes):
    """The ids of one panel, wherever they lie."""

    shelf: Shelf
    panel: str

    def __len__(self) -> int:
        return len(self.shelf.numbering.places)

    def ids(self, slices: NDArray[np.integer]) -> NDArray[np.uint16]:
        """Ids of some slices, `[n, P]`; no code at all stands where a shard does not answer."""
        return self.shelf.ids(self.panel, np.asarray(slices, dtype=np.int64))

    def equal(self, slices: NDArray[np.integer], ids: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Which of some slices have exactly these ids; whoever asks that of many asks the shards."""
        return np.asarray((self.ids(slices) == ids).all(axis=1))


class Shelf:
    """Ids that were fetched: samples are kept, slices of matches remembered for a moment."""

    def __init__(self, group: ShardGroup, numbering: Numbering, cells: int) -> None:
        self.group, self.numbering, self.cells = group, numbering, cells
        self._rows = np.empty(0, dtype=np.int64)
        self._held = {panel: np.empty((0, cells), dtype=np.uint16) for panel in PANELS}
        self._recent: dict[int, Mapping[str, NDArray[np.uint16]]] = {}
        self._lock = Lock()
        self.kept_maps: dict[tuple[str, bool, bytes], LabelMaps | Planes] = {}
        """By panel, way and rows."""

    def ids(self, panel: str, rows: Ints) -> NDArray[np.uint16]:
        out = np.full((len(rows), self.cells), NO_CODE, dtype=np.uint16)
        with self._lock:
            rows_held, held = self._rows, self._held[panel]
            recent = {row: self._recent[row][panel] for row in rows.tolist() if row in self._recent}
        found = np.searchsorted(rows_held, rows)
        known = np.zeros(len(rows), dtype=np.bool_)
        if len(rows_held):
            known = rows_held[np.minimum(found, len(rows_held) - 1)] == rows
            out[known] = held[found[known]]
        for place in np.flatnonzero(~known).tolist():
            if (row := int(rows[place])) in recent:
                out[place], known[place] = recent[row], True
        missing = np.unique(rows[~known])
        if len(missing):
            answered, fetched = self.fetch(missing)
            where = np.flatnonzero(~known)
            order = np.searchsorted(missing, rows[where])
            out[where[answered[order]]] = fetched[panel][order[answered[order]]]
        return out

    def fetch(self, rows: Ints) -> tuple[NDArray[np.bool_], dict[str, NDArray[np.uint16]]]:
        """Ids of ascending rows from their shards, and which of them were answered; many are kept."""
        part, local = self.numbering.places.rows(rows)
        calls = {
            shard: ("ids", self.numbering.versions[shard], (local[part == shard],))
            for shard in np.unique(part).tolist()
        }
        ids = {panel: np.full((len(rows), self.cells), NO_CODE, dtype=np.uint16) for panel in PANELS}
        answered = np.zeros(len(rows), dtype=np.bool_)
        for shard, answer in self.group.ask(calls).items():
            answered[part == shard] = True
            for panel in PANELS:
                ids[panel][part == shard] = answer[panel]
        if answered.all() and len(rows) >= HELD_AT_LEAST and len(rows) + len(self._rows) <= HELD_AT_MOST:
            self._hold(rows, ids)
        return answered, ids

    def holds(self, rows: Ints) -> bool:
        """Whether all of these are at hand."""
        return bool(np.isin(rows, self._rows).all())

    def remember(self, row: int, ids: Mapping[str, NDArray[np.uint16]]) -> None:
        """Keep the ids of a match, by panel, for whoever names it."""
        with self._lock:
            self._recent[row] = ids
            while len(self._recent) > RECENT:
                del self._recent[next(iter(self._recent))]

    def _hold(self, rows: Ints, ids: Mapping[str, NDArray[np.uint16]]) -> None:
        with self._lock:
            new = ~np.isin(rows, self._rows)
            all_rows = np.concatenate([self._rows, rows[new]])
            order = np.argsort(all_rows)
            self._held = {panel: np.concatenate([self._held[panel], ids[panel][new]])[order] for panel in PANELS}
            self._rows = all_rows[order]


@dataclass(frozen=True, eq=False)
class RemoteRows(LabelRows):
    """Stored label maps, wherever they lie; only samples of them are ever taken here."""

    shelf: Shelf | None = None
    panel: str = ""

    def maps(self, rows: Ints) -> LabelMaps:
        """Some of the maps, packed and in order."""
        found = fetch_maps(self.shelf, self.panel, rows, stored=True)
        assert isinstance(found, LabelMaps)
        return found


def fetch_maps(shelf: Shelf | None, panel: str, rows: Ints, *, stored: bool) -> LabelMaps | Planes:
    """Label maps of some slices from their shards, the last ones kept; all must answer, for a statistic over fewer
    would not be that of the archive."""
    assert shelf is not None
    key = panel, stored, rows.tobytes()
    if key in shelf.kept_maps:
        return shelf.kept_maps[key]
    part, local = shelf.numbering.places.rows(rows)
    numbers = np.unique(part).tolist()
    versions = shelf.numbering.versions
    calls = {one: ("maps", versions[one], (panel, local[part == one], stored)) for one in numbers}
    answers = shelf.group.ask(calls, patient=not stored)
    if len(answers) < len(calls):
        lost = next(shelf.group.names[one] for one in numbers if one not in answers)
        raise ClusterError(f"{lost}: did not answer, and labels cannot be compared before it did once; try again")
    parts: list[Any] = [answers[one] for one in numbers]
    order = np.concatenate([np.flatnonzero(part == one) for one in numbers])
    found: LabelMaps | Planes = type(parts[0]).join(parts).take(np.argsort(order))
    if len(rows) < HELD_AT_LEAST:
        return found
    shelf.kept_maps[key] = found
    while len(shelf.kept_maps) > KEPT_MAPS:
        del shelf.kept_maps[next(iter(shelf.kept_maps))]
    return found


@dataclass(frozen=True, eq=False)
class ShardedCatalogue(Catalogue):
    """A catalogue whose codes lie elsewhere."""

    shelf: Shelf | None = None
    summaries: Mapping[int, ShardSummary] | None = None

    @property
    def numbering(self) -> Numbering:
        assert self.shelf is not None
        return self.shelf.numbering


def join_summaries(
    summaries: Mapping[int, ShardSummary], group: ShardGroup, *, grid: tuple[int, int], codes: Mapping[str, int]
) -> ShardedCatalogue:
    """One catalogue of all shards, with the samples that statistics are taken from."""
    headers = [one.header for one in summaries.values()]
    whole = len(summaries) == len(group)
    summaries = {number: one for number, one in summaries.items() if one.volumes}
    volumes, order, shard, row = _ordered(summaries)
    lengths = np.concatenate([np.diff(one.starts) for one in summaries.values()])[order]
    begins = np.append(0, np.cumsum(lengths)).astype(np.int64)
    patients = np.unique(np.array([info.patient_key for info in volumes], dtype=object), return_inverse=True)[1]
    numbering = Numbering(
        Places(shard, row, begins),
        {number: np.flatnonzero(shard == number).astype(np.int64) for number in summaries},
        {number: one.starts for number, one in summaries.items()},
        patients.astype(np.int64),
        {number: one.version for number, one in summaries.items()},
    )
    shelf = Shelf(group, numbering, grid[0] * grid[1])
    columns: dict[str, Any] = {name: _column(name, summaries, numbering) for name in (*COLUMNS, "lesion_free")}
    free = columns.pop("lesion_free")
    index = SearchIndex(
        grid,
        {panel: _codes(panel, shelf, codes[panel]) for panel in PANELS},
        {},
        begins,
        patients.astype(np.int64),
        free,
    )
    problems = tuple(f"{group.names[n]}: {text}" for n, one in summaries.items() for text in one.problems)
    version = joined_version(headers)
    return ShardedCatalogue(
        version=version if whole and not problems else f"{version}-damaged",
        index=index,
        volumes=volumes,
        **columns,
        problems=problems,
        places=numbering.places,
        shelf=shelf,
        summaries=summaries,
    )


def joined_version(headers: Sequence[Header]) -> str:
    """The version of the archive that all shards together would be."""
    totals = {name: sum(getattr(header, name) for header in headers) for name in ("volumes", "slices", "content")}
    first = replace(headers[0], format=max(header.format for header in headers), volumes=0, slices=0, content=0)
    return first.changed(**totals).version


def sampled_rows(catalogue: Catalogue) -> Ints:
    """Every slice that a statistic over the archive may look at."""
    count = len(catalogue.index)
    pairs = np.random.default_rng(0).integers(count, size=(2, SPREAD_PAIRS))
    return np.unique(np.concatenate([catalogue.sample(), pairs.reshape(-1)]))


def _ordered(summaries: Mapping[int, ShardSummary]) -> tuple[tuple[VolumeInfo, ...], Ints, Ints, Ints]:
    """All volumes by key, where each stood before, and its shard and first row there."""
    infos = [info for one in summaries.values() for info in one.volumes]
    order = np.array(sorted(range(len(infos)), key=lambda place: infos[place].volume_key), dtype=np.int64)
    shard = np.concatenate([np.full(len(one.volumes), number) for number, one in summaries.items()]).astype(np.int64)
    row = np.concatenate([one.starts[:-1] for one in summaries.values()]).astype(np.int64)
    return tuple(infos[place] for place in order.tolist()), order, shard[order], row[order]


def _column(name: str, summaries: Mapping[int, ShardSummary], numbering: Numbering) -> NDArray[Any]:
    first = next(iter(summaries.values())).columns[name]
    out = np.empty(len(numbering.places), dtype=first.dtype)
    begins = numbering.places.begins
    for number, one in summaries.items():
        lengths = np.diff(one.starts)
        shift = np.repeat(begins[numbering.volumes[number]] - one.starts[:-1], lengths)
        out[shift + np.arange(len(shift))] = one.columns[name]
    return out


def _codes(panel: str, shelf: Shelf, codes: int) -> RemoteCodes:
    nothing = np.empty(0, np.int32), np.empty(0, np.uint16), np.empty(0, np.uint16)
    alphabet, rare = np.zeros((shelf.cells, 1), np.uint16), np.zeros((shelf.cells, codes), np.bool_)
    return RemoteCodes(np.empty((0, shelf.cells), np.uint8), alphabet, rare, *nothing, shelf, panel)
