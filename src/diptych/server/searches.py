"""A request becomes a question to retrieval, and its answer a response. All searching is done there.

Knows what was asked, cases, and retrieval; nothing about HTTP.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from diptych.metrics.searcher import DEFAULT
from diptych.retrieval import (
    Answer,
    Archive,
    EncodedSlice,
    Question,
    SliceMatch,
    compose,
    region_of_cells,
    region_of_rectangle,
)
from diptych.retrieval.encoded_slice import stored_slice
from diptych.retrieval.patient_search import PatientMatch
from diptych.retrieval.sketch import sketch_slice
from diptych.search import PANELS
from diptych.search.query import panel_word
from diptych.server.cases import Case
from diptych.server.painted_labels import read_labels
from diptych.server.problems import Problem
from diptych.server.requests import (
    ArchivedSubject,
    AskedBy,
    ComposedSubject,
    PatientSearchRequest,
    Region,
    SearchFilter,
    SearchRequest,
    Sketch,
    SketchedSubject,
    UploadedSubject,
    VolumeSearchRequest,
)
from diptych.server.resources import fits, volume_summary, volume_url
from diptych.server.schemas import (
    MatchResource,
    PatientMatchResource,
    PatientSearchResponse,
    SearchResponse,
    Shift,
    VolumeMatchResource,
    VolumeSearchResponse,
    WorthResource,
)
from diptych.server.service import Service
from diptych.volumes import CHANNELS, names_of

SLICE = ArchivedSubject | UploadedSubject


@dataclass(frozen=True, eq=False)
class Asking:
    """One request, answered from one version of the archive."""

    service: Service
    archive: Archive

    @classmethod
    def now(cls, service: Service) -> Asking:
        return cls(service, service.library.current)

    def case(self, subject: SLICE) -> Case:
        """The volume that a plain subject is a slice of."""
        if isinstance(subject, ArchivedSubject):
            return self.service.case("volumes", subject.volume)
        return self.service.case("uploads", subject.upload)

    def subject(self, asked: SLICE | ComposedSubject | SketchedSubject, *, pixels: bool = False) -> EncodedSlice:
        """What a question starts from; with `pixels`, the image comes along where there is one."""
        if isinstance(asked, ComposedSubject):
            return compose(self.plain(asked.compose.normal), self.plain(asked.compose.abnormal))
        if isinstance(asked, SketchedSubject):
            return self.sketched(asked.sketch)
        return self.plain(asked, pixels=pixels)

    def plain(self, asked: SLICE, *, pixels: bool = False) -> EncodedSlice:
        """A slice of an archived or uploaded volume."""
        case = self.case(asked)
        z = case.representative_z if asked.z is None else asked.z
        case.place(z)
        found = stored_slice(case.record, lambda: self.archive.encoder, z_index=z)
        if isinstance(asked, UploadedSubject):
            own = names_of(case.info.patient_key)
            found = replace(found, volume_key=None, patients=own, warnings=case.warnings)
        if pixels and (seen := self.service.cases.pixels(case, z)) is not None:
            return replace(found, image=seen.image, lesion=seen.lesion, anatomy=seen.anatomy)
        return found

    def sketched(self, asked: Sketch) -> EncodedSlice:
        """A painted lesion, in the anatomy that it was painted on if that is wanted."""
        labels = read_labels(asked, self.service.library.image_size)
        base = None if asked.base is None else self.plain(asked.base)
        anatomy = base if asked.use_base_anatomy else None
        found = sketch_slice(self.archive, self.service.sketcher(self.archive), labels, anatomy=anatomy)
        return found if base is None else replace(found, patients=base.patients)

    def question(self, asked: AskedBy) -> Question:
        """The request in retrieval's words."""
        question = Question(
            by=asked.by,
            weight=asked.weight,
            combine=asked.combine,
            metric=asked.metric or DEFAULT,
            region=self.region(asked.region),
            top=asked.top,
            group=asked.group,
            lesion_free=asked.filter.lesion_free,
            where=asked.filter.where if asked.filter.where and asked.filter.where.strip() else None,
            allowed=self.allowed(asked.filter),
            include_own=asked.include_own,
        )
        if isinstance(asked, SearchRequest):
            question = replace(
                question,
                inside_lesion=asked.inside_lesion,
                anywhere=asked.anywhere,
                rerank=asked.rerank,
                level_mm=asked.level_mm,
            )
        question = self.archive.settled(question)
        if not self.archive.ready(question):
            self.service.require_labels(self.archive)
        return question

    def region(self, asked: Region | None) -> NDArray[np.bool_] | None:
        """Cells that are compared."""
        if asked is None:
            return None
        grid, (H, W) = self.archive.catalogue.index.grid, self.service.library.image_size
        if asked.cells is not None:
            return region_of_cells(asked.cells, grid=grid)
        assert asked.rectangle is not None
        top, left, bottom, right = asked.rectangle
        if not (top < bottom and left < right):
            raise Problem(422, "rectangle: give [top, left, bottom, right] with top < bottom and left < right")
        pixels = int(top * H), int(left * W), max(int(np.ceil(bottom * H)), 1), max(int(np.ceil(right * W)), 1)
        return region_of_rectangle(
            (min(pixels[0], H - 1), min(pixels[1], W - 1), pixels[2], pixels[3]), image_size=(H, W), grid=grid
        )

    def allowed(self, wanted: SearchFilter) -> NDArray[np.bool_] | None:
        """Volumes that the request's filter lets through, in the order of the catalogue; its `where` is retrieval's."""
        if not (wanted.text or wanted.source is not None or wanted.tags or wanted.exclude_patients):
            return None
        out = set(wanted.exclude_patients)
        kept = [
            info.patient_key not in out and fits(info, text=wanted.text, source=wanted.source, tags=wanted.tags)
            for info in self.archive.catalogue.volumes
        ]
        return np.array(kept, dtype=np.bool_)

    def ask(self, asked: SearchRequest, *, comparators: bool = False, pixels: bool = False) -> Answer:
        """The answer to a request."""
        question = self.question(asked)
        mirrors = asked.anywhere in ("mirrored", "both")
        subject = self.subject(asked.subject, pixels=pixels or mirrors)
        if asked.by != "abnormal" and _lacks_anatomy(asked.subject):
            raise Problem(422, f"by {panel_word(asked.by)}: a sketch alone has no anatomy; search by lesion")
        return (self.archive.comparators if comparators else self.archive.query)(subject, question)

    def patients(self, asked: PatientSearchRequest) -> tuple[PatientMatch, ...]:
        """The patients that are most like a whole one."""
        question = replace(self.question(asked), anywhere=asked.anywhere)
        return self.archive.similar_patients(self.case(asked.subject).record, question)


