"""The paper's pictures: training examples, retrieval panels, learning curves.

Pictures show the evaluated patients: the report is to be guarded like their images.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure as Plot
from PIL import Image

from diptych.drawing.sheet import CHANNEL_TITLES
from diptych.evaluation.compare_metrics import Trial
from diptych.evaluation.context import Context
from diptych.evaluation.part import Block, Figure, Part, Section, Words
from diptych.evaluation.result_strip import Tile, draw_panel
from diptych.progress import Progress
from diptych.slices import SliceDataset
from diptych.training.pictures import choose_examples, draw_examples, make_examples

SHOWN = ("t1gd", "flair")
QUERIES, MATCHES = 2, 5
ASKED = {
    "normal": "the anatomy (normal codes)",
    "abnormal": "the lesion (abnormal codes)",
    "both": "both panels",
}
CURVES = ("loss", "latent", "segmentation", "reconstruction", "wasserstein", "regulariser")


def run(context: Context, progress: Progress) -> Section:
    blocks: list[Block] = [Words("Pictures show the evaluated patients: guard this page as you guard their images.")]
    blocks.append(_examples(context))
    progress(1, 3, "examples")
    trial = context.trial(progress)
    step = max(1, len(trial.queries) // QUERIES)
    for place in trial.queries[::step][:QUERIES].tolist():
        blocks += [_panel(context, trial, place, by) for by in trial.bys]
    progress(2, 3, "retrieval panels")
    log = context.model.parent / "log.csv"
    if log.is_file():
        blocks.append(learning_curves(log))
    else:
        blocks.append(Words("Learning curves: there is no log.csv beside the model's folder, as a training run has."))
    progress(3, 3)
    return Section(tuple(blocks), {"figures": sum(isinstance(block, Figure) for block in blocks)})


def _examples(context: Context) -> Figure:
    """x, x̂⁺, x̂⁻, y and ŷ of a few patients, as during training."""
    dataset = SliceDataset(context.stores, context.queries, with_twin=True)
    chosen = choose_examples(dataset)
    examples = make_examples(context.network, dataset, chosen, device=torch.device("cpu"))
    names = [name for name in SHOWN if name in dataset.channels] or list(dataset.channels[:1])
    row, column = dataset.batch(chosen[:1]).pixel_spacing[0].tolist()
    picture = draw_examples(
        examples,
        shown={name: dataset.channels.index(name) for name in names},
        classes=context.network.description.lesion,
        pixel_spacing=(row, column),
        title="research use only, not a medical device",
    )
    return Figure.of_image("Examples: x, x̂⁺, x̂⁻, y, ŷ", Image.fromarray(picture))


def _panel(context: Context, trial: Trial, place: int, by: str) -> Figure:
    found = [match.slice for match in trial.search_one(place, "euclidean", by)][:MATCHES]
    dice = trial.truths()[by].dice[trial.queries.tolist().index(place)]
    tiles = [_tile(context, trial, place, by, "query", "")]
    for rank, one in enumerate(found, start=1):
        tiles.append(_tile(context, trial, one, by, f"match {rank}", f"Dice {dice[one]:.2f}"))
    key, about = trial.slices.keys[trial.slices.volume[place]], context.network.description
    return Figure.of_image(
        f"{key}, searched by {by}",
        draw_panel(
            tiles,
            colours={"lesion": about.lesion_colours, "anatomy": about.anatomy_colours},
            pixel_spacing=context.records[key].pixel_spacing,
        ),
        caption=f"Nearest by {ASKED[by]}, Euclidean distance, one slice per patient; labels are the true ones.",
    )


def _tile(context: Context, trial: Trial, place: int, by: str, title: str, subtitle: str) -> Tile:
    volume = int(trial.slices.volume[place])
    key = trial.slices.keys[volume]
    home = context.homes[key]
    image = home.images(key)[place - int(np.searchsorted(trial.slices.volume, volume))]
    shown = [name for name in SHOWN if name in home.channels] or list(home.channels[:1])
    rows = {CHANNEL_TITLES.get(name, name): image[home.channels.index(name)] for name in shown}
    labels = {}
    for panel, name in (("abnormal", "lesion"), ("normal", "anatomy")):
        if by in (panel, "both") and panel in trial.slices.labels:
            rows[name] = image[home.channels.index(shown[-1])]
            labels[name] = trial.slices.labels[panel][place]
    return Tile(title, subtitle, rows, labels)


def learning_curves(log: Path) -> Figure:
    """Losses by step, smoothed, from a run's log (the paper's appendix G)."""
    with log.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    names = [name for name in CURVES if any(row.get(name) for row in rows)]
    plot = Plot(figsize=(9, 2.4 * -(-len(names) // 3)), layout="constrained")
    for place, name in enumerate(names, start=1):
        points = [(int(row["step"]), float(row[name])) for row in rows if row.get(name)]
        steps, values = np.array(points).T
        axes = plot.add_subplot(-(-len(names) // 3), 3, place)
        window = max(1, len(values) // 60)
        smooth = np.convolve(values, np.ones(window) / window, mode="valid")
        axes.plot(steps, values, color="0.85", linewidth=0.5)
        axes.plot(steps[len(steps) - len(smooth) :], smooth, linewidth=1.2)
        low, high = np.percentile(values, (1, 99))
        axes.set_ylim(low - 0.05 * (high - low + 1e-9), high + 0.05 * (high - low + 1e-9))
        axes.set_title(name, fontsize=10)
        axes.set_xlabel("step")
        axes.spines[["top", "right"]].set_visible(False)
    return Figure.of_plot("Learning curves", plot, caption="Grey: each logged step; blue: moving mean.")


PART = Part(
    "figures",
    "Pictures",
    "Examples of decomposition, what searches find, and how the network learnt.",
    run,
    settings={"version": 1},
)
