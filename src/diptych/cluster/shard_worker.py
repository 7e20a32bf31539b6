"""`ShardWorker`: one shard, opened, and everything that can be asked of it; whoever asks sits in this process or afar.

Every question names the version of the shard that it is about, since places in arrays mean nothing in another one. What
comes back is a value, or one of `Refusal` (the question cannot be), `Stale` (that version is gone) and `Unanswered`
(the shard cannot be read): errors travel as values, whatever lies between. Knows archives and retrieval; not Ray.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych import errors
from diptych.archive import ArchiveStore, ModelIdentity, VolumeInfo, VolumeRecord
from diptych.archive.schema import Header
from diptych.cluster.shard_manifest import Shard, require_shard
from diptych.errors import ArchiveMismatchError, DiptychError
from diptych.metrics.decoded_planes import ArchivePlanes
from diptych.metrics.label_planes import Planes
from diptych.metrics.label_rows import LabelRows
from diptych.metrics.searcher import Searcher
from diptych.model import FeatureDecomposingNetwork
from diptych.retrieval import Archive
from diptych.retrieval.catalogue import COLUMNS, Catalogue
from diptych.retrieval.explanation import SlicePixels, stored_pixels
from diptych.retrieval.patient_search import PatientMatch, Stack
from diptych.retrieval.question import OpenFilter
from diptych.retrieval.volume_search import VolumeMatch
from diptych.search import PANELS, Filter, Match, Query
from diptych.search.label_maps import LabelMaps
from diptych.search.query import PanelMatch

KEPT_VERSIONS = 2
"""Versions of a shard that are kept open: the newest, and the one that somebody may just be asking."""

Model = Path | str | FeatureDecomposingNetwork | None


@dataclass(frozen=True)
class Refusal:
    """A question that the shard refuses, as it would in a single archive."""

    kind: str
    message: str

    def error(self) -> DiptychError:
        """The same as an error to raise here."""
        found: type[DiptychError] = getattr(errors, self.kind, DiptychError)
        return found(self.message)


@dataclass(frozen=True)
class Stale:
    """The shard has moved on from the version that was asked about."""

    version: str


@dataclass(frozen=True)
class Unanswered:
    """Why a shard gave no answer."""

    reason: str


@dataclass(frozen=True, eq=False)
class Found:
    """What a shard found, column by column: a few large arrays travel for less than many small ones."""

    places: NDArray[np.int64]
    """Slice, volume and patient of each match in the shard's own numbers, `[n, 3]`."""
    keys: tuple[float, ...]
    whole: tuple[NDArray[np.float64], NDArray[np.float64]]
    """Distances `[n]`, and what each cell contributes `[n, h, w]`."""
    panels: Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64], float]]
    """The same of each panel that was compared, and its weight."""
    ids: Mapping[str, NDArray[np.uint16]]
    """By panel, `[n, P]`, so that nobody need ask again."""

    @classmethod
    def of(cls, matches: Sequence[Match], ids: Mapping[str, NDArray[np.uint16]]) -> Found:
        """The matches of one query."""
        places = np.array([(one.slice, one.volume, one.patient) for one in matches], dtype=np.int64).reshape(-1, 3)
        panels = {}
        for panel in PANELS if matches else ():
            compared = [one for match in matches if (one := getattr(match, panel)) is not None]
            if compared:
                panels[panel] = *_columns(compared), compared[0].weight
        return cls(places, tuple(match.key for match in matches), _columns(matches), panels, ids)

    def match(self, place: int) -> Match:
        """One of them."""
        found = {
            panel: PanelMatch(float(distances[place]), parts[place], weight)
            for panel, (distances, parts, weight) in self.panels.items()
        }
        distances, parts = self.whole
        row, volume, patient = self.places[place].tolist()
        return Match(
            row,
            volume,
            patient,
            float(distances[place]),
            parts[place],
            found.get("normal"),
            found.get("abnormal"),
            key=self.keys[place],
        )


