"""`ShardedArchive`: shards that are asked as one archive, with the answers of one.

    archive = ShardedArchive.open("sharded", model="model")                        # all shards in this process
    archive = ShardedArchive.open("sharded", model="model", calls=ray_calls(...))  # actors on a Ray cluster
    answer = archive.query(archive.stored("P1"))
    print(answer.missing)                                    # shares of the archive that did not answer

Everything that `Archive` does, it does, by the same code; what lies in shards is asked there. Knows how the parts fit
together, as `Archive` does.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from diptych.archive import ArchiveStore, Listing, VolumeInfo, VolumeRecord
from diptych.archive.encoding import identity_of
from diptych.archive.schema import Header
from diptych.cluster.shard_calls import ShardCalls, ShardGroup, StaleVersionError, collecting, local_calls
from diptych.cluster.shard_manifest import Manifest, read_manifest, require_disjoint
from diptych.cluster.shard_worker import Model
from diptych.cluster.sharded_catalogue import ShardedCatalogue, join_summaries, joined_version, sampled_rows
from diptych.cluster.sharded_search import (
    ShardedEngine,
    ShardedPatientSearch,
    ShardedPlanes,
    ShardedSearcher,
    ShardedTrust,
    ShardedVolumeSearch,
    remote_rows,
)
from diptych.errors import ArchiveError, ClusterError, UsageError
from diptych.metrics.label_rows import LabelRows
from diptych.metrics.model_tables import tables_of_model
from diptych.metrics.searcher import Searcher
from diptych.model import FeatureDecomposingNetwork
from diptych.model.shipped import named_model, shipped_model_of
from diptych.model.stored_model import StoredModel
from diptych.retrieval import Answer, Archive, EncodedSlice, Question
from diptych.retrieval.explanation import Explanation, SlicePixels, explain_match
from diptych.retrieval.patient_search import PatientMatch, PatientSearch
from diptych.retrieval.question import open_query, require_level
from diptych.retrieval.trust import Trust, TrustCheck
from diptych.retrieval.volume_search import VolumeMatch, VolumeSearch
from diptych.search import Query, SearchEngine
from diptych.search.label_maps import Levels

Result = TypeVar("Result")
TRIES = 3
"""How often a question is asked again because a shard has changed meanwhile."""


class ShardedStore(ArchiveStore):
    """What is stored in all shards."""

    def __init__(self, manifest: Manifest, group: ShardGroup, header: Header) -> None:
        super().__init__(manifest.folder, header)
        self.manifest = manifest
        self.group = group

    @property
    def version(self) -> str:
        """Names the content of all shards; the same as that of one archive with all their volumes."""
        answers = self.group.ask({number: ("newest", None, ()) for number in range(len(self.group))})
        return joined_version(list(answers.values()))

    def record(self, volume_key: str) -> VolumeRecord:
        """One volume with its codes, from the shard that has it."""
        answers = self.group.ask({number: ("record", None, (volume_key,)) for number in range(len(self.group))})
        found: VolumeRecord | None = next((one for one in answers.values() if one is not None), None)
        if found is None:
            known = [info.volume_key for info in self.listing().volumes]
            close = difflib.get_close_matches(volume_key, known, n=3)
            hint = f"; near to it: {', '.join(close)}" if close else ""
            raise ArchiveError(f"{self.path}: holds no volume {volume_key!r}{hint}")
        return found

    def listing(self) -> Listing:
        """Every volume of every shard, by volume key."""
        answers = self.group.ask({number: ("summary", None, ()) for number in range(len(self.group))})
        pairs = sorted(
            (
                (info, int(one.starts[place + 1] - one.starts[place]))
                for one in answers.values()
                for place, info in enumerate(one.volumes)
            ),
            key=lambda pair: pair[0].volume_key,
        )
        problems = tuple(problem for one in answers.values() for problem in one.problems)
        version = joined_version([one.header for one in answers.values()])
        return Listing(version, tuple(info for info, _ in pairs), tuple(count for _, count in pairs), problems)

    def folder_of(self, info: VolumeInfo) -> Path:
        """The shard that holds a patient's images."""
        return self.manifest.shards[self.manifest.owner(info.patient_key)].path


