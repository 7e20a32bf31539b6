"""Two studies of one patient as a picture: old, new, plain subtraction, and changed cells of either panel.

Knows `StudyChange` and drawing; reads no file.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from diptych.drawing.sheet import NOTICE, Pixels, write_text
from diptych.drawing.tile import EDGE, tile, tile_size
from diptych.retrieval.change import CELL_SHARE, TWIN_CHANGE, StudyChange
from diptych.slices import FILL

WINDOW = (-2.0, 3.5)
BRIGHTER, DARKER = np.array([190.0, 125.0, 255.0]), np.array([95.0, 220.0, 110.0])
"""Violet and green: no class of lesion has them."""
CHANGED = np.array([255.0, 255.0, 255.0])
HEIGHT, GAP, HEAD, NAME, LINE = 170, 4, 40, 64, 14
SLICES = 4
COLUMNS = ("old", "new", "new − old", "lesion code", "anatomy code")


def draw_change(change: StudyChange, *, channel: int = -1, slices: int = SLICES) -> Image.Image:
    """The slices with the most change, bottom first."""
    places = shown_slices(change, slices)
    size = tile_size(change.new.images.shape[2:], change.new.pixel_spacing, height=HEIGHT)
    width = NAME + len(COLUMNS) * (size[0] + GAP)
    sheet = Image.new("RGB", (width, HEAD + len(places) * (HEIGHT + GAP) + LINE + GAP))
    write_text(sheet, (GAP, 4), f"{change.old_key} to {change.new_key}: {change.words.replace('→', 'to')}")
    for column, name in enumerate(COLUMNS):
        write_text(sheet, (NAME + column * (size[0] + GAP), 22), name, (170, 170, 170))
    for line, place in enumerate(places):
        top = HEAD + line * (HEIGHT + GAP)
        write_text(sheet, (GAP, top + HEIGHT // 2), f"slice {change.new.z_index[place]}")
        for column, pixels in enumerate(change_tiles(change, place, channel)):
            picture = Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC)
            sheet.paste(picture, (NAME + column * (size[0] + GAP), top))
    write_text(sheet, (GAP, sheet.height - LINE - 1), f"Lesions predicted. {NOTICE}", (150, 150, 150))
    return sheet


def shown_slices(change: StudyChange, count: int) -> list[int]:
    """The slices with most change, or with most lesion where nothing changed, apart from one another."""
    amount = change.abnormal.sum(axis=(1, 2)) + 1e-3 * np.count_nonzero(change.new_lesion, axis=(1, 2))
    apart = max(1, len(amount) // (4 * count))
    chosen: list[int] = []
    for place in np.argsort(-amount).tolist():
        if all(abs(place - other) >= apart for other in chosen):
            chosen.append(place)
        if len(chosen) == count:
            break
    return sorted(chosen)


def change_tiles(change: StudyChange, place: int, channel: int) -> list[Pixels]:
    """One row: both studies with their lesions, the subtraction, and the two maps."""
    old, new = change.old.images[place, channel], change.new.images[place, channel]
    ground = tile(new, WINDOW)
    return [
        tile(old, WINDOW, change.old_lesion[place]),
        tile(new, WINDOW, change.new_lesion[place]),
        _over(ground, subtraction(change, place, channel)),
        _over(ground, cell_map(change, place, "abnormal")),
        _over(ground, cell_map(change, place, "normal")),
    ]


def old_image(change: StudyChange, place: int, channel: int) -> Pixels:
    """The old study where the new one lies, `[H, W, 3]`."""
    return tile(change.old.images[place, channel], WINDOW)


def subtraction(change: StudyChange, place: int, channel: int) -> NDArray[np.float32]:
    """Brighter and darker than before, as colours with opacity, `[H, W, 4]`."""
    old, new = change.old.images[place, channel], change.new.images[place, channel]
    brain = (old > FILL + EDGE) & (new > FILL + EDGE)
    apart = np.where(brain, new - old, 0.0)
    strength = np.clip((np.abs(apart) - 0.4) / 1.6, 0.0, 1.0)
    colour = np.where(apart[..., None] > 0, BRIGHTER, DARKER)
    return np.concatenate([colour, strength[..., None] * 255.0], axis=2).astype(np.float32)


def cell_map(change: StudyChange, place: int, panel: str) -> NDArray[np.float32]:
    """Changed cells as a veil, the stronger the more they changed, `[H, W, 4]`."""
    values, least = (change.abnormal, CELL_SHARE) if panel == "abnormal" else (change.normal, TWIN_CHANGE)
    cells = values[place]
    H, W = change.new.images.shape[2:]
    strength = np.where(cells >= least, np.clip(0.35 + 0.65 * cells / max(float(cells.max()), 1e-6), 0.0, 1.0), 0.0)
    opacity = np.kron(strength, np.ones((H // cells.shape[0], W // cells.shape[1])))
    colour = np.broadcast_to(CHANGED, (H, W, 3))
    return np.concatenate([colour, 0.7 * opacity[..., None] * 255.0], axis=2).astype(np.float32)


def _over(ground: Pixels, layer: NDArray[np.float32]) -> Pixels:
    share = layer[..., 3:] / 255.0
    return np.asarray((1 - share) * ground + share * layer[..., :3], dtype=np.uint8)
