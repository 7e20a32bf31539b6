"""An answer as one picture: the query and its matches in a row, like the paper's example results of retrieval.

Knows explanations and drawing; reads no file. Below each image come true labels where they are known, what the codes
decode to, and a map of which cells brought the distance about. Proportions follow the pixel spacing; columns run from
the patient's right to the left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from diptych.description import GLIOMA, Description
from diptych.drawing.sheet import CHANNEL_TITLES, NOTICE, Pixels, tint, write_text
from diptych.retrieval.answer import Answer
from diptych.retrieval.explanation import Explanation, SliceView
from diptych.retrieval.patient_search import PatientMatch
from diptych.search.query import panel_word

SHOWN = ("t1gd", "flair")
PIXELS_PER_MM = 0.8
WINDOW = (-2.0, 3.5)
"""Z-scores that become black and white, alike in all tiles."""
HEAT = np.array([230.0, 120.0, 20.0])
GAP, NAME_WIDTH, HEAD, LINE = 4, 84, 80, 14
LETTER = 6.5
"""Width of a letter in pixels, to cut names to their column."""
GREY = (150, 150, 150)


@dataclass(frozen=True)
class _Row:
    name: str
    paint: Callable[[SliceView], Pixels | None]
    """The tile of one slice, or None where nothing is known."""


def draw_answer(
    answer: Answer,
    query: SliceView,
    explanations: Sequence[Explanation],
    *,
    pixel_spacing: tuple[float, float],
    about: Description = GLIOMA,
) -> Image.Image:
    """Draw the query and its matches from left to right, the nearest first.

    Args:
        answer: the question, its subject and the matches.
        query: the subject as it is seen.
        explanations: of the first matches of the answer, in their order.
        pixel_spacing: millimetres between rows and between columns.
        about: channels and classes of the model.
    """
    rows, columns = _rows(answer.question.by, about), range(len(explanations) + 1)
    size = _tile_size(query, pixel_spacing)
    views = [query, *(explanation.found for explanation in explanations)]
    names = [*(row.name for row in rows), "part of\ndistance"]
    sheet = _draw_columns(views, [_title(answer, column) for column in columns], rows, names, size)
    _draw_heat(sheet, explanations, (NAME_WIDTH + size[0] + GAP, HEAD + len(rows) * (size[1] + GAP)), size)
    return sheet


def draw_patients(
    name: str,
    by: str,
    matches: Sequence[PatientMatch],
    views: Sequence[SliceView],
    *,
    slices: Sequence[int],
    pixel_spacing: tuple[float, float],
    about: Description = GLIOMA,
) -> Image.Image:
    """Draw a patient and the patients that were found, each at the same height.

    Args:
        name: of the patient who was asked about.
        by: what was compared.
        matches: the first that were found.
        views: a slice of the patient, then one of each match.
        slices: their numbers.
        pixel_spacing: millimetres between rows and between columns.
        about: channels and classes of the model.
    """
    titles = [["query", name, f"slice {slices[0]}", f"patients by {panel_word(by)}"]]
    for place, match in enumerate(matches, start=1):
        agree = [f"{panel_word(panel)} {1 - distance:.0%}" for panel, distance in match.panels.items()]
        titles.append([f"match {place}", match.volume.volume_key, f"slice {slices[place]}", ", ".join(agree)])
    rows = _rows(by, about)
    return _draw_columns(views, titles, rows, [row.name for row in rows], _tile_size(views[0], pixel_spacing))


def _tile_size(view: SliceView, pixel_spacing: tuple[float, float]) -> tuple[int, int]:
    H, W = view.reconstruction.shape[1:]
    return round(W * pixel_spacing[1] * PIXELS_PER_MM), round(H * pixel_spacing[0] * PIXELS_PER_MM)


def _draw_columns(
    views: Sequence[SliceView],
    titles: Sequence[Sequence[str]],
    rows: Sequence[_Row],
    names: Sequence[str],
    size: tuple[int, int],
) -> Image.Image:
    """A column for each view; names of rows that nobody paints here leave room for them."""
    width = NAME_WIDTH + len(views) * (size[0] + GAP)
    sheet = Image.new("RGB", (width, HEAD + len(names) * (size[1] + GAP) + LINE + GAP))
    for column, (view, title) in enumerate(zip(views, titles, strict=True)):
        left = NAME_WIDTH + column * (size[0] + GAP)
        for line, text in enumerate(title):
            colour = GREY if line else (235, 235, 235)
            write_text(sheet, (left, 2 + line * (LINE + 1)), _cut(text, size[0]), colour)
        for place, row in enumerate(rows):
            _paste(sheet, row.paint(view), (left, HEAD + place * (size[1] + GAP)), size)
    for place, name in enumerate(names):
        write_text(sheet, (GAP, HEAD + place * (size[1] + GAP) + size[1] // 2 - LINE), name)
    write_text(sheet, (GAP, sheet.height - LINE - 1), NOTICE, GREY)
    return sheet


def _rows(by: str, about: Description) -> list[_Row]:
    """Images, then labels of the panels that were compared, then what the codes decode to."""
    shown = about.shown(SHOWN)
    rows = [_image_row(CHANNEL_TITLES.get(name, name), place) for name, place in shown.items()]
    lesion, anatomy = about.lesion_colours, about.anatomy_colours
    if by in ("abnormal", "both"):
        rows.append(_Row("lesion", lambda view: _labelled(view, _truth(view, "lesion"), lesion)))
        rows.append(_Row("lesion,\ndecoded", lambda view: _labelled(view, view.predicted_lesion, lesion)))
    if by in ("normal", "both"):
        rows.append(_Row("anatomy", lambda view: _labelled(view, _truth(view, "anatomy"), anatomy)))
        rows.append(_Row("anatomy,\ndecoded", lambda view: _labelled(view, view.predicted_anatomy, anatomy)))
    last = CHANNEL_TITLES.get(about.channels[-1], about.channels[-1])
    rows.append(_Row(f"{last},\ndecoded", lambda view: _plain(view.reconstruction[-1])))
    rows.append(_Row(f"{last},\nhealthy twin", lambda view: _plain(view.healthy_twin[-1])))
    return rows


def _truth(view: SliceView, labels: str) -> NDArray[np.uint8] | None:
    return None if view.pixels is None else getattr(view.pixels, labels)


def _image_row(title: str, place: int) -> _Row:
    return _Row(title, lambda view: None if view.pixels is None else _plain(view.pixels.image[place]))


def _title(answer: Answer, column: int) -> list[str]:
    if column == 0:
        question = answer.question
        how = f"{panel_word(question.by)}, {question.metric}" + (f", {question.anywhere}" if question.anywhere else "")
        subject = answer.subject
        return ["query", subject.name, f"by {how}"]
    match = answer.matches[column - 1]
    panels = (("normal", match.normal), ("abnormal", match.abnormal))
    apart = [f"{panel_word(name)} {panel.distance:.4g}" for name, panel in panels if panel]
    where = f"slice {match.z_index}, {match.distance:.4g}"
    return [f"match {column}", match.volume.volume_key, where, *apart]


def _cut(text: str, width: int) -> str:
    """Names differ at their end, so that is kept."""
    room = int(width / LETTER)
    return text if len(text) <= room else f"…{text[1 - room :]}"


def _window(image: NDArray[np.float32]) -> NDArray[np.float32]:
    low, high = WINDOW
    return np.asarray(np.clip((image - low) / (high - low), 0.0, 1.0), dtype=np.float32)


def _plain(image: NDArray[np.float32]) -> Pixels:
    return tint(_window(image), np.zeros(image.shape, dtype=np.uint8), {})


def _labelled(
    view: SliceView, labels: NDArray[np.uint8] | None, colours: dict[int, tuple[int, int, int]]
) -> Pixels | None:
    """Labels over the last channel, as scanned or, where that is not known, as decoded."""
    if labels is None:
        return None
    image = view.reconstruction if view.pixels is None else view.pixels.image
    return tint(_window(image[-1]), labels, colours)


def _paste(sheet: Image.Image, tile: Pixels | None, at: tuple[int, int], size: tuple[int, int]) -> None:
    if tile is None:
        write_text(sheet, (at[0] + size[0] // 2 - 28, at[1] + size[1] // 2), "not known", (90, 90, 90))
        return
    sheet.paste(Image.fromarray(tile).resize(size, Image.Resampling.BICUBIC), at)
    write_text(sheet, (at[0] + 1, at[1]), "R", (170, 170, 170))
    write_text(sheet, (at[0] + size[0] - 9, at[1]), "L", (170, 170, 170))


def _draw_heat(
    sheet: Image.Image, explanations: Sequence[Explanation], at: tuple[int, int], size: tuple[int, int]
) -> None:
    """Each cell's part of the distance over the decoded match; the largest part of all is the brightest."""
    largest = max((float(one.match.contributions.max()) for one in explanations), default=0.0) or 1.0
    for column, one in enumerate(explanations):
        image = one.found.reconstruction[-1]
        h, w = one.match.contributions.shape
        share = np.clip(one.match.contributions / largest, 0.0, 1.0)
        opacity = 0.85 * np.kron(share, np.ones((image.shape[0] // h, image.shape[1] // w)))[:, :, None]
        tile = (1 - opacity) * _plain(image) * 0.7 + opacity * HEAT
        _paste(sheet, tile.astype(np.uint8), (at[0] + column * (size[0] + GAP), at[1]), size)