@dataclass(frozen=True, eq=False)
class ShardedArchive(Archive):
    """All shards of a manifest, opened for questions; make one with `ShardedArchive.open`."""

    group: ShardGroup = field(kw_only=True)
    manifest: Manifest = field(kw_only=True)
    lost: tuple[str, ...] = field(default=(), kw_only=True)
    """Shards that did not answer when this version was opened, one sentence each."""

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        model: Model = None,
        threads: int = 1,
        calls: Callable[[Manifest, Model], ShardCalls] = local_calls,
    ) -> ShardedArchive:
        """Open all shards of a folder; `calls` says where they are asked: in this process, or on a cluster."""
        manifest = read_manifest(path)
        known: StoredModel | FeatureDecomposingNetwork
        if model is None or isinstance(model, Path | str):
            known = StoredModel.open(_shipped(manifest) if model is None else named_model(model))
        else:
            known = model
        manifest.model.require(identity_of(known), manifest.folder)
        folder = known.folder if isinstance(known, StoredModel) else None
        held = known.folder if isinstance(known, StoredModel) else known
        group = ShardGroup(calls(manifest, held), [shard.name for shard in manifest.shards])
        catalogue, lost = _open_catalogue(manifest, group)
        tables = tables_of_model(known, folder, cache=manifest.folder / "cache")
        assert catalogue.summaries is not None
        header = next(iter(catalogue.summaries.values())).header
        store = ShardedStore(manifest, group, header)
        return cls(store, known, tables, catalogue, threads, group=group, manifest=manifest, lost=lost)

    def refreshed(self) -> ShardedArchive:
        """The archive as it is now: this very object unless something has changed, or a lost shard has come back."""
        with collecting() as missing:
            now = self.store.version
        same = now == self.catalogue.version.removesuffix("-damaged")
        if same and bool(missing) == bool(self.lost):
            return self
        if missing and not self.lost:  # a moment without one shard is no new version
            return self
        catalogue, lost = _open_catalogue(self.manifest, self.group)
        return replace(self, catalogue=catalogue, lost=lost)

    def close(self) -> None:
        """Let go of all shards."""
        self.group.calls.close()

    @property
    def _whole(self) -> ShardedCatalogue:
        assert isinstance(self.catalogue, ShardedCatalogue)
        return self.catalogue

    @cached_property
    def sharded_engine(self) -> ShardedEngine:
        return ShardedEngine(self._whole, self.tables, self.group)

    @cached_property
    def engine(self) -> SearchEngine:
        return self.sharded_engine

    @cached_property
    def searcher(self) -> Searcher:
        return ShardedSearcher(self.sharded_engine, ShardedPlanes(self._whole, self.plane_decoder, self.group))

    @cached_property
    def volume_search(self) -> VolumeSearch:
        return ShardedVolumeSearch(self.sharded_engine, self._whole)

    @cached_property
    def patient_search(self) -> PatientSearch:
        return ShardedPatientSearch(self.sharded_engine, self._whole, self.label_rows)

    @cached_property
    def label_rows(self) -> dict[str, LabelRows]:
        return remote_rows(self._whole)

    @cached_property
    def trust_check(self) -> TrustCheck:
        return ShardedTrust(self.catalogue, self.engine, cache=self.store.cache_folder)

    @property
    def problems(self) -> tuple[str, ...]:
        """Damaged volumes, and shards that were lost when this version was opened."""
        return (*self.lost, *self.catalogue.problems)

    def query(self, subject: EncodedSlice, question: Question = Question()) -> Answer:
        """The slices most like this one, with the shares of the archive that did not answer."""
        with self.noting() as missing:
            answer = self._again(lambda archive: Archive.query(archive, subject, question))
        if not answer.matches and not missing:
            require_level(question, subject, self.catalogue)
        return replace(answer, missing=tuple(missing))

    def _query(self, question: Question, subject: EncodedSlice) -> Query:
        return open_query(question, subject, self.catalogue)  # shards settle what it says of their slices

    @contextmanager
    def noting(self) -> Iterator[list[str]]:
        """Parts of the archive that did not answer within the block, in words, once it is over."""
        said = list[str]()
        with collecting() as missing:
            yield said
        said += [*self.lost, *self.missing_shares(missing)]

    def similar_volumes(self, record: VolumeRecord, question: Question = Question()) -> tuple[VolumeMatch, ...]:
        return self._again(lambda archive: Archive.similar_volumes(archive, record, question))

    def similar_patients(self, record: VolumeRecord, question: Question = Question()) -> tuple[PatientMatch, ...]:
        return self._again(lambda archive: Archive.similar_patients(archive, record, question))

    def _levels(self, record: VolumeRecord, panel: str) -> Levels:
        return self._decoded(record, panel)  # stored maps lie with the shards

    def trust(self, subject: EncodedSlice, *, metric: str = "euclidean") -> Trust:
        return self._again(lambda archive: Archive.trust(archive, subject, metric=metric))

    def shows_lesion(self, subject: EncodedSlice) -> bool:
        try:
            return super().shows_lesion(subject)
        except ClusterError:  # its stored map is where nobody answers
            return super().shows_lesion(replace(subject, volume_key=None))

    def explain(self, answer: Answer, place: int) -> Explanation:
        match = answer.matches[place]
        return explain_match(
            self.network,
            answer.subject,
            match,
            query_pixels=self.pixels(answer.subject),
            match_pixels=self._stored_pixels(match.volume, match.z_index),
        )

    def pixels(self, subject: EncodedSlice) -> SlicePixels | None:
        if subject.image is not None:
            return SlicePixels(subject.image, subject.lesion, subject.anatomy)
        if subject.volume_key is None or subject.z_index is None:
            return None
        return self._stored_pixels(self.store.record(subject.volume_key).info, subject.z_index)

    def _stored_pixels(self, info: VolumeInfo, z_index: int) -> SlicePixels | None:
        if not info.files:
            return None
        shard = self.manifest.owner(info.patient_key)
        found: SlicePixels | None = self.group.ask({shard: ("pixels", None, (info, z_index))})[shard]
        return found

    def missing_shares(self, missing: dict[int, str]) -> tuple[str, ...]:
        """Shards that did not answer, in words."""
        total, said = len(self.catalogue.index), []
        for number, reason in sorted(missing.items()):
            volumes = self._whole.numbering.volumes.get(number)
            if volumes is None:
                continue  # lost since the opening, and told so
            begins = self._whole.numbering.places.begins
            slices = int((begins[volumes + 1] - begins[volumes]).sum())
            said.append(
                f"{self.group.names[number]} did not answer: {slices} of {total} slices ({slices / total:.0%}) were "
                f"not searched ({reason})"
            )
        return tuple(said)

    def _again(self, ask: Callable[[ShardedArchive], Result]) -> Result:
        """Ask, and ask the newest version where a shard has moved on meanwhile."""
        archive = self
        for left in reversed(range(TRIES)):
            try:
                return ask(archive)
            except StaleVersionError as error:
                if not left:
                    raise ArchiveError(f"{self.store.path}: {error} changes too quickly; ask again") from None
                catalogue, lost = _open_catalogue(self.manifest, self.group)
                archive = replace(self, catalogue=catalogue, lost=lost)
        raise AssertionError("the last try returns or raises")


