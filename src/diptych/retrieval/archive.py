"""`Archive`: an archive with its model, opened for questions. The table of contents of retrieval.

    archive = Archive.open("archive", model="model")
    subject = archive.encode("patients/P1")                     # or archive.stored("Phantom-00000-00001", z_index=40)
    answer = archive.query(subject, Question(by="abnormal", top=5))
    print(archive.explain(answer, 0).match.volume.volume_key)

Each question is answered from one version of the archive, the one that was current on opening; `refreshed` opens a
newer one. Knows how the parts fit together; each part has its own file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from diptych import archive as archives
from diptych.archive import VolumeInfo, VolumeRecord
from diptych.archive.encoding import NetworkEncoder, encode_volume, identity_of
from diptych.archive.pseudonyms import ArchiveKeys
from diptych.description import Description
from diptych.errors import UsageError
from diptych.metrics.decoded_planes import ArchivePlanes, PlaneDecoder, StoredModelDecoder
from diptych.metrics.label_indexing import VolumeDecoder
from diptych.metrics.label_rows import LabelRows, stored_rows
from diptych.metrics.model_tables import tables_of_model
from diptych.metrics.overlap import METRIC as OVERLAP
from diptych.metrics.searcher import DEFAULT, Searcher
from diptych.model.shipped import named_model, shipped_model_of
from diptych.model.stored_model import StoredModel
from diptych.progress import Progress, silent
from diptych.retrieval.answer import Answer, SliceMatch, named_matches
from diptych.retrieval.anywhere import PlacedLesion, place_lesion, search_placements
from diptych.retrieval.catalogue import Catalogue, open_catalogue
from diptych.retrieval.encoded_slice import EncodedSlice, encode_slice, largest_lesion, read_one, stored_slice
from diptych.retrieval.explanation import (
    Explanation,
    SlicePixels,
    SliceView,
    decode_lesion,
    explain_match,
    stored_pixels,
    view_slices,
)
from diptych.retrieval.match_worth import WorthTables
from diptych.retrieval.model_reference import Check, load_reference, volume_check
from diptych.retrieval.patient_search import PatientMatch, PatientSearch, Stack
from diptych.retrieval.question import Question, slice_query, touched_cells, volume_query
from diptych.retrieval.trust import Trust, TrustCheck, quantisation_error
from diptych.retrieval.volume_search import VolumeMatch, VolumeSearch
from diptych.search import Query, SearchEngine
from diptych.search.label_maps import Levels
from diptych.search.query import panel_named, panels_of
from diptych.search.tables import Tables
from diptych.volumes import Volume, names_of, subject_of
from diptych.volumes.channel_check import Reference

if TYPE_CHECKING:
    from PIL.Image import Image

    from diptych.model import FeatureDecomposingNetwork
    from diptych.retrieval.refined_twin import TwinRefiner

LESION_LEVEL = 2
"""Level of a stored label map from which a place counts as lesion: a share of one half."""


@dataclass(frozen=True, eq=False)
class Archive:
    """An archive, the model that made it, and an engine that searches it; make one with `Archive.open`."""

    store: archives.ArchiveStore
    model: StoredModel | FeatureDecomposingNetwork
    """The model; one that was read from a folder makes its network when that is first needed."""
    tables: Tables
    catalogue: Catalogue
    threads: int = 1

    @classmethod
    def open(
        cls, path: Path | str, *, model: Path | str | FeatureDecomposingNetwork | None = None, threads: int = 1
    ) -> Archive:
        """Open an archive with the model that made it; any other model is refused.

        Without `model`, that must be one of the models that come with Diptych.
        """
        store = archives.ArchiveStore.open(path)
        known: StoredModel | FeatureDecomposingNetwork
        if model is None or isinstance(model, Path | str):
            known = StoredModel.open(_shipped(store) if model is None else named_model(model))
        else:
            known = model
        store.model.require(identity_of(known), store.path)
        folder = known.folder if isinstance(known, StoredModel) else None
        tables = tables_of_model(known, folder, cache=store.cache_folder)
        return cls(store, known, tables, open_catalogue(store, tables), threads)

    def refreshed(self) -> Archive:
        """The archive as it is now: this very object unless something has changed."""
        if self.store.version == self.catalogue.version.removesuffix("-damaged"):
            return self
        return replace(self, catalogue=open_catalogue(self.store, self.tables))

    @property
    def network(self) -> FeatureDecomposingNetwork:
        """What encodes and decodes; searches from archived slices never need it."""
        return self.model.network if isinstance(self.model, StoredModel) else self.model

    @property
    def model_folder(self) -> Path | None:
        """Where the model was read from, with what else lies there; None for one that was given as a network."""
        return self.model.folder if isinstance(self.model, StoredModel) else None

    @cached_property
    def refiner(self) -> TwinRefiner | None:
        """What paints healthy tissue over lesions; None where the model has none."""
        from diptych.retrieval.refined_twin import TwinRefiner

        return None if self.model_folder is None else TwinRefiner.open(self.model_folder, self.network)

    @cached_property
    def encoder(self) -> NetworkEncoder:
        return NetworkEncoder(self.network)

    @property
    def description(self) -> Description:
        """Channels and classes by name, as the model knows them."""
        return self.model.description

    @cached_property
    def reference(self) -> Reference | None:
        """What the model's training patients looked like, where that is kept beside it."""
        return load_reference(self.model_folder, fingerprint=self.model.fingerprint)

    @cached_property
    def check(self) -> Check:
        """What to say about a volume that is read for the model."""
        return volume_check(self.model_folder, fingerprint=self.model.fingerprint)

    @cached_property
    def engine(self) -> SearchEngine:
        return SearchEngine(self.catalogue.index, self.tables, threads=self.threads)

    @cached_property
    def searcher(self) -> Searcher:
        """Answers queries in every metric; for those that compare labels, the archive's are decoded on first use."""
        planes = ArchivePlanes(
            self.catalogue.index,
            self.plane_decoder,
            cache=self.store.cache_folder,
            version=self.catalogue.version,
            stored=self.label_rows,
        )
        return Searcher(self.engine, planes, heights=self.catalogue.z_mm)

    @cached_property
    def label_rows(self) -> dict[str, LabelRows]:
        """What the archive's codes decode to, by panel, as it was stored when volumes were indexed."""
        return stored_rows(self.catalogue.labels, self.catalogue.places, self.engine.pool)

    @cached_property
    def worth(self) -> WorthTables | None:
        """What matches are worth, where it was measured for this model."""
        return WorthTables.open(self.model_folder, self.model.fingerprint)

    @cached_property
    def volume_search(self) -> VolumeSearch:
        return VolumeSearch(self.engine, self.catalogue.volumes)

    @cached_property
    def trust_check(self) -> TrustCheck:
        limit = None if self.reference is None else self.reference.error_limit
        return TrustCheck(self.catalogue, self.engine, cache=self.store.cache_folder, error_limit=limit)

    @property
    def problems(self) -> tuple[str, ...]:
        """Damaged volumes that no answer contains; show them with every answer."""
        return self.catalogue.problems

    @contextmanager
    def noting(self) -> Iterator[list[str]]:
        """Parts of the archive that did not answer within the block, in words; an archive in one part has none."""
        yield []

    def encode(self, patient: Path | str | Volume, *, z_index: int | None = None) -> EncodedSlice:
        """Read a slice of a patient that need not be in the archive: a folder with its NIfTI files, or a volume.

        Without `z_index` it is the slice with the largest predicted lesion.
        """
        volume = self._read(patient)
        levels = VolumeDecoder(self.plane_decoder).levels
        subject = encode_slice(
            volume, self.encoder, z_index=z_index, sizes=lambda ids: _lesion_cells(levels("abnormal", ids))
        )
        return replace(subject, warnings=(*subject.warnings, *self.check(volume)))

    def stored(self, volume_key: str, *, z_index: int | None = None) -> EncodedSlice:
        """A slice of an archived volume; without `z_index`, the one with the largest predicted lesion."""
        record = self.store.record(volume_key)
        if z_index is None:
            sizes = self._stored_lesions(self.catalogue.slices_of(volume_key))
            if len(sizes) == record.slice_count and sizes.any():  # otherwise it was indexed anew, or the network knows
                z_index = int(record.z_index[largest_lesion(sizes, volume_key)])
        return stored_slice(record, lambda: self.encoder, z_index=z_index)

    def search(
        self, patient: Path | str | Volume, *, by: str = "both", z_index: int | None = None, **options: Any
    ) -> Answer:
        """The slices most like one of a patient: a folder, a volume, or the key of an archived one.

        `by` is anatomy, lesion or both; `options` are fields of `Question`, such as `top` or `where`. Without `z_index`
        it is the slice with the largest predicted lesion.
        """
        unknown = sorted(set(options) - {field.name for field in fields(Question)})
        if unknown:
            raise UsageError(f"search({unknown[0]}=…): there is no such option; Question lists those there are")
        archived = isinstance(patient, str) and not Path(patient).exists()
        subject = (self.stored if archived else self.encode)(patient, z_index=z_index)  # type: ignore[arg-type]
        return self.query(subject, Question(by=panel_named(by), **options))

    def query(self, subject: EncodedSlice, question: Question = Question()) -> Answer:
        """The slices that are most like this one: the best of each patient, nearest first."""
        if not isinstance(subject, EncodedSlice):
            raise UsageError(
                f"query({subject!r}): takes a slice; archive.stored(KEY) and archive.encode(FOLDER) give one"
            )
        question = self.settled(question)
        query, placed = self._query(question, subject), None
        if question.anywhere == "histogram":
            query = replace(query, region=self._region(subject, question))
            found = self.searcher.search_histograms(query)
        elif question.anywhere is not None:
            places = self._places(subject, question)
            pairs = search_placements(self.searcher, query, places, inside_lesion=question.inside_lesion)
            found, placed = [match for match, _ in pairs], [where for _, where in pairs]
        else:
            query = replace(query, region=self._region(subject, question))
            found = self.searcher.search(query, rerank=question.rerank)
        matches = self._valued(subject, question, named_matches(found, self.catalogue, placed))
        return Answer(subject, question, matches, self.catalogue.version)

    def _query(self, question: Question, subject: EncodedSlice) -> Query:
        """The question to the search engine."""
        return slice_query(question, subject, self.catalogue)

    def _valued(
        self, subject: EncodedSlice, question: Question, matches: tuple[SliceMatch, ...]
    ) -> tuple[SliceMatch, ...]:
        """Matches with what they are worth, where whole slices were compared in place."""
        if self.worth is None or question.region is not None or question.inside_lesion or question.anywhere is not None:
            return matches
        metric = question.metric if question.rerank is None else OVERLAP
        compared = any(match.abnormal is not None for match in matches) and (metric, "abnormal") in self.worth.curves
        lesion = compared and self.shows_lesion(subject)
        return tuple(
            replace(match, worth=self.worth.of(metric, match.normal, match.abnormal, lesion=lesion))
            for match in matches
        )

    def settled(self, question: Question) -> Question:
        """The question with its metric, where it leaves that open; one that this model cannot answer is refused."""
        query = Query(by=question.by, metric=question.metric, combine=question.combine)
        if question.metric == DEFAULT and (question.anywhere is not None or question.rerank is not None):
            return replace(question, metric=self.searcher.settle_codes(query, "to search anywhere").metric)
        return replace(question, metric=self.searcher.settle(query).metric)

    def ready(self, question: Question) -> bool:
        """Whether a settled question is answered at once; otherwise the archive's labels are decoded first."""
        return self.searcher.ready(question.metric, rerank=question.rerank)

    def decode_labels(self, progress: Progress = silent) -> None:
        """Do now what the first search by labels would have to wait for."""
        self.searcher.prepare(progress)

    def mirrored(self, subject: EncodedSlice) -> EncodedSlice:
        """The slice with left and right exchanged, encoded anew: from its pixels, or from what its codes decode to."""
        view = self.view(subject)
        image = view.reconstruction if view.pixels is None else view.pixels.image
        normal, abnormal = self.encoder.encode(image[None, :, :, ::-1])
        return replace(
            subject,
            name=f"mirror image of {subject.name}",
            normal_ids=normal[0],
            abnormal_ids=abnormal[0],
            volume_key=None,
            image=image[:, :, ::-1],
            lesion=None,
            anatomy=None,
        )

    def comparators(self, subject: EncodedSlice, question: Question = Question()) -> Answer:
        """What this level looks like in healthy tissue: real lesion-free slices of others, nearest by normal code."""
        return self.query(subject, replace(question, by="normal", lesion_free=True))

    def similar_volumes(self, record: VolumeRecord, question: Question = Question()) -> tuple[VolumeMatch, ...]:
        """The volumes most like a whole volume, over all aligned slices; see `whole` and `store.record`."""
        if question.anywhere is not None or question.inside_lesion or question.level_mm is not None:
            raise UsageError("whole volumes are compared in place: leave anywhere, inside_lesion and level_mm out")
        query = volume_query(question, names_of(record.info.patient_key), self.catalogue)
        query = self.searcher.settle_codes(query, "for whole volumes")
        return tuple(self.volume_search.search(record.normal_ids, record.abnormal_ids, query))

    def similar_patients(self, record: VolumeRecord, question: Question = Question()) -> tuple[PatientMatch, ...]:
        """The patients most like a whole one, by overlap of their labels in three dimensions; see `whole`."""
        if (
            question.inside_lesion
            or question.rerank is not None
            or question.lesion_free
            or question.level_mm is not None
        ):
            raise UsageError("whole patients are compared: leave inside_lesion, rerank, lesion_free and level_mm out")
        query = volume_query(question, names_of(record.info.patient_key), self.catalogue)
        levels = {panel: self._levels(record, panel) for panel in panels_of(question.by)}
        stack = Stack(levels, record.z_mm, record.z_index)
        return tuple(self.patient_search.search(stack, query, anywhere=question.anywhere))

    def _levels(self, record: VolumeRecord, panel: str) -> Levels:
        """A volume's label maps: as stored where the archive holds just these codes, decoded otherwise."""
        ids, rows = getattr(record, f"{panel}_ids"), self.catalogue.slices_of(record.info.volume_key)
        held = len(rows) == len(ids) and panel in self.label_rows
        if held and np.array_equal(self.catalogue.index.codes[panel].ids(rows), ids.reshape(len(ids), -1)):
            return self.label_rows[panel].maps(rows).levels(np.arange(len(rows)))
        return self._decoded(record, panel)

    def _decoded(self, record: VolumeRecord, panel: str) -> Levels:
        return VolumeDecoder(self.plane_decoder).levels(panel, getattr(record, f"{panel}_ids"))

    @cached_property
    def patient_search(self) -> PatientSearch:
        catalogue = self.catalogue
        return PatientSearch(self.engine, self.label_rows, catalogue.volumes, catalogue.z_mm, catalogue.z_index)

    @cached_property
    def plane_decoder(self) -> PlaneDecoder | StoredModelDecoder:
        """Decodes ids to labels, with the model's own label decoders where it has some."""
        return StoredModelDecoder(self.model) if isinstance(self.model, StoredModel) else PlaneDecoder(self.model)

    def whole(self, patient: Path | str | Volume) -> VolumeRecord:
        """Encode all slices of a patient that need not be in the archive."""
        volume = self._read(patient)
        return encode_volume(volume, VolumeInfo(volume.patient_key, subject_of(volume.patient_key)), self.encoder)

    def key_of(self, name: str) -> str:
        """What somebody of this name is or would be called in the archive: never a name that tells who it is."""
        known = {key for info in self.catalogue.volumes for key in (info.volume_key, info.patient_key)}
        return ArchiveKeys.of_archive(self.store.path).choose(name, known)

    def _read(self, patient: Path | str | Volume) -> Volume:
        volume = patient if isinstance(patient, Volume) else read_one(Path(patient))
        return replace(volume, patient_key=self.key_of(volume.patient_key))

    def explain(self, answer: Answer, place: int) -> Explanation:
        """Why the match in that place was found: both slices decoded, beside one another."""
        match = answer.matches[place]
        return explain_match(
            self.network,
            answer.subject,
            match,
            query_pixels=self.pixels(answer.subject),
            match_pixels=stored_pixels(self.store, match.volume, match.z_index, self.encoder),
        )

    def figure(self, answer: Answer, *, matches: int = 5) -> Image:
        """Query and first matches in a row, as a Pillow image."""
        from diptych.retrieval.answer_figures import draw_answer

        shown = [self.explain(answer, place) for place in range(min(matches, len(answer.matches)))]
        query = self.view(answer.subject)
        spacing = answer.subject.pixel_spacing
        return draw_answer(answer, query, shown, pixel_spacing=spacing, about=self.description)

    def trust(self, subject: EncodedSlice, *, metric: str = "euclidean") -> Trust:
        """Whether the slice looks like what the model and the archive know."""
        error = None if subject.image is None else quantisation_error(self.network, subject.image)
        lesioned = self.shows_lesion(subject)
        return self.trust_check.check(subject, lesioned=lesioned, quantisation_error=error, metric=metric)

    def shows_lesion(self, subject: EncodedSlice) -> bool:
        """Whether a lesion is predicted in the slice: by its stored label map, where it is an archived one."""
        if subject.volume_key is not None and subject.z_index is not None and "abnormal" in self.label_rows:
            place = self.catalogue.place(subject.volume_key, subject.z_index)
            if place is not None:
                return bool(self._stored_lesions(np.array([place])).any())
        return bool(decode_lesion(self.network, subject.abnormal_ids[None]).any())

    def _stored_lesions(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """How large lesions are in the stored label maps of some slices; 0 where none are stored."""
        rows = self.label_rows.get("abnormal")
        if rows is None or not len(places):
            return np.zeros(len(places), dtype=np.int64)
        return _lesion_cells(rows.maps(places).levels(np.arange(len(places))))

    def view(self, subject: EncodedSlice) -> SliceView:
        """A slice with everything that its codes decode to: also the preview of a composed query."""
        ids = subject.normal_ids[None], subject.abnormal_ids[None]
        return view_slices(self.network, *ids, [self.pixels(subject)])[0]

    def pixels(self, subject: EncodedSlice) -> SlicePixels | None:
        """The slice's image and labels, where it came as pixels or the archive keeps them."""
        if subject.image is not None:
            return SlicePixels(subject.image, subject.lesion, subject.anatomy)
        if subject.volume_key is None or subject.z_index is None:
            return None
        return stored_pixels(self.store, self.store.record(subject.volume_key).info, subject.z_index, self.encoder)

    def lesion_cells(self, subject: EncodedSlice) -> NDArray[np.bool_]:
        """Cells in which the model sees a lesion, `[h, w]`; a slice without any is refused."""
        lesion = decode_lesion(self.network, subject.abnormal_ids[None])[0]
        cells = touched_cells(lesion > 0, self.catalogue.index.grid)
        if not cells.any():
            raise UsageError(f"{subject.name}: no lesion is predicted here; choose another slice, or give a region")
        return cells

    def _places(self, subject: EncodedSlice, question: Question) -> list[PlacedLesion]:
        """The lesion, or what lies in the question's region, in every place that the question allows."""
        sides = []
        if question.anywhere in ("shifted", "both"):
            sides.append((subject, question.region, False))
        if question.anywhere in ("mirrored", "both"):
            region = None if question.region is None else question.region[:, ::-1]
            sides.append((self.mirrored(subject), region, True))
        lesions: list[PlacedLesion] = []
        for side, region, mirrored in sides:
            lesion = self.lesion_cells(side) if region is None else region
            placed = place_lesion(side.abnormal_ids, lesion, self.catalogue.quiet_ids, mirrored=mirrored)
            lesions += placed if question.anywhere != "mirrored" else islice(placed, 1)
        return lesions

    def _region(self, subject: EncodedSlice, question: Question) -> NDArray[np.bool_] | None:
        """Cells that are compared: the given ones, those of the lesion, or those of both."""
        if not question.inside_lesion:
            return question.region
        cells = self.lesion_cells(subject)
        if question.region is not None:
            cells &= question.region
            if not cells.any():
                raise UsageError(f"{subject.name}: the region holds no predicted lesion; choose another region")
        return cells


def _lesion_cells(levels: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Cells of label maps `[n, C, H, W]`, in levels, that show a lesion, `[n]`."""
    return np.asarray((levels >= LESION_LEVEL).any(axis=1).sum(axis=(1, 2)))


def _shipped(store: archives.ArchiveStore) -> Path:
    """The folder of the shipped model that made an archive."""
    folder = shipped_model_of(store.model.fingerprint)
    if folder is None:
        made = store.model.describe()
        raise UsageError(f"{store.path}: was made by model {made}, which does not come with Diptych; give its folder")
    return folder
