"""Pictures of what intake did: before, after and seams, so that a person sees in a second whether it went well.

Each channel has a row: its middle slice as the scanner gave it, then three planes in the atlas, then a chequerboard
of the channel and the atlas, in which edges of the brain run on from field to field when they lie on each other.
Drawn with Pillow alone. Knows arrays; pixels of the skull appear in the first column only.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from diptych.drawing.sheet import CHANNEL_TITLES, NOTICE, write_text
from diptych.files import replacing
from diptych.intake.atlas_space import SRI24, load_atlas
from diptych.intake.intake_record import IntakeRecord
from diptych.intake.resampling import Affine, Placed, even_grid, resample

TILE = 200
FIELD = 25
"""Pixels of one field of the chequerboard."""
GAP, LINE = 4, 16
LETTERS, MOST_LINES = 190, 8
"""Of warnings under the picture."""
GREY = (170, 170, 170)


def draw_intake(
    images: Mapping[str, Placed], channels: Mapping[str, NDArray[np.float32]], record: IntakeRecord
) -> Image.Image:
    """One row per channel: scanner, atlas at three heights, seams with the atlas, seams with the reference."""
    model = resample(load_atlas().brain, SRI24)
    brain = np.flatnonzero(channels[record.reference].any(axis=(0, 1)))
    planes = [int(brain[0] + share * (brain[-1] - brain[0])) for share in (0.3, 0.5, 0.7)]
    middle = planes[1]
    titles = ["scanner", *(f"plane {plane}" for plane in planes), "seams: atlas", f"seams: {record.reference}"]
    lines = [line for warning in record.warnings for line in textwrap.wrap(warning, LETTERS, max_lines=2)][:MOST_LINES]
    height = 2 * LINE + len(channels) * (TILE + GAP) + (2 + len(lines)) * LINE
    sheet = Image.new("RGB", (60 + len(titles) * (TILE + GAP), height))
    write_text(sheet, (GAP, 1), f"{record.patient_key}   brain {record.brain_ml:.0f} ml, overlap with the atlas "
               f"{record.atlas['overlap']:.2f}")  # fmt: skip
    for column, title in enumerate(titles):
        write_text(sheet, (60 + column * (TILE + GAP), LINE + 1), title, GREY)
    for line, (channel, values) in enumerate(channels.items()):
        top = 2 * LINE + line * (TILE + GAP)
        write_text(sheet, (GAP, top + TILE // 2), CHANNEL_TITLES[channel])
        reference = channels[record.reference]
        tiles = [
            _native(images[channel]),
            *(_axial(values, plane) for plane in planes),
            _seams(_axial(values, middle), _axial(model, middle)),
            _seams(_axial(values, middle), _axial(reference, middle)),
        ]
        for column, tile in enumerate(tiles):
            sheet.paste(_picture(tile), (60 + column * (TILE + GAP), top))
    bottom = 2 * LINE + len(channels) * (TILE + GAP)
    for line, warning in enumerate(lines):
        write_text(sheet, (GAP, bottom + line * LINE), warning.replace("–", "-"), (240, 190, 80))
    write_text(sheet, (GAP, sheet.height - LINE), NOTICE, GREY)
    return sheet


def draw_failure(out: Path, key: str, fixed: Placed, moving: Placed, transform: Affine) -> Path:
    """Two images that did not come together, in three planes and as seams; the picture's path comes back."""
    grid = even_grid(fixed.grid, 2.0)
    still, mover = resample(fixed, grid), resample(moving, grid, transform)
    sheet = Image.new("RGB", (3 * (TILE + GAP), 3 * (TILE + GAP) + 2 * LINE))
    for row in range(3):
        index = grid.shape[row] // 2
        first, second = (np.take(values, index, axis=row).T[::-1, ::-1] for values in (still, mover))
        for column, tile in enumerate((first, second, _seams(first, second))):
            sheet.paste(_picture(tile), (column * (TILE + GAP), LINE + row * (TILE + GAP)))
    write_text(sheet, (GAP, 1), f"{key}: this does not come together (left fixed, middle moved, right seams)")
    write_text(sheet, (GAP, sheet.height - LINE), NOTICE, GREY)
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{re.sub(r'[^A-Za-z0-9._-]', '_', key)}-failed.png"
    with replacing(path) as part:
        sheet.save(part, format="PNG")
    return path


def _axial(values: NDArray[np.float32], plane: int) -> NDArray[np.float32]:
    """A plane as readers hang it: the arrays are LPS."""
    return values[:, :, plane].T


def _native(image: Placed) -> NDArray[np.float32]:
    """The scanner's own middle slice, in the proportions of the body."""
    values: NDArray[np.float32] = np.asarray(image.array[:, :, image.array.shape[2] // 2], dtype=np.float32).T
    return values


def _seams(first: NDArray[np.float32], second: NDArray[np.float32]) -> NDArray[np.float32]:
    """A chequerboard of two images."""
    rows, columns = np.indices(first.shape) // FIELD
    return np.where((rows + columns) % 2 == 0, _window(first), _window(second)).astype(np.float32)


def _window(values: NDArray[np.float32]) -> NDArray[np.float32]:
    inside = values[values > 0]
    high = float(np.percentile(inside, 99.5)) if inside.size else 1.0
    shown: NDArray[np.float32] = np.clip(values / np.float32(max(high, 1e-6)), 0.0, 1.0)
    return shown


def _picture(values: NDArray[np.float32]) -> Image.Image:
    pixels = Image.fromarray((_window(values) * 255).astype(np.uint8))
    scale = TILE / max(pixels.size)
    size = (max(1, round(pixels.width * scale)), max(1, round(pixels.height * scale)))
    tile = Image.new("L", (TILE, TILE))
    tile.paste(pixels.resize(size, Image.Resampling.BILINEAR), ((TILE - size[0]) // 2, (TILE - size[1]) // 2))
    return tile
