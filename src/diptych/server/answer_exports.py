"""Answers to keep: JSON, a CSV table, or a figure for the teaching file. Each says what it must not be used for.

Knows asking, explanations and file formats.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO, StringIO
from typing import Any

import numpy as np
from PIL import Image
from pydantic import BaseModel

from diptych.drawing.sheet import NOTICE, write_text
from diptych.retrieval import Answer, EncodedSlice, SliceMatch
from diptych.retrieval.answer_figures import draw_answer, draw_patients
from diptych.retrieval.encoded_slice import stored_slice
from diptych.retrieval.explanation import SlicePixels, explain_match, view_slices
from diptych.retrieval.patient_search import PatientMatch
from diptych.server.requests import ExportedLane, ExportRequest, PatientSearchRequest, SearchRequest
from diptych.server.schemas import MatchResource, PatientMatchResource
from diptych.server.searches import Asking, describe_matches, describe_patients
from diptych.server.slice_pictures import slice_pixels

COLUMNS = (
    "rank", "volume_key", "patient_key", "z", "z_mm", "position", "distance", "normal_part", "abnormal_part",
    "normal_distance", "abnormal_distance", "lesion_area_mm2", "sex", "age", "source",
)  # fmt: skip
MEASURED = ("length_mm", "long_mm", "short_mm", "product_mm2", "area_mm2")
FIGURE_MATCHES, FIGURE_MATCHES_EACH = 5, 4
"""Matches in a figure of one list, and of each of several."""
HEAD = 24


class ExportedList(BaseModel):
    """One list with its question: slices, or whole patients."""

    title: str
    metric: str
    search: SearchRequest | PatientSearchRequest
    matches: list[MatchResource] | list[PatientMatchResource]


class ExportedAnswer(BaseModel):
    """Answers with their questions, and what was measured."""

    notice: str
    patient_key: str
    subject: str
    version: str
    lanes: list[ExportedList]
    measures: list[dict[str, Any]]
    problems: list[str]


@dataclass(frozen=True)
class Keepsake:
    """A file to hand out."""

    name: str
    media_type: str
    content: bytes


@dataclass(frozen=True, eq=False)
class Slices:
    """A list of slices, answered."""

    asking: Asking
    answer: Answer
    asked: SearchRequest

    @property
    def subject(self) -> EncodedSlice:
        return self.answer.subject

    @property
    def metric(self) -> str:
        return self.answer.question.metric

    def matches(self) -> list[MatchResource]:
        return describe_matches(self.answer)

    def figure(self, shown: int) -> Image.Image:
        asking, subject, network = self.asking, self.subject, self.asking.archive.network
        seen = _seen(asking, subject)
        query = view_slices(network, subject.normal_ids[None], subject.abnormal_ids[None], [seen])[0]
        explanations = [
            explain_match(network, subject, match, query_pixels=seen, match_pixels=_pixels(asking, match))
            for match in self.answer.matches[:shown]
        ]
        return draw_answer(
            self.answer, query, explanations, pixel_spacing=subject.pixel_spacing, about=asking.archive.description
        )


@dataclass(frozen=True, eq=False)
class Patients:
    """A list of whole patients, answered; drawn at the height of the slice that the reader has open."""

    asking: Asking
    found: tuple[PatientMatch, ...]
    asked: PatientSearchRequest
    subject: EncodedSlice
    metric: str = "overlap in three dimensions"

    def matches(self) -> list[PatientMatchResource]:
        return describe_patients(self.asking.archive, self.found)

    def figure(self, shown: int) -> Image.Image:
        archive, found = self.asking.archive, self.found[:shown]
        height = self.subject.z_mm or 0.0
        stored = [self.subject]
        for match in found:
            record = archive.store.record(match.volume.volume_key)
            z = int(record.z_index[abs(record.z_mm - height).argmin()])
            stored.append(stored_slice(record, lambda: archive.encoder, z_index=z))
        ids = np.stack([one.normal_ids for one in stored]), np.stack([one.abnormal_ids for one in stored])
        views = view_slices(archive.network, *ids, [_seen(self.asking, one) for one in stored])
        return draw_patients(
            self.subject.name,
            self.asked.by,
            found,
            views,
            slices=[one.z_index or 0 for one in stored],
            pixel_spacing=self.subject.pixel_spacing,
            about=archive.description,
        )


def export_answer(asking: Asking, asked: ExportRequest) -> Keepsake:
    """Ask once more, and write the answers down."""
    titles, answers = [one.title for one in asked.lists], [_answered(asking, one) for one in asked.lists]
    patient = "+".join(sorted(answers[0].subject.patients)) or "patient"
    name = f"diptych-{_safe(patient)}"
    if asked.format == "figure":
        return Keepsake(f"{name}-figure.png", "image/png", _figure(titles, answers))
    found = [
        ExportedList(title=title, metric=one.metric, search=one.asked, matches=one.matches())
        for title, one in zip(titles, answers, strict=True)
    ]
    measures = [measure.model_dump(exclude_none=True) for measure in asked.measures]
    if asked.format == "csv":
        return Keepsake(f"{name}-matches.csv", "text/csv; charset=utf-8", _table(patient, found, measures))
    whole = ExportedAnswer(
        notice=f"{NOTICE}.",
        patient_key=patient,
        subject=answers[0].subject.name,
        version=asking.archive.catalogue.version,
        lanes=found,
        measures=measures,
        problems=list(asking.archive.problems),
    )
    return Keepsake(f"{name}-matches.json", "application/json", whole.model_dump_json(indent=2).encode())


def _answered(asking: Asking, lane: ExportedLane) -> Slices | Patients:
    if lane.patients is not None:
        return Patients(
            asking, asking.patients(lane.patients), lane.patients, asking.plain(lane.patients.subject, pixels=True)
        )
    assert lane.search is not None, "a list has either a search or patients"
    return Slices(asking, asking.ask(lane.search, comparators=lane.comparators, pixels=True), lane.search)


def _safe(key: str) -> str:
    """A key as part of a file name that every system takes."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "_", key)[:80]


