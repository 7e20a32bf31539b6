"""The figure: one column per slice, true proportions, and nothing drawn where nothing is known."""

from __future__ import annotations

import numpy as np

from diptych.retrieval import Archive, Question, compose
from diptych.retrieval.answer_figures import GAP, NAME_WIDTH, PIXELS_PER_MM, draw_answer


def test_one_column_for_the_query_and_each_match(archive: Archive) -> None:
    answer = archive.query(archive.stored("V00", z_index=4))
    widths = [archive.figure(answer, matches=matches).width for matches in (0, 1, 3)]
    assert widths[2] - widths[0] == 3 * (widths[1] - widths[0])


def test_tiles_have_the_proportions_of_the_body(archive: Archive) -> None:
    """32 rows of 3.75 mm and 64 columns of 1.5625 mm."""
    answer = archive.query(archive.stored("V00", z_index=4))
    query = archive.view(answer.subject)
    sheet = draw_answer(answer, query, [], pixel_spacing=answer.subject.pixel_spacing)
    assert sheet.width == NAME_WIDTH + round(64 * 1.5625 * PIXELS_PER_MM) + GAP
    twice = draw_answer(answer, query, [], pixel_spacing=(7.5, 1.5625))
    rows = (twice.height - sheet.height) / (32 * 3.75 * PIXELS_PER_MM)
    assert rows == 9


def test_rows_follow_the_panels_compared(archive: Archive) -> None:
    subject = archive.stored("V00", z_index=4)
    heights = [archive.figure(archive.query(subject, Question(by=by)), matches=1).height for by in ("normal", "both")]
    assert heights[0] < heights[1]


def test_heat_is_where_the_distance_comes_from(archive: Archive) -> None:
    answer = archive.query(archive.stored("V00", z_index=4), Question(by="normal", top=1))
    sheet = np.asarray(archive.figure(answer, matches=1), dtype=float)
    width, height = round(64 * 1.5625 * PIXELS_PER_MM), round(32 * 3.75 * PIXELS_PER_MM)
    left, bottom = NAME_WIDTH + width + GAP, sheet.shape[0] - 14 - GAP - GAP
    tile = sheet[bottom - height : bottom, left : left + width]
    orange = (tile[:, :, 0] - tile[:, :, 2]).reshape(4, height // 4, 8, width // 8).mean(axis=(1, 3))
    parts = answer.matches[0].contributions
    assert np.corrcoef(orange.reshape(-1), parts.reshape(-1))[0, 1] > 0.95


def test_a_composed_query_and_a_moved_lesion_can_be_drawn(archive: Archive) -> None:
    composed = compose(archive.stored("V00", z_index=4), archive.stored("V05", z_index=6))
    question = Question(by="abnormal", anywhere="shifted", region=np.eye(4, 8, dtype=bool), top=2)
    assert archive.figure(archive.query(composed, question)).width > 0
