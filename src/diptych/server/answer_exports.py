"""Answers to keep: JSON, a CSV table, or a figure for the teaching file. Each says what it must not be used for.

Knows asking, explanations and file formats.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from io import BytesIO, StringIO
from typing import Any

from PIL import Image
from pydantic import BaseModel

from diptych.drawing.sheet import NOTICE, write_text
from diptych.retrieval import Answer, EncodedSlice
from diptych.retrieval.answer_figures import draw_answer
from diptych.retrieval.explanation import Explanation, SlicePixels, explain_match, view_slices
from diptych.server.requests import ExportedLane, ExportRequest, SearchRequest
from diptych.server.schemas import MatchResource
from diptych.server.searches import Asking, describe_matches
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
    """One list with its question."""

    title: str
    metric: str
    search: SearchRequest
    matches: list[MatchResource]


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


def export_answer(asking: Asking, asked: ExportRequest) -> Keepsake:
    """Ask once more, and write the answers down."""
    lists = asked.lists
    answers = [asking.ask(one.search, comparators=one.comparators) for one in lists]
    patient = "+".join(sorted(answers[0].subject.patients)) or "patient"
    name = f"diptych-{_safe(patient)}"
    if asked.format == "figure":
        return Keepsake(f"{name}-figure.png", "image/png", _figure(asking, lists, answers))
    found = [
        ExportedList(
            title=one.title, metric=answer.question.metric, search=one.search, matches=describe_matches(answer)
        )
        for one, answer in zip(lists, answers, strict=True)
    ]
    measures = [measure.model_dump(exclude_none=True) for measure in asked.measures]
    if asked.format == "csv":
        return Keepsake(f"{name}-matches.csv", "text/csv; charset=utf-8", _table(patient, found, measures))
    whole = ExportedAnswer(
        notice=f"{NOTICE}.",
        patient_key=patient,
        subject=answers[0].subject.name,
        version=answers[0].version,
        lanes=found,
        measures=measures,
        problems=list(asking.archive.problems),
    )
    return Keepsake(f"{name}-matches.json", "application/json", whole.model_dump_json(indent=2).encode())


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
            cells = [_cell(getattr(match, name)) for name in COLUMNS]
            writer.writerow([_cell(patient), _cell(one.title), *cells, "", NOTICE])
    for measure in measures:
        values = "; ".join(f"{name} {measure[name]:g}" for name in MEASURED if name in measure)
        empty = ["" if name != "z" else measure["z"] for name in COLUMNS]
        writer.writerow([_cell(patient), "Measured", *empty, f"{measure['kind']}: {values}", NOTICE])
    return text.getvalue().encode("utf-8-sig")


def _cell(value: object) -> object:
    """Text that a spreadsheet might take for a formula is quoted."""
    return f"'{value}" if isinstance(value, str) and value.lstrip().startswith(("=", "+", "-", "@")) else value


def _figure(asking: Asking, lists: list[ExportedLane], answers: list[Answer]) -> bytes:
    """One figure for each list, one above the other."""
    shown = FIGURE_MATCHES if len(lists) == 1 else FIGURE_MATCHES_EACH
    figures = [_one_figure(asking, answer, shown) for answer in answers]
    sheet = Image.new("RGB", (max(one.width for one in figures), sum(one.height + HEAD for one in figures)))
    top = 0
    for one, figure in zip(lists, figures, strict=True):
        write_text(sheet, (6, top + 5), one.title)
        sheet.paste(figure, (0, top + HEAD))
        top += figure.height + HEAD
    buffer = BytesIO()
    sheet.save(buffer, "PNG", compress_level=4)
    return buffer.getvalue()


def _one_figure(asking: Asking, answer: Answer, shown: int) -> Image.Image:
    subject, network = answer.subject, asking.archive.network
    seen = _seen(asking, subject)
    query = view_slices(network, subject.normal_ids[None], subject.abnormal_ids[None], [seen])[0]
    explanations: list[Explanation] = []
    for match in answer.matches[:shown]:
        case = asking.service.case("volumes", match.volume.volume_key)
        pixels = slice_pixels(asking.service.cases, case, match.z_index)
        explanations.append(explain_match(network, subject, match, query_pixels=seen, match_pixels=pixels))
    return draw_answer(answer, query, explanations, pixel_spacing=subject.pixel_spacing)


def _seen(asking: Asking, subject: EncodedSlice) -> SlicePixels | None:
    """The subject's own pixels, where it is a slice that has some."""
    if subject.volume_key is None or subject.z_index is None:
        return asking.archive.pixels(subject) if subject.image is not None else None
    return slice_pixels(asking.service.cases, asking.service.case("volumes", subject.volume_key), subject.z_index)
