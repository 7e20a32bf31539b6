"""`Archive`: an archive with its model, opened for questions. The table of contents of retrieval.

    archive = Archive.open("archive", model="model")
    subject = archive.encode("patients/P1")                     # or archive.stored("Phantom-00000-00001", z_index=40)
    answer = archive.query(subject, Question(by="abnormal", top=5))
    print(archive.explain(answer, 0).match.volume.volume_key)

Each question is answered from one version of the archive, the one that was current on opening; `refreshed` opens a
newer one. Knows how the parts fit together; each part has its own file.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL.Image import Image

from diptych import archive as archives
from diptych.archive import VolumeInfo, VolumeRecord
from diptych.archive.encoding import NetworkEncoder, encode_volume
from diptych.description import Description
from diptych.errors import UsageError
from diptych.metrics.decoded_planes import ArchivePlanes, PlaneDecoder
from diptych.metrics.label_decoders import LabelDecoders
from diptych.metrics.label_indexing import VolumeDecoder
from diptych.metrics.label_rows import stored_rows
from diptych.metrics.model_tables import tables_of_model
from diptych.metrics.overlap import METRIC as OVERLAP
from diptych.metrics.searcher import DEFAULT, Searcher
from diptych.model import FeatureDecomposingNetwork, load_model
from diptych.model.shipped import named_model, shipped_model_of
from diptych.progress import Progress, silent
from diptych.retrieval.answer import Answer, SliceMatch, named_matches
from diptych.retrieval.answer_figures import draw_answer
from diptych.retrieval.anywhere import PlacedLesion, place_lesion, search_placements
from diptych.retrieval.catalogue import Catalogue, open_catalogue
from diptych.retrieval.encoded_slice import EncodedSlice, encode_slice, read_one, stored_slice
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
from diptych.retrieval.patient_search import PatientMatch, PatientSearch, Stack
from diptych.retrieval.question import Question, slice_query, touched_cells, volume_query
from diptych.retrieval.trust import Trust, TrustCheck
from diptych.retrieval.volume_search import VolumeMatch, VolumeSearch
from diptych.search import Query, SearchEngine
from diptych.search.query import panel_named, panels_of
from diptych.search.tables import Tables
from diptych.volumes import Volume, names_of, subject_of
from diptych.volumes.channel_check import contrast_warnings


@dataclass(frozen=True, eq=False)
class Archive:
    """An archive, the model that made it, and an engine that searches it; make one with `Archive.open`."""

    store: archives.ArchiveStore
    network: FeatureDecomposingNetwork
    tables: Tables
    catalogue: Catalogue
    threads: int = 1
    model_folder: Path | None = None
    """Where the model was read from, with what else lies there; None for one that was given as a network."""

    @classmethod
    def open(
        cls, path: Path | str, *, model: Path | str | FeatureDecomposingNetwork | None = None, threads: int = 1
    ) -> Archive:
        """Open an archive with the model that made it; any other model is refused.

        Without `model`, that must be one of the models that come with Diptych.
        """
        store = archives.ArchiveStore.open(path)
        if isinstance(model, FeatureDecomposingNetwork):
            folder, network = None, model
        else:
            folder = _shipped(store) if model is None else named_model(model)
            network = load_model(folder)
        identity = NetworkEncoder(network).identity
        store.model.require(identity, store.path)
        tables = tables_of_model(network, folder, cache=store.cache_folder)
        return cls(store, network, tables, open_catalogue(store, tables), threads, folder)

    def refreshed(self) -> Archive:
        """The archive as it is now: this very object unless something has changed."""
        if self.store.version == self.catalogue.version.removesuffix("-damaged"):
            return self
        return replace(self, catalogue=open_catalogue(self.store, self.tables))

    @cached_property
    def encoder(self) -> NetworkEncoder:
        return NetworkEncoder(self.network)

    @property
    def description(self) -> Description:
        """Channels and classes by name, as the model knows them."""
        return self.network.description

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
            stored=stored_rows(self.catalogue.labels, self.catalogue.places, self.engine.pool),
        )
        return Searcher(self.engine, planes, heights=self.catalogue.z_mm)

    @cached_property
    def worth(self) -> WorthTables | None:
        """What matches are worth, where it was measured for this model."""
        return WorthTables.open(self.model_folder, self.network.fingerprint)

    @cached_property
    def volume_search(self) -> VolumeSearch:
        return VolumeSearch(self.engine, self.catalogue.volumes)

    @cached_property
    def trust_check(self) -> TrustCheck:
        return TrustCheck(self.network, self.catalogue, self.engine, cache=self.store.cache_folder)

    @property
    def problems(self) -> tuple[str, ...]:
        """Damaged volumes that no answer contains; show them with every answer."""
        return self.catalogue.problems

    def encode(self, patient: Path | str | Volume, *, z_index: int | None = None) -> EncodedSlice:
        """Read a slice of a patient that need not be in the archive: a folder with its NIfTI files, or a volume.

        Without `z_index` it is the slice with the largest predicted lesion.
        """
        volume = patient if isinstance(patient, Volume) else read_one(Path(patient))
        subject = encode_slice(volume, self.encoder, z_index=z_index)
        return replace(subject, warnings=(*subject.warnings, *contrast_warnings(volume)))

    def stored(self, volume_key: str, *, z_index: int | None = None) -> EncodedSlice:
        """A slice of an archived volume; without `z_index`, the one with the largest predicted lesion."""
        return stored_slice(self.store.record(volume_key), self.encoder, z_index=z_index)

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
        query = slice_query(question, subject, self.catalogue)
        placed = None
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
        matches = self._valued(question, named_matches(found, self.catalogue, placed))
        return Answer(subject, question, matches, self.catalogue.version)

    def _valued(self, question: Question, matches: tuple[SliceMatch, ...]) -> tuple[SliceMatch, ...]:
        """Matches with what they are worth, where whole slices were compared in place."""
        if self.worth is None or question.region is not None or question.inside_lesion or question.anywhere is not None:
            return matches
        metric = question.metric if question.rerank is None else OVERLAP
        return tuple(replace(match, worth=self.worth.of(metric, match.normal, match.abnormal)) for match in matches)

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
        if question.anywhere is not None or question.inside_lesion:
            raise UsageError("whole volumes are compared in place: leave anywhere and inside_lesion out")
        query = volume_query(question, names_of(record.info.patient_key), self.catalogue)
        query = self.searcher.settle_codes(query, "for whole volumes")
        return tuple(self.volume_search.search(record.normal_ids, record.abnormal_ids, query))

    def similar_patients(self, record: VolumeRecord, question: Question = Question()) -> tuple[PatientMatch, ...]:
        """The patients most like a whole one, by overlap of their labels in three dimensions; see `whole`."""
        if question.inside_lesion or question.rerank is not None or question.lesion_free:
            raise UsageError("whole patients are compared: leave inside_lesion, rerank and lesion_free out")
        query = volume_query(question, names_of(record.info.patient_key), self.catalogue)
        decoder = VolumeDecoder(self.plane_decoder)
        grids = {"normal": record.normal_ids, "abnormal": record.abnormal_ids}
        levels = {panel: decoder.levels(panel, grids[panel]) for panel in panels_of(question.by)}
        stack = Stack(levels, record.z_mm, record.z_index)
        return tuple(self.patient_search.search(stack, query, anywhere=question.anywhere))

    @cached_property
    def patient_search(self) -> PatientSearch:
        catalogue = self.catalogue
        labels = stored_rows(catalogue.labels, catalogue.places, self.engine.pool)
        return PatientSearch(self.engine, labels, catalogue.volumes, catalogue.z_mm, catalogue.z_index)

    @cached_property
    def plane_decoder(self) -> PlaneDecoder:
        """Decodes ids to labels, with the model's own label decoders where it has some."""
        return PlaneDecoder(self.network, LabelDecoders.open(self.model_folder, self.network))

    def whole(self, patient: Path | str | Volume) -> VolumeRecord:
        """Encode all slices of a patient that need not be in the archive."""
        volume = patient if isinstance(patient, Volume) else read_one(Path(patient))
        return encode_volume(volume, VolumeInfo(volume.patient_key, subject_of(volume.patient_key)), self.encoder)

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
        shown = [self.explain(answer, place) for place in range(min(matches, len(answer.matches)))]
        query = self.view(answer.subject)
        spacing = answer.subject.pixel_spacing
        return draw_answer(answer, query, shown, pixel_spacing=spacing, about=self.description)

    def trust(self, subject: EncodedSlice, *, metric: str = "euclidean") -> Trust:
        """Whether the slice looks like what the model and the archive know."""
        return self.trust_check.check(subject, metric=metric)

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


def _shipped(store: archives.ArchiveStore) -> Path:
    """The folder of the shipped model that made an archive."""
    folder = shipped_model_of(store.model.fingerprint)
    if folder is None:
        made = store.model.describe()
        raise UsageError(f"{store.path}: was made by model {made}, which does not come with Diptych; give its folder")
    return folder
