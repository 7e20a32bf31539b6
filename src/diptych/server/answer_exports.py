"""Answers to keep: JSON, a CSV table, or a figure for the teaching file. Each says what it must not be used for.

Knows asking, explanations and file formats.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from io import BytesIO, StringIO

from pydantic import BaseModel

from diptych.drawing.sheet import NOTICE
from diptych.retrieval import Answer
from diptych.retrieval.answer_figures import draw_answer
from diptych.retrieval.explanation import Explanation, explain_match, view_slices
from diptych.server.requests import ExportRequest, SearchRequest
from diptych.server.schemas import MatchResource
from diptych.server.searches import Asking, describe_matches

COLUMNS = (
    "rank", "volume_key", "patient_key", "z", "z_mm", "position", "distance", "normal_part", "abnormal_part",
    "normal_distance", "abnormal_distance", "lesion_area_mm2", "sex", "age", "source",
)  # fmt: skip
FIGURE_MATCHES = 5


class ExportedAnswer(BaseModel):
    """An answer with its question."""

    notice: str
    subject: str
    version: str
    metric: str
    search: SearchRequest
    matches: list[MatchResource]
    problems: list[str]


@dataclass(frozen=True)
class Keepsake:
    """A file to hand out."""

    name: str
    media_type: str
    content: bytes


def export_answer(asking: Asking, asked: ExportRequest) -> Keepsake:
    """Ask once more, and write the answer down."""
    answer = asking.ask(asked.search, pixels=asked.format == "figure")
    if asked.format == "figure":
        return Keepsake("matches.png", "image/png", _figure(asking, answer))
    matches = describe_matches(answer)
    if asked.format == "csv":
        return Keepsake("matches.csv", "text/csv; charset=utf-8", _table(matches))
    whole = ExportedAnswer(
        notice=f"{NOTICE}.",
        subject=answer.subject.name,
        version=answer.version,
        metric=answer.question.metric,
        search=asked.search,
        matches=matches,
        problems=list(asking.archive.problems),
    )
    return Keepsake("matches.json", "application/json", whole.model_dump_json(indent=2).encode())


def _table(matches: list[MatchResource]) -> bytes:
    text = StringIO()
    writer = csv.writer(text)
    writer.writerow([*COLUMNS, "notice"])
    for match in matches:
        writer.writerow([*(_cell(getattr(match, name)) for name in COLUMNS), NOTICE])
    return text.getvalue().encode("utf-8-sig")


def _cell(value: object) -> object:
    """Text that a spreadsheet might take for a formula is quoted."""
    return f"'{value}" if isinstance(value, str) and value.lstrip().startswith(("=", "+", "-", "@")) else value


def _figure(asking: Asking, answer: Answer) -> bytes:
    subject, network = answer.subject, asking.archive.network
    seen = asking.archive.pixels(subject) if subject.image is not None else None
    query = view_slices(network, subject.normal_ids[None], subject.abnormal_ids[None], [seen])[0]
    shown: list[Explanation] = []
    for match in answer.matches[:FIGURE_MATCHES]:
        case = asking.service.case("volumes", match.volume.volume_key)
        pixels = asking.service.cases.pixels(case, match.z_index)
        shown.append(explain_match(network, subject, match, query_pixels=seen, match_pixels=pixels))
    buffer = BytesIO()
    draw_answer(answer, query, shown, pixel_spacing=subject.pixel_spacing).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()
