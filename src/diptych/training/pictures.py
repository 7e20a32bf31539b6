"""The picture grid by which a person judges a run: input, reconstruction, healthy twin, lesion, predicted lesion.

Knows arrays and pixels, nothing about networks or stores. Pixels may be anisotropic: panels keep the proportions of
the body. All panels of a row share one window, the 2nd to 98th percentile of the input's brain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from diptych.description import LabelClass
from diptych.model import FeatureDecomposingNetwork
from diptych.slices import SliceDataset
from diptych.training.validation import evenly_spaced

PANEL_HEIGHT = 176
"""Pixels of a panel from top to bottom."""
MARGIN, HEADER, FOOTER, LABEL = 6, 24, 24, 150
BACKGROUND, INK = (18, 18, 20), (232, 232, 232)


@dataclass(frozen=True, eq=False)
class Example:
    """One slice and what the network made of it; images `[C, H, W]`, labels `[H, W]`."""

    label: str
    image: NDArray[np.float32]
    reconstruction: NDArray[np.float32]
    healthy_twin: NDArray[np.float32]
    true_twin: NDArray[np.float32] | None
    lesion: NDArray[np.uint8]
    predicted_lesion: NDArray[np.uint8]


def draw_examples(
    examples: Sequence[Example],
    *,
    shown: dict[str, int],
    classes: Sequence[LabelClass],
    pixel_spacing: tuple[float, float],
    title: str,
) -> NDArray[np.uint8]:
    """Draw one row per example and shown channel.

    Args:
        examples: what to draw.
        shown: channel name to its index in the images, for the channels to draw.
        classes: lesion classes, with names and colours.
        pixel_spacing: millimetres between rows and between columns.
        title: one line for the bottom of the picture.

    Returns:
        The picture, `[H, W, 3]`.
    """
    H, W = examples[0].lesion.shape
    row_mm, column_mm = pixel_spacing
    panel = (round(PANEL_HEIGHT * (W * column_mm) / (H * row_mm)), PANEL_HEIGHT)  # PIL's order: width, height
    heads = ["input", "reconstruction", "healthy twin", "lesion", "predicted"]
    if with_twin := any(example.true_twin is not None for example in examples):
        heads.insert(3, "true twin")
    rows = [(example, name, index) for example in examples for name, index in shown.items()]
    width = LABEL + len(heads) * (panel[0] + MARGIN)
    canvas = Image.new("RGB", (width, HEADER + len(rows) * (panel[1] + MARGIN) + FOOTER), BACKGROUND)
    draw = ImageDraw.Draw(canvas)
    font = ImageFont.load_default(14)

    for column, head in enumerate(heads):
        centre = LABEL + column * (panel[0] + MARGIN) + panel[0] // 2
        draw.text((centre, HEADER // 2), head, INK, font, anchor="mm")
    for row, (example, name, index) in enumerate(rows):
        top = HEADER + row * (panel[1] + MARGIN)
        draw.multiline_text((MARGIN, top + MARGIN), f"{example.label}\n{name}", INK, ImageFont.load_default(12))
        for column, pixels in enumerate(_panels(example, index, classes, with_twin=with_twin)):
            if pixels is None:
                continue
            resized = Image.fromarray(pixels).resize(panel, Image.Resampling.BICUBIC)
            canvas.paste(resized, (LABEL + column * (panel[0] + MARGIN), top))
    _draw_footer(draw, canvas.size, classes, title, font)
    return np.asarray(canvas)


def save_picture(path: Path, picture: NDArray[np.uint8]) -> None:
    """Write a picture as PNG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture).save(path)


def _panels(
    example: Example, channel: int, classes: Sequence[LabelClass], *, with_twin: bool
) -> list[NDArray[np.uint8] | None]:
    """The panels of one row, each `[H, W, 3]`; None for a true twin that is not known."""
    image = example.image[channel]
    low, high = _window(image)
    greys: list[NDArray[np.uint8] | None] = [
        _grey(array[channel], low, high) for array in (example.image, example.reconstruction, example.healthy_twin)
    ]
    if with_twin:
        greys.append(None if example.true_twin is None else _grey(example.true_twin[channel], low, high))
    ground = _grey(image, low, high)
    return [*greys, *(_overlay(ground, labels, classes) for labels in (example.lesion, example.predicted_lesion))]


