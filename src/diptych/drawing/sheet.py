"""Pictures of patients: a contact sheet of channels by slices, with labels, drawn with Pillow alone.

Knows volumes, not files or commands. Axial slices hang as radiologists see them (the patient's right on the left of
the picture); proportions, side markers and slice heights come from the volume's geometry, never from array order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from diptych.errors import UsageError
from diptych.volumes import Volume

Pixels = NDArray[np.uint8]
_Entry = tuple[str, tuple[int, int, int]]

CHANNEL_TITLES = {"t1": "T1", "t1gd": "T1Gd", "t2": "T2", "flair": "FLAIR"}
NOTICE = "Research use only, not a medical device"
PIXEL_MM = 1.0
"""Millimetres per pixel of the picture."""
MARGIN_MM = 4.0
GAP, NAME_WIDTH, TITLE_HEIGHT, LINE = 4, 52, 34, 14
OPACITY = 0.45
WINDOW = (1.0, 99.5)
"""Percentiles of the brain's signal: half of the first is shown black, the second white."""


@dataclass(frozen=True, eq=False)
class _Row:
    name: str
    signal: NDArray[np.float32]
    labels: NDArray[np.uint8] | None = None
    colours: dict[int, tuple[int, int, int]] | None = None


def draw_contact_sheet(volumes: Sequence[Volume], *, slices: int = 6) -> Image.Image:
    """Draw patients side by side; each has a row per channel, then labels and the healthy twin where there are any."""
    if not volumes or slices < 1:
        raise UsageError(f"{len(volumes)} patients, {slices} slices: a contact sheet needs at least one of each")
    panels = [_draw_patient(volume, slices) for volume in volumes]
    width = sum(panel.width for panel in panels) + GAP * 3 * (len(panels) - 1)
    sheet = Image.new("RGB", (width, max(panel.height for panel in panels) + LINE + GAP))
    left = 0
    for panel in panels:
        sheet.paste(panel, (left, 0))
        left += panel.width + GAP * 3
    write_text(sheet, (GAP, sheet.height - LINE - 1), NOTICE, (150, 150, 150))
    return sheet


