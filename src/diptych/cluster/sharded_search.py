"""Search over shards: every query goes to all of them at once, and their best are merged exactly.

Each class stands where its single-archive twin stands (`SearchEngine`, `LabelSearch`, …) and knows what it knows of the
whole; the work is done by the shards. Spreads, which normalise distances, are those of the whole and go along with each
query. All volumes of a patient lie in one shard, so the best of the whole are among the best of the shards, and keys
(not rounded distances) and then places order them as in one archive. Knows numbering and groups; nothing about files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import repeat
from typing import Any

import numpy as np

from diptych.cluster.shard_calls import ShardGroup, any_missing, collecting
from diptych.cluster.shard_worker import Found
from diptych.cluster.sharded_catalogue import Numbering, RemoteRows, ShardedCatalogue, Shelf, fetch_maps
from diptych.errors import ClusterError
from diptych.metrics.decoded_planes import ArchivePlanes, Decoder
from diptych.metrics.fusion import METRIC as FUSION
from diptych.metrics.fusion import Fusion, candidates
from diptych.metrics.histogram import HistogramSearch
from diptych.metrics.label_planes import Planes
from diptych.metrics.label_rows import LabelRows
from diptych.metrics.label_search import LabelSearch
from diptych.metrics.learned_tables import METRIC as LEARNED
from diptych.metrics.overlap import METRIC as OVERLAP
from diptych.metrics.overlap import Overlap
from diptych.metrics.searcher import Searcher
from diptych.progress import Progress, silent
from diptych.retrieval.patient_search import PatientMatch, PatientSearch, Stack
from diptych.retrieval.trust import TrustCheck
from diptych.retrieval.volume_search import SPREAD_PAIRS, Ids, VolumeMatch, VolumeSearch
from diptych.search import Match, Query, SearchEngine
from diptych.search.query import panels_of
from diptych.search.tables import Tables


class ShardedEngine(SearchEngine):
    """A `SearchEngine` over all shards."""

    def __init__(self, catalogue: ShardedCatalogue, tables: Tables, group: ShardGroup) -> None:
        super().__init__(catalogue.index, tables)
        self.catalogue = catalogue
        self.group = group

    @property
    def numbering(self) -> Numbering:
        return self.catalogue.numbering

    def search(self, query: Query) -> list[Match]:
        return self.search_batch([query])[0]

    def search_batch(self, queries: Sequence[Query]) -> list[list[Match]]:
        return self.broadcast([self.with_spreads(query) for query in queries], "tables", stored=True)

    def with_spreads(self, query: Query) -> Query:
        """The query with what a search by both panels divides by."""
        if query.by != "both" or query.combine == "paper":
            return query
        return replace(query, spreads={(query.metric, panel): self.spread(query, panel) for panel in panels_of("both")})

    def broadcast(self, queries: Sequence[Query], kind: str, *, stored: bool) -> list[list[Match]]:
        """Ask all shards, and merge what each query found."""
        numbering, shelf = self.numbering, self.catalogue.shelf
        assert shelf is not None
        calls = {}
        for shard, version in numbering.versions.items():
            own = [replace(query, where=numbering.part(shard, query.where), archived=None) for query in queries]
            calls[shard] = "search", version, (own, kind, stored)
        answers = self.group.ask(calls, patient=not stored)
        return [
            self._best({shard: answer[place] for shard, answer in answers.items()}, query.top)
            for place, query in enumerate(queries)
        ]

    def _best(self, answers: Mapping[int, Found], top: int) -> list[Match]:
        """The best of what the shards found, by the keys that order them, in the numbers of the whole."""
        numbering, shelf, order = self.numbering, self.catalogue.shelf, list[tuple[float, int, int, int]]()
        assert shelf is not None
        for shard, found in answers.items():
            volumes = numbering.volumes[shard][found.places[:, 1]].tolist()
            order += zip(found.keys, volumes, repeat(shard), range(len(volumes)))
        best = []
        for _, _, shard, place in sorted(order)[:top]:
            found = answers[shard]
            best.append(numbering.whole(shard, found.match(place)))
            shelf.remember(best[-1].slice, {panel: ids[place] for panel, ids in found.ids.items()})
        return best


class ShardedPlanes(ArchivePlanes):
    """What slices decode to, wherever it lies; `stored` only where every shard has all its maps."""

    def __init__(self, catalogue: ShardedCatalogue, decoder: Decoder, group: ShardGroup) -> None:
        assert catalogue.summaries is not None
        summaries = list(catalogue.summaries.values())
        rows = remote_rows(catalogue)
        super().__init__(catalogue.index, decoder, cache=None, version=catalogue.version, stored=rows)
        self.shelf = catalogue.shelf
        self.group = group
        self._prepared = all(one.ready for one in summaries)

    @property
    def ready(self) -> bool:
        return self.stored is not None or self._prepared

    def maps(self, progress: Progress = silent) -> Mapping[str, Planes | LabelRows]:
        if self.stored is not None:
            return self.stored
        versions = self.shelf.numbering.versions if self.shelf is not None else {}
        for done, (shard, version) in enumerate(versions.items() if not self._prepared else (), start=1):
            self.group.ask({shard: ("decode", version, ())}, patient=True)
            progress(done, len(versions), self.group.names[shard])
        self._prepared = True
        return {panel: _remote_planes(self.shelf, panel) for panel in self.panels}


def remote_rows(catalogue: ShardedCatalogue) -> dict[str, LabelRows]:
    """By panel, where every shard has all its maps, of the same classes."""
    assert catalogue.summaries is not None
    assert catalogue.places is not None
    summaries = list(catalogue.summaries.values())
    found: dict[str, LabelRows] = {}
    for panel, none in summaries[0].maps.items():
        others = [one.maps.get(panel) for one in summaries]
        if all(one is not None and (one.classes, one.grid) == (none.classes, none.grid) for one in others):
            found[panel] = RemoteRows([none], catalogue.places, shelf=catalogue.shelf, panel=panel)
    return found


class RemotePlanes(Planes):
    """Decoded planes, wherever they lie."""

    shelf: Shelf | None
    panel: str

    def take(self, rows: Any) -> Planes:
        found = fetch_maps(self.shelf, self.panel, np.asarray(rows, dtype=np.int64), stored=False)
        assert isinstance(found, Planes)
        return found


def _remote_planes(shelf: Shelf | None, panel: str) -> RemotePlanes:
    one = fetch_maps(shelf, panel, np.zeros(1, dtype=np.int64), stored=False)
    assert isinstance(one, Planes)
    planes = RemotePlanes(one.grid, one.words[:0], one.areas[:0], one.levels)
    object.__setattr__(planes, "shelf", shelf)
    object.__setattr__(planes, "panel", panel)
    return planes


class ShardedLabelSearch(LabelSearch):
    """Search by decoded labels, done by the shards."""

    def __init__(self, comparison: Overlap | Fusion, engine: ShardedEngine, metric: str, *, stored: bool) -> None:
        super().__init__(comparison)
        self.sharded, self.metric, self.stored = engine, metric, stored

    def search(self, query: Query) -> list[Match]:
        query = replace(query, metric=self.metric)
        known = self._known(query, dict.fromkeys(panels_of(query.by), 1.0))
        decoded = {panel: self._decoded(query, panel) for panel in known}
        query = replace(query, decoded=decoded, spreads=self._spreads(query), archived=None)
        if self.metric == FUSION and self.engine.index.volumes > candidates(query.top):
            query = self._among_candidates(query)
        return self.sharded.broadcast([query], "labels", stored=self.stored)[0]

    def search_batch(self, queries: Sequence[Query]) -> list[list[Match]]:
        return [self.search(query) for query in queries]

    def _among_candidates(self, query: Query) -> Query:
        """The query among the volumes that overlap best in the whole archive: shards know only their own best."""
        wide = replace(query, metric=OVERLAP, top=candidates(query.top))
        allowed = np.zeros(self.engine.index.volumes, dtype=np.bool_)
        allowed[[match.volume for match in self.sharded.broadcast([wide], "labels", stored=self.stored)[0]]] = True
        return replace(query, where=replace(query.where, volumes=allowed))

    def _decoded(self, query: Query, panel: str) -> Planes:
        """What the query decodes to, once for all shards."""
        try:
            return self.overlap.decoded(query, panel)
        except ClusterError:  # it is stored in a shard that does not answer
            return self.overlap.decoded(replace(query, archived=None), panel)

    def _spreads(self, query: Query) -> dict[tuple[str, str], float]:
        overlap = self.overlap
        if self.metric == FUSION:  # in both panels, whatever the search is by: matches tell of the other one, too
            found = {(OVERLAP, panel): overlap.spread(query, panel) for panel in self.comparison.panels}
            learned = replace(query, metric=LEARNED)
            return found | {(LEARNED, panel): self.engine.spread(learned, panel) for panel in self.comparison.panels}
        if query.by != "both" or query.combine == "paper":
            return {}
        return {(OVERLAP, panel): overlap.spread(query, panel) for panel in panels_of("both")}


class ShardedHistograms(HistogramSearch):
    """Search without places, done by the shards."""

    def __init__(self, engine: ShardedEngine) -> None:
        super().__init__(engine)
        self.sharded = engine

    def search(self, query: Query) -> list[Match]:
        return self.sharded.broadcast([query], "histograms", stored=True)[0]


class ShardedSearcher(Searcher):
    """The one list of metrics, over shards."""

    def __init__(self, engine: ShardedEngine, planes: ShardedPlanes) -> None:
        super().__init__(engine, planes)
        self.sharded = engine

    @cached_property
    def _by_labels(self) -> dict[str, LabelSearch]:
        assert self.planes is not None
        overlap = Overlap(self.engine, self.planes.maps(), self.planes.decoder)
        ways: dict[str, Overlap | Fusion] = {OVERLAP: overlap, FUSION: Fusion(overlap)}
        stored = self.planes.stored is not None
        return {metric: ShardedLabelSearch(way, self.sharded, metric, stored=stored) for metric, way in ways.items()}

    @cached_property
    def _histograms(self) -> HistogramSearch:
        return ShardedHistograms(self.sharded)


class ShardedVolumeSearch(VolumeSearch):
    """Whole volumes, compared by the shards."""

    def __init__(self, engine: ShardedEngine, catalogue: ShardedCatalogue) -> None:
        super().__init__(engine, catalogue.volumes)
        self.sharded = engine

    def search(self, normal: Ids, abnormal: Ids, query: Query) -> list[VolumeMatch]:
        if query.by == "both" and query.combine != "paper":
            self._fetch_sample()
            query = replace(
                query, spreads={(query.metric, panel): self.spread(query, panel) for panel in panels_of("both")}
            )
        return _merged(self.sharded, query, lambda own: ("similar_volumes", (normal, abnormal, own)))

    def _fetch_sample(self) -> None:
        """Have the volumes at hand from which the spread is taken, all of them or none."""
        index, shelf = self.engine.index, self.sharded.catalogue.shelf
        assert shelf is not None
        volumes = np.unique(np.random.default_rng(0).integers(index.volumes, size=(SPREAD_PAIRS, 2)))
        starts = index.volume_starts
        rows = np.concatenate([np.arange(starts[one], starts[one + 1]) for one in volumes.tolist()])
        if not shelf.holds(rows) and not shelf.fetch(rows)[0].all():
            raise ClusterError("a shard did not answer, and volumes cannot be compared before it did once; try again")


class ShardedPatientSearch(PatientSearch):
    """Whole patients in three dimensions, compared by the shards."""

    def __init__(self, engine: ShardedEngine, catalogue: ShardedCatalogue, labels: Mapping[str, LabelRows]) -> None:
        super().__init__(engine, labels, catalogue.volumes, catalogue.z_mm, catalogue.z_index)
        self.sharded = engine

    def search(self, stack: Stack, query: Query, *, anywhere: str | None = None) -> list[PatientMatch]:
        return _merged(self.sharded, query, lambda own: ("similar_patients", (stack, own, anywhere)))


class ShardedTrust(TrustCheck):
    """What is usual is kept only if every shard had a say in it."""

    def usual(self, panel: str, metric: str, *, lesioned: bool) -> list[float]:
        with collecting() as missing:
            found = super().usual(panel, metric, lesioned=lesioned)
        if missing:
            self._usual.pop((panel, metric, lesioned), None)
        return found

    def _keep(self, key: tuple[str, str, bool], found: list[float]) -> list[float]:
        return found if any_missing() else super()._keep(key, found)


def _merged(engine: ShardedEngine, query: Query, ask: Callable[[Query], tuple[str, tuple[Any, ...]]]) -> list[Any]:
    """Matches of whole volumes or patients from all shards, nearest first, equal ones by key."""
    numbering, calls = engine.numbering, {}
    for shard, version in numbering.versions.items():
        method, arguments = ask(replace(query, where=numbering.part(shard, query.where)))
        calls[shard] = method, version, arguments
    found = [match for answer in engine.group.ask(calls).values() for match in answer]
    found.sort(key=lambda match: (match.distance, match.volume.volume_key))
    return found[: query.top]