def answer_slices(asking: Asking, asked: SearchRequest, *, comparators: bool = False) -> SearchResponse:
    """Search, and say what was found."""
    started = time.perf_counter()
    answer = asking.ask(asked, comparators=comparators)
    took = time.perf_counter() - started
    return SearchResponse(
        took_ms=round(took * 1000, 2),
        metric=answer.question.metric,
        version=answer.version,
        subject=answer.subject.name,
        matches=describe_matches(answer),
        problems=list(asking.archive.problems),
        missing=list(answer.missing),
    )


def answer_volumes(asking: Asking, asked: VolumeSearchRequest) -> VolumeSearchResponse:
    """Search among whole volumes."""
    started = time.perf_counter()
    question, case = asking.question(asked), asking.case(asked.subject)
    with asking.archive.noting() as missing:
        found = asking.archive.similar_volumes(case.record, question)
    places = asking.archive.catalogue.places_of_keys
    matches = []
    for rank, match in enumerate(found, start=1):
        summary = volume_summary(asking.archive, places[match.volume.volume_key])
        url = volume_url(match.volume, summary.representative_z, "image") if summary.has_pixels else None
        matches.append(
            VolumeMatchResource(rank=rank, representative_z=summary.representative_z, image_url=url, **match.to_json())
        )
    took = time.perf_counter() - started
    return VolumeSearchResponse(
        took_ms=round(took * 1000, 2),
        metric=question.metric,
        version=asking.archive.catalogue.version,
        matches=matches,
        missing=missing,
    )


