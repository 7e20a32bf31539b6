"""A query and what it found, side by side: the paper's retrieval panels, drawn with Pillow.

Knows slices as arrays; nothing about searches. Columns run from the patient's right to the left, proportions follow the
pixel spacing, all tiles share one window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from diptych.drawing.sheet import NOTICE, tint, write_text

HEIGHT = 120
"""Pixels of a tile from top to bottom."""
WINDOW = (-2.0, 3.5)
"""Z-scores that become black and white."""
GAP, NAME_WIDTH, HEAD, LINE = 4, 76, 34, 16
GREY = (150, 150, 150)


@dataclass(frozen=True, eq=False)
class Tile:
    """One slice: an image by row name `[H, W]`, labels for those rows that show some, and two lines above."""

    title: str
    subtitle: str
    rows: Mapping[str, NDArray[np.floating]]
    labels: Mapping[str, NDArray[np.uint8]]


def draw_panel(
    tiles: Sequence[Tile],
    *,
    colours: Mapping[str, Mapping[int, tuple[int, int, int]]],
    pixel_spacing: tuple[float, float],
) -> Image.Image:
    """Draw tiles from left to right; `colours` has the label colours of each row that shows labels."""
    names = list(tiles[0].rows)
    H, W = tiles[0].rows[names[0]].shape
    size = (round(HEIGHT * W * pixel_spacing[1] / (H * pixel_spacing[0])), HEIGHT)
    width = NAME_WIDTH + len(tiles) * (size[0] + GAP)
    sheet = Image.new("RGB", (width, HEAD + len(names) * (size[1] + GAP) + LINE))
    for column, tile in enumerate(tiles):
        left = NAME_WIDTH + column * (size[0] + GAP)
        write_text(sheet, (left, 2), tile.title)
        write_text(sheet, (left, 2 + LINE), tile.subtitle, GREY)
        for line, name in enumerate(names):
            at = (left, HEAD + line * (size[1] + GAP))
            grey = np.clip((tile.rows[name].astype(np.float32) - WINDOW[0]) / (WINDOW[1] - WINDOW[0]), 0, 1)
            shown = tile.labels.get(name, np.zeros((H, W), dtype=np.uint8))
            picture = Image.fromarray(tint(grey, shown, colours.get(name, {})))
            sheet.paste(picture.resize(size, Image.Resampling.BICUBIC), at)
            write_text(sheet, (at[0] + 1, at[1]), "R", GREY)
            write_text(sheet, (at[0] + size[0] - 9, at[1]), "L", GREY)
    for line, name in enumerate(names):
        write_text(sheet, (GAP, HEAD + line * (size[1] + GAP) + size[1] // 2 - LINE // 2), name)
    write_text(sheet, (GAP, sheet.height - LINE), NOTICE, GREY)
    return sheet
