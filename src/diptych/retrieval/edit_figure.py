"""An edited slice beside the one it was made from, as one picture for a teaching file.

Knows decoded slices and Pillow; how they were edited is `edit.py`. All tiles of a row share one window.
"""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

from diptych.description import Colour, LabelClass
from diptych.drawing.sheet import CHANNEL_TITLES, NOTICE, Pixels
from diptych.drawing.tile import scaled, tile, tile_size, window_of
from diptych.retrieval.archive import Archive
from diptych.retrieval.encoded_slice import EncodedSlice
from diptych.retrieval.explanation import SliceView

TILE_HEIGHT = 220
MARGIN, HEAD, FOOT, SIDE = 8, 52, 30, 64
BACKGROUND, INK, QUIET = (18, 18, 20), (232, 232, 232), (150, 150, 150)
HEADS = ("decoded", "its lesion", "edited", "its lesion", "healthy twin")
SHOWN = ("flair", "t1gd")
"""Channels that are drawn, where the model has them; the first one otherwise."""


def draw_edit(archive: Archive, before: EncodedSlice, after: EncodedSlice) -> Image.Image:
    """Original, edited and healthy twin in columns, channels in rows; the original's pixels come first where known."""
    original, edited = archive.view(before), archive.view(after)
    about = archive.description
    shown = about.shown(SHOWN)
    rows = [_row(original, edited, channel, about.lesion_colours) for channel in shown.values()]
    heads = HEADS if original.pixels is None else ("scan", *HEADS)
    titles = [CHANNEL_TITLES.get(name, name) for name in shown]
    size = tile_size(original.predicted_lesion.shape, before.pixel_spacing, height=TILE_HEIGHT)
    return _lay_out(rows, heads, titles, size=size, title=after.name, classes=about.lesion)


def _row(original: SliceView, edited: SliceView, channel: int, colours: dict[int, Colour]) -> list[Pixels]:
    scan = original.reconstruction if original.pixels is None else original.pixels.image
    window = window_of(scan[channel])
    tiles = [] if original.pixels is None else [tile(scan[channel], window)]
    for view in (original, edited):
        image = view.reconstruction[channel]
        tiles += [tile(image, window), tile(image, window, view.predicted_lesion, colours)]
    return [*tiles, tile(original.healthy_twin[channel], window)]


def _lay_out(
    rows: list[list[Pixels]],
    heads: tuple[str, ...],
    titles: list[str],
    *,
    size: tuple[int, int],
    title: str,
    classes: Sequence[LabelClass],
) -> Image.Image:
    step_x, step_y = size[0] + MARGIN, size[1] + MARGIN
    canvas = Image.new("RGB", (SIDE + len(heads) * step_x, HEAD + len(rows) * step_y + FOOT), BACKGROUND)
    pen, font, small = ImageDraw.Draw(canvas), ImageFont.load_default(15), ImageFont.load_default(13)
    pen.text((MARGIN, 16), title, INK, font, anchor="lm")
    for column, head in enumerate(heads):
        pen.text((SIDE + column * step_x + size[0] // 2, HEAD - 12), head, QUIET, small, anchor="mm")
    for row, tiles in enumerate(rows):
        top = HEAD + row * step_y
        pen.text((MARGIN, top + size[1] // 2), titles[row], QUIET, small, anchor="lm")
        for column, pixels in enumerate(tiles):
            left = SIDE + column * step_x
            canvas.paste(scaled(pixels, size), (left, top))
            pen.text((left + 2, top + 1), "R", QUIET, small)
            pen.text((left + size[0] - 10, top + 1), "L", QUIET, small)
    middle, right = canvas.height - FOOT // 2, canvas.width - MARGIN
    pen.text((MARGIN, middle), f"{NOTICE}. Decoded images are made up by a network.", QUIET, small, anchor="lm")
    for one in reversed(classes):
        pen.text((right, middle), one.abbreviation, one.colour, small, anchor="rm")
        right -= round(pen.textlength(one.abbreviation, small)) + 14
    return canvas