def _table(patient: str, lists: list[ExportedList], measures: list[dict[str, Any]]) -> bytes:
    """A row for each match, then one for each measurement."""
    text = StringIO()
    writer = csv.writer(text)
    writer.writerow(["query_patient", "list", *COLUMNS, "measured", "notice"])
    for one in lists:
        for match in one.matches:
            cells = [_cell(value) for value in _row(match)]
            writer.writerow([_cell(patient), _cell(one.title), *cells, "", NOTICE])
    for measure in measures:
        values = "; ".join(f"{name} {measure[name]:g}" for name in MEASURED if name in measure)
        empty = ["" if name != "z" else measure["z"] for name in COLUMNS]
        writer.writerow([_cell(patient), "Measured", *empty, f"{measure['kind']}: {values}", NOTICE])
    return text.getvalue().encode("utf-8-sig")


def _row(match: MatchResource | PatientMatchResource) -> list[object]:
    """Values of the columns; what a list does not know stays empty."""
    values = match.model_dump()
    if isinstance(match, PatientMatchResource):
        panels = {f"{panel}_distance": distance for panel, distance in match.panels.items()}
        height = dict(zip(match.z_indices, match.z_mm, strict=True))[match.z_index]
        values |= {"z": match.z_index, "z_mm": height, **panels}
    return [values.get(name, "") for name in COLUMNS]


def _cell(value: object) -> object:
    """Text that a spreadsheet might take for a formula is quoted."""
    return f"'{value}" if isinstance(value, str) and value.lstrip().startswith(("=", "+", "-", "@")) else value


def _figure(titles: list[str], answers: Sequence[Slices | Patients]) -> bytes:
    """One figure for each list, one above the other."""
    shown = FIGURE_MATCHES if len(answers) == 1 else FIGURE_MATCHES_EACH
    figures = [one.figure(shown) for one in answers]
    sheet = Image.new("RGB", (max(one.width for one in figures), sum(one.height + HEAD for one in figures)))
    top = 0
    for title, figure in zip(titles, figures, strict=True):
        write_text(sheet, (6, top + 5), title)
        sheet.paste(figure, (0, top + HEAD))
        top += figure.height + HEAD
    buffer = BytesIO()
    sheet.save(buffer, "PNG", compress_level=4)
    return buffer.getvalue()


def _pixels(asking: Asking, match: SliceMatch) -> SlicePixels | None:
    return slice_pixels(asking.service.cases, asking.service.case("volumes", match.volume.volume_key), match.z_index)


def _seen(asking: Asking, subject: EncodedSlice) -> SlicePixels | None:
    """The subject's own pixels, where it is a slice that has some."""
    if subject.volume_key is None or subject.z_index is None:
        return asking.archive.pixels(subject) if subject.image is not None else None
    return slice_pixels(asking.service.cases, asking.service.case("volumes", subject.volume_key), subject.z_index)