def answer_patients(asking: Asking, asked: PatientSearchRequest) -> PatientSearchResponse:
    """Search among whole patients, in three dimensions."""
    started = time.perf_counter()
    archive = asking.archive
    with archive.noting() as missing:
        matches = describe_patients(archive, asking.patients(asked))
    took = time.perf_counter() - started
    return PatientSearchResponse(
        took_ms=round(took * 1000, 2),
        version=archive.catalogue.version,
        matches=matches,
        problems=list(archive.problems),
        missing=missing,
    )


def describe_patients(archive: Archive, matches: Sequence[PatientMatch]) -> list[PatientMatchResource]:
    """Matches with the heights of their slices and the addresses of their pictures."""
    found = []
    for rank, match in enumerate(matches, start=1):
        info, z = match.volume, match.z_index
        place = archive.catalogue.places_of_keys[info.volume_key]
        rows = slice(*archive.catalogue.index.volume_starts[place : place + 2].tolist())
        roles = {file.role for file in info.files}
        found.append(
            PatientMatchResource(
                rank=rank,
                sex=info.sex,
                age=info.age,
                source=info.source,
                z_indices=archive.catalogue.z_index[rows].tolist(),
                z_mm=archive.catalogue.z_mm[rows].round(2).tolist(),
                image_url=volume_url(info, z, "image") if roles & set(CHANNELS) else None,
                label_url=volume_url(info, z, "label") if "lesion" in roles else None,
                mask_url=volume_url(info, z, "mask"),
                **match.to_json(),
            )
        )
    return found


def describe_matches(answer: Answer) -> list[MatchResource]:
    """Matches with the parts of their distances; what agrees is measured on one scale for the whole answer."""
    most = {panel: _most(answer.matches, panel) for panel in PANELS}
    return [_match(answer, place, most) for place in range(len(answer.matches))]


def _match(answer: Answer, place: int, most: dict[str, float]) -> MatchResource:
    match, subject = answer.matches[place], answer.subject
    info = match.volume
    panels = {name: panel for name in PANELS if (panel := getattr(match, name)) is not None}
    parts = {name: panel.weight * panel.distance for name, panel in panels.items()}
    abnormal = subject.abnormal_ids if match.placed is None else match.placed.ids
    shown = any(file.role in CHANNELS for file in info.files)
    labelled = any(file.role == "lesion" for file in info.files)
    return MatchResource(
        rank=place + 1,
        volume_key=info.volume_key,
        patient_key=info.patient_key,
        z=match.z_index,
        position=round(match.position, 4),
        z_mm=round(match.z_mm, 2),
        lesion_area_mm2=match.lesion_area,
        sex=info.sex,
        age=info.age,
        source=info.source,
        tags=list(info.tags),
        distance=match.distance,
        normal_part=parts.get("normal", 0.0),
        abnormal_part=parts.get("abnormal", 0.0),
        normal_distance=panels["normal"].distance if "normal" in panels else None,
        abnormal_distance=panels["abnormal"].distance if "abnormal" in panels else None,
        worth=None if match.worth is None else WorthResource.model_validate(match.worth, from_attributes=True),
        contributions=match.contributions.round(6).tolist(),
        agreement={
            name: (1.0 - panel.contributions / most[name]).clip(0.0, 1.0).round(4).tolist()
            for name, panel in panels.items()
        },
        same_codes={
            "normal": (subject.normal_ids == match.normal_ids).tolist(),
            "abnormal": (abnormal == match.abnormal_ids).tolist(),
        },
        image_url=volume_url(info, match.z_index, "image") if shown else None,
        label_url=volume_url(info, match.z_index, "label") if labelled else None,
        mask_url=volume_url(info, match.z_index, "mask"),
        twin_url=volume_url(info, match.z_index, "twin"),
        shift=None if match.placed is None else Shift.model_validate(match.placed, from_attributes=True),
    )


def _most(matches: Sequence[SliceMatch], panel: str) -> float:
    found = [getattr(match, panel) for match in matches]
    return max((float(one.contributions.max()) for one in found if one is not None), default=0.0) or 1.0


def _lacks_anatomy(asked: object) -> bool:
    return isinstance(asked, SketchedSubject) and (asked.sketch.base is None or not asked.sketch.use_base_anatomy)