def _columns(matches: Sequence[Match] | Sequence[PanelMatch]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return np.array([one.distance for one in matches]), np.array([one.contributions for one in matches])


@dataclass(frozen=True, eq=False)
class ShardSummary:
    """What the whole must know of a shard: its volumes and slices, without a single code."""

    version: str
    header: Header
    volumes: tuple[VolumeInfo, ...]
    starts: NDArray[np.int64]
    """First slice of each volume, and their number at the end, `[V + 1]`."""
    columns: Mapping[str, NDArray[Any]]
    """Of every slice, as in a catalogue, and `lesion_free`."""
    problems: tuple[str, ...]
    panels: tuple[str, ...]
    """Those whose codes decode to labels."""
    maps: Mapping[str, LabelMaps]
    """By panel, no map at all, but of the shape of those that are stored; empty where not all are."""
    fitted: bool
    """Whether label decoders made them."""
    ready: bool
    """Whether a search by labels begins at once."""


class ShardWorker:
    """One shard; safe to be asked from several threads."""

    def __init__(
        self, shard: Shard, folder: Path, model: Model = None, *, identity: ModelIdentity, threads: int = 1
    ) -> None:
        self.shard, self.folder = shard, folder
        self.model, self.identity, self.threads = model, identity, threads
        self._opened: dict[str, OpenedShard | EmptyShard] = {}
        self._lock = RLock()

    def call(self, method: str, version: str | None, arguments: Sequence[Any]) -> Any:
        """Answer one question; without a version, about the newest."""
        try:
            opened = self._at(version)
        except ArchiveMismatchError as error:
            return Refusal(type(error).__name__, str(error))
        except (DiptychError, OSError) as error:
            lost = not self.shard.path.is_dir()
            return Refusal(type(error).__name__, str(error)) if lost else Unanswered(str(error))
        if opened is None:
            return Stale(self._newest().version)
        try:
            return getattr(opened, method)(*arguments)
        except DiptychError as error:
            return Refusal(type(error).__name__, str(error))
        except OSError as error:
            return Unanswered(f"{error.filename or self.shard.path}: {error.strerror or error}")

    def _at(self, version: str | None) -> OpenedShard | EmptyShard | None:
        with self._lock:
            if version is None or version not in self._opened:
                newest = self._newest()
                return newest if version in (None, newest.version) else None
            return self._opened[version]

    def _newest(self) -> OpenedShard | EmptyShard:
        """The shard as it is now; what was opened before is read again only where it has changed."""
        with self._lock:
            last = next(reversed(self._opened.values()), None)
            store = self._store()
            if not store.header.volumes:
                opened: OpenedShard | EmptyShard = EmptyShard(store)
            elif isinstance(last, OpenedShard):
                archive = last.archive.refreshed()
                opened = last if archive is last.archive else OpenedShard(archive)
            else:
                opened = OpenedShard(Archive.open(self.shard.path, model=self.model, threads=self.threads))
            self._opened.pop(opened.version, None)
            self._opened[opened.version] = opened
            for old in list(self._opened)[:-KEPT_VERSIONS]:
                del self._opened[old]
            return opened

    def _store(self) -> ArchiveStore:
        """The shard's file, of the right model; a folder that is gone is told so only if it was never there."""
        if not self._opened:
            require_shard(self.folder, self.shard)
        found = ArchiveStore.open(self.shard.path)
        if found.model != self.identity:
            raise ArchiveMismatchError(
                f"{self.shard.path}: was made by model {found.model.describe()}, but all shards of "
                f"{self.folder} by {self.identity.describe()}; index its patients again"
            )
        return found


class EmptyShard:
    """A shard that no patient was given to yet."""

    def __init__(self, store: ArchiveStore) -> None:
        self.store = store
        self.version = store.version

    def summary(self) -> ShardSummary:
        nothing = np.zeros(1, dtype=np.int64)
        return ShardSummary(self.version, self.store.header, (), nothing, {}, (), (), {}, False, True)

    def newest(self) -> Header:
        return self.store.header

    def record(self, volume_key: str) -> None:
        return None


class OpenedShard:
    """One version of a shard."""

    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        self.catalogue = archive.catalogue
        self.version = archive.catalogue.version

    def summary(self) -> ShardSummary:
        """What the whole must know."""
        catalogue, planes = self.catalogue, self._planes(stored=True)
        columns = {name: np.asarray(getattr(catalogue, name)) for name in COLUMNS}
        none = np.empty(0, dtype=np.int64)
        return ShardSummary(
            version=self.version,
            header=self.archive.store.header,
            volumes=catalogue.volumes,
            starts=catalogue.index.volume_starts,
            columns={**columns, "lesion_free": np.asarray(catalogue.index.lesion_free)},
            problems=catalogue.problems,
            panels=planes.panels,
            maps={panel: rows.maps(none) for panel, rows in self.archive.label_rows.items()},
            fitted=planes.fitted,
            ready=planes.ready,
        )

    def newest(self) -> Header:
        """The header as it is on the disk now, whatever version this is."""
        return self.archive.store.header

    def ids(self, rows: NDArray[np.int64]) -> dict[str, NDArray[np.uint16]]:
        """Ids of some slices by panel, `[n, P]`."""
        return {panel: self.catalogue.index.codes[panel].ids(rows) for panel in PANELS}

    def maps(self, panel: str, rows: NDArray[np.int64], stored: bool) -> LabelMaps | Planes:
        """Label maps of some slices."""
        found = self._planes(stored=stored).maps()[panel]
        return found.maps(rows) if isinstance(found, LabelRows) else found.take(rows)

    def search(self, queries: Sequence[Query], kind: str, stored: bool) -> list[Found]:
        """The best matches to each query: by tables, histograms, or labels (`stored` maps, or those decoded now)."""
        searcher = self._searcher(stored=stored)
        queries = [replace(query, where=_settled(query.where, self.catalogue)) for query in queries]
        if kind == "histograms":
            answers = [searcher.search_histograms(query) for query in queries]
        else:
            answers = searcher.search_batch(queries)
        return [self._found(matches) for matches in answers]

    def similar_volumes(self, normal: Any, abnormal: Any, query: Query) -> list[VolumeMatch]:
        """The volumes nearest to a whole one."""
        return self.archive.volume_search.search(normal, abnormal, query)

    def similar_patients(self, stack: Stack, query: Query, anywhere: str | None) -> list[PatientMatch]:
        """The patients nearest to a whole one."""
        return self.archive.patient_search.search(stack, query, anywhere=anywhere)

    def record(self, volume_key: str) -> VolumeRecord | None:
        """A volume with its codes; None where the shard has none of that key."""
        known = any(info.volume_key == volume_key for info in self.catalogue.volumes)
        return self.archive.store.record(volume_key) if known else None

    def pixels(self, info: VolumeInfo, z_index: int) -> SlicePixels | None:
        """The image behind a slice, where the shard keeps it."""
        return stored_pixels(self.archive.store, info, z_index, self.archive.encoder)

    def files(self, info: VolumeInfo) -> dict[str, bytes]:
        """The copies of a volume's images by path."""
        from diptych.archive.copies import copy_path

        return {file.path: copy_path(self.archive.store.path, file).read_bytes() for file in info.files if file.is_copy}

    def decode(self) -> bool:
        """Decode all labels now, so that searches need not wait."""
        self._planes(stored=True).maps()
        return True

    def _found(self, matches: Sequence[Match]) -> Found:
        return Found.of(matches, self.ids(np.array([match.slice for match in matches], dtype=np.int64)))

    def _planes(self, *, stored: bool) -> ArchivePlanes:
        planes = self._searcher(stored=stored).planes
        assert planes is not None
        return planes

    def _searcher(self, *, stored: bool) -> Searcher:
        return self.archive.searcher if stored else self._decoding

    @cached_property
    def _decoding(self) -> Searcher:
        """Compares labels that are decoded now even where some are stored, as a single archive does that lacks some."""
        archive = self.archive
        if archive.searcher.planes is not None and archive.searcher.planes.stored is None:
            return archive.searcher
        planes = ArchivePlanes(
            self.catalogue.index, archive.plane_decoder, cache=archive.store.cache_folder, version=self.version
        )
        return Searcher(archive.engine, planes, heights=self.catalogue.z_mm)


def _settled(where: Filter, catalogue: Catalogue) -> Filter:
    return where.settled(catalogue) if isinstance(where, OpenFilter) else where