def _window(image: NDArray[np.float32]) -> tuple[float, float]:
    brain = image[image > image.min() + 1e-3]
    if brain.size == 0:
        return float(image.min()), float(image.min()) + 1.0
    low, high = np.percentile(brain, (2, 98))
    return float(low) - 0.25 * float(high - low), float(high)  # dark brain stays brighter than outside the brain


def _grey(image: NDArray[np.float32], low: float, high: float) -> NDArray[np.uint8]:
    scaled = np.clip((image.astype(np.float32) - low) / max(high - low, 1e-6), 0, 1)
    return np.repeat((scaled * 255).astype(np.uint8)[..., None], 3, axis=-1)


def _overlay(grey: NDArray[np.uint8], labels: NDArray[np.uint8], classes: Sequence[LabelClass]) -> NDArray[np.uint8]:
    pixels = (grey * 0.55).astype(np.uint8)
    for one in classes:
        where = labels == one.value
        pixels[where] = (0.35 * pixels[where] + 0.65 * np.array(one.colour)).astype(np.uint8)
    return pixels


def _draw_footer(
    draw: ImageDraw.ImageDraw,
    size: tuple[int, int],
    classes: Sequence[LabelClass],
    title: str,
    font: ImageFont.FreeTypeFont | ImageFont.ImageFont,
) -> None:
    width, height = size
    middle = height - FOOTER // 2
    draw.text((MARGIN, middle), title, INK, font, anchor="lm")
    right = width - MARGIN
    for one in reversed(classes):
        draw.text((right, middle), one.abbreviation, one.colour, font, anchor="rm")
        right -= round(draw.textlength(one.abbreviation, font)) + 14


PATIENTS = 3


def choose_examples(dataset: SliceDataset) -> list[int]:
    """Indices into `dataset`: the slice with the most lesion of each of a few patients, then a healthy one."""
    chosen = []
    for key in evenly_spaced(dataset.keys, PATIENTS):
        slices = np.flatnonzero(dataset.table.patient == dataset.keys.index(key))
        pixels = (dataset.batch(slices).lesion > 0).sum(dim=(1, 2))
        chosen.append(int(slices[int(pixels.argmax())]))
    healthy = np.flatnonzero(~dataset.table.diseased)
    if len(healthy):  # the one nearest to the middle of the head
        chosen.append(int(healthy[np.abs(dataset.table.position[healthy] - 0.5).argmin()]))
    return chosen


def make_examples(
    network: FeatureDecomposingNetwork, dataset: SliceDataset, indices: list[int], *, device: torch.device
) -> list[Example]:
    """Decompose the chosen slices; the network is left in the mode it was in."""
    batch = dataset.batch(indices)
    was_training = network.training
    network.eval()
    found = network.decompose(batch.image.to(device))
    network.train(was_training)
    predicted = found.lesion_probabilities.argmax(dim=1).to(torch.uint8)
    return [
        Example(
            label=f"{_short(dataset.keys[dataset.table.patient[index]])}\nheight {float(batch.position[row]):.0%}",
            image=batch.image[row].numpy(),
            reconstruction=found.reconstruction[row].cpu().numpy(),
            healthy_twin=found.healthy_twin[row].cpu().numpy(),
            true_twin=batch.twin[row].numpy() if batch.twin is not None and bool(batch.has_twin[row]) else None,
            lesion=batch.lesion[row].to(torch.uint8).numpy(),
            predicted_lesion=predicted[row].cpu().numpy(),
        )
        for row, index in enumerate(indices)
    ]


def _short(key: str) -> str:
    return key if len(key) <= 22 else f"...{key[-19:]}"