def choose_slices(volume: Volume, count: int) -> list[int]:
    """Planes spread evenly over the brain, one of them moved to where the lesion is largest."""
    filled = np.flatnonzero(volume.brain.any(axis=(0, 1)))
    if not filled.size:
        return [volume.shape[2] // 2] * count
    share = (np.arange(count) + 0.5) / count
    planes = [round(z) for z in filled[0] + (filled[-1] - filled[0]) * (0.06 + 0.88 * share)]
    if volume.lesion is not None and volume.lesion.any():
        peak = int(np.argmax((volume.lesion > 0).sum(axis=(0, 1))))
        nearest = min(range(count), key=lambda i: abs(planes[i] - peak))
        planes[nearest] = peak
    return planes


def _draw_patient(volume: Volume, slices: int) -> Image.Image:
    planes = choose_slices(volume, slices)
    box = _brain_box(volume)
    rows = _rows(volume)
    width, height = _tile_size(volume, box)
    across = NAME_WIDTH + slices * (width + GAP)
    legend = _legend(volume, across)
    bottom = TITLE_HEIGHT + len(rows) * (height + GAP)
    panel = Image.new("RGB", (across, bottom + len(legend) * (LINE + 2)))
    write_text(panel, (GAP, 2), volume.patient_key)
    for column, plane in enumerate(planes):
        left = NAME_WIDTH + column * (width + GAP)
        write_text(
            panel, (left + width // 2 - 16, TITLE_HEIGHT - LINE - 2), _height_text(volume, plane), (150, 150, 150)
        )
        for line, row in enumerate(rows):
            top = TITLE_HEIGHT + line * (height + GAP)
            tile = Image.fromarray(_paint(row, plane, box))
            panel.paste(tile.resize((width, height), Image.Resampling.BICUBIC), (left, top))
            _mark_sides(panel, volume, left, top, width)
    for line, row in enumerate(rows):
        write_text(panel, (GAP, TITLE_HEIGHT + line * (height + GAP) + height // 2), row.name)
    _draw_legend(panel, legend, bottom)
    return panel


def _rows(volume: Volume) -> list[_Row]:
    """Channels, then each set of labels over the last channel, then the twin of that channel."""
    rows = [
        _Row(CHANNEL_TITLES[channel], _window(image, image))
        for channel, image in zip(volume.channels, volume.array, strict=True)
    ]
    if volume.lesion is not None:
        colours = volume.description.lesion_colours
        rows.append(_Row("lesion", rows[len(volume.channels) - 1].signal, volume.lesion, colours))
    if volume.anatomy is not None:
        rows.append(_Row("anatomy", rows[0].signal, volume.anatomy, volume.description.anatomy_colours))
    if volume.twin is not None:
        rows += [
            _Row(f"{CHANNEL_TITLES[channel]}\ntwin", _window(twin, image))
            for channel, twin, image in zip(volume.channels, volume.twin, volume.array, strict=True)
            if channel in (volume.channels[-1], "t1gd")
        ]
    return rows


def _window(image: NDArray[np.float32], reference: NDArray[np.float32]) -> NDArray[np.float32]:
    """Signal as 0–1 between percentiles of the reference's brain; background is black."""
    inside = reference[reference > 0]
    low, high = np.percentile(inside, WINDOW) * (0.5, 1.0) if inside.size else (0.0, 1.0)
    shown = np.clip((image - low) / max(high - low, 1e-6), 0.0, 1.0)
    return np.where(image > 0, shown, 0.0).astype(np.float32)


def _brain_box(volume: Volume) -> tuple[slice, slice]:
    """The part of the axial plane that holds the brain, with a margin."""
    x, y, _ = np.nonzero(volume.brain)
    if not x.size:
        return slice(0, volume.shape[0]), slice(0, volume.shape[1])
    parts = []
    for filled, spacing in zip((x, y), volume.spacing, strict=False):
        margin = round(MARGIN_MM / spacing)
        parts.append(slice(max(int(filled.min()) - margin, 0), int(filled.max()) + margin + 1))
    return parts[0], parts[1]


def _tile_size(volume: Volume, box: tuple[slice, slice]) -> tuple[int, int]:
    """Width and height in pixels that show the box in its true proportions."""
    spans = [len(range(*part.indices(edge))) for part, edge in zip(box, volume.shape, strict=False)]
    width, height = (round(span * mm / PIXEL_MM) for span, mm in zip(spans, volume.spacing, strict=False))
    return max(width, 1), max(height, 1)


def _paint(row: _Row, plane: int, box: tuple[slice, slice]) -> Pixels:
    """One tile `[Y, X, 3]`: grey signal, tinted where there is a label."""
    grey = row.signal[(*box, plane)].T
    if row.labels is None or row.colours is None:
        return tint(grey, np.zeros(grey.shape, dtype=np.uint8), {})
    return tint(grey, row.labels[(*box, plane)].T, row.colours)


def tint(grey: NDArray[np.float32], labels: NDArray[np.uint8], colours: Mapping[int, tuple[int, int, int]]) -> Pixels:
    """A picture `[H, W, 3]` of a signal from 0 to 1, coloured where there is a label."""
    tile = np.repeat(grey[:, :, None] * 255.0, 3, axis=2)
    for value, colour in colours.items():
        inside = labels == value
        tile[inside] = (1.0 - OPACITY) * tile[inside] + OPACITY * np.array(colour)
    return tile.astype(np.uint8)


def _mark_sides(panel: Image.Image, volume: Volume, left: int, top: int, width: int) -> None:
    """R and L as the affine has them: columns that run towards negative world x run towards the patient's left."""
    first, last = ("R", "L") if volume.affine[0, 0] < 0 else ("L", "R")
    write_text(panel, (left + 1, top), first, (170, 170, 170))
    write_text(panel, (left + width - 9, top), last, (170, 170, 170))


def _height_text(volume: Volume, plane: int) -> str:
    x, y, _ = volume.shape
    z = float(volume.affine[2] @ np.array([x / 2, y / 2, plane, 1.0]))
    return f"{z:.0f} mm"


def _legend(volume: Volume, width: int) -> list[list[_Entry]]:
    """Label names in lines that fit the panel."""
    sets = (
        (volume.lesion, volume.description.lesion_names, volume.description.lesion_colours),
        (volume.anatomy, volume.description.anatomy_names, volume.description.anatomy_colours),
    )
    lines = []
    for labels, names, colours in sets:
        line: list[_Entry] = []
        for entry in [(names[value], colour) for value, colour in colours.items() if labels is not None]:
            if line and NAME_WIDTH + sum(_entry_width(name) for name, _ in [*line, entry]) > width:
                lines.append(line)
                line = []
            line.append(entry)
        lines += [line] if line else []
    return lines


def _entry_width(name: str) -> int:
    return 28 + round(ImageFont.load_default(size=12).getlength(name))


def _draw_legend(panel: Image.Image, legend: list[list[_Entry]], top: int) -> None:
    pen = ImageDraw.Draw(panel)
    for line, entries in enumerate(legend):
        left, y = NAME_WIDTH, top + line * (LINE + 2)
        for name, colour in entries:
            pen.rectangle((left, y + 3, left + 9, y + 12), fill=colour)
            write_text(panel, (left + 13, y), name, (200, 200, 200))
            left += _entry_width(name)


def write_text(
    image: Image.Image, at: tuple[int, int], text: str, colour: tuple[int, int, int] = (235, 235, 235)
) -> None:
    """Write `text` with its top left corner at (column, row)."""
    ImageDraw.Draw(image).text(at, text, fill=colour, font=ImageFont.load_default(size=12))