def _open_catalogue(manifest: Manifest, group: ShardGroup) -> tuple[ShardedCatalogue, tuple[str, ...]]:
    """One catalogue of the shards that answer, and what is to be said of the others."""
    model, left = manifest.model, set(range(len(group)))
    codes = {"normal": model.normal_codes, "abnormal": model.abnormal_codes}
    lost: dict[int, str] = {}
    while True:
        with collecting() as missing:
            summaries = group.ask({number: ("summary", None, ()) for number in sorted(left)}, patient=True)
            require_disjoint(manifest, _patients(summaries, len(group)))
            if not any(one.volumes for one in summaries.values()):
                raise ArchiveError(f"{manifest.folder}: holds no volume; add some with 'diptych index'")
            catalogue = join_summaries(summaries, group, grid=model.grid, codes=codes)
            _hold_samples(catalogue)
        left, lost = left - missing.keys(), lost | missing
        if not missing.keys() & summaries.keys():  # else one has died between the two questions
            break
    return catalogue, tuple(
        f"{group.names[number]} did not answer, and nothing of it was searched ({reason})"
        for number, reason in sorted(lost.items())
    )


def _hold_samples(catalogue: ShardedCatalogue) -> None:
    assert catalogue.shelf is not None
    catalogue.shelf.fetch(sampled_rows(catalogue))


def _patients(summaries: dict[int, Any], count: int) -> list[set[str]]:
    none: tuple[VolumeInfo, ...] = ()
    shown = [summaries[number].volumes if number in summaries else none for number in range(count)]
    return [{info.patient_key for info in volumes} for volumes in shown]


def _shipped(manifest: Manifest) -> Path:
    folder = shipped_model_of(manifest.model.fingerprint)
    if folder is None:
        made = manifest.model.describe()
        raise UsageError(
            f"{manifest.folder}: was made by model {made}, which does not come with Diptych; give its folder"
        )
    return folder
