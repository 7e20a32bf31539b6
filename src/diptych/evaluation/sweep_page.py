"""The comparison of a sweep's configurations: tables, plots, one slice decoded by each; one page, CSV and JSON.

Knows what a sweep found; nothing about how.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure as Plot

from diptych.drawing.html import REPORT_STYLE, html_page
from diptych.drawing.sheet import CHANNEL_TITLES, NOTICE
from diptych.errors import UsageError
from diptych.evaluation.part import Block, Cell, Figure, Table, Words
from diptych.evaluation.report import draw_block, table_csv
from diptych.evaluation.result_strip import Tile, draw_panel
from diptych.evaluation.retrieval_score import largest_lesion_slices
from diptych.evaluation.sweep import METRICS, Trained
from diptych.slices import SliceStore

SHOWN = ("t1gd", "flair")
COMPACTNESS = {
    "paper-4x4": (0.79, 0.75),
    "paper-4x4-nodm": (0.75, 0.72),
    "paper-8x8": (0.68, 0.69),
    "paper-8x8-nodm": (0.63, 0.67),
    "paper-16x16": (0.71, 0.52),
    "paper-16x16-nodm": (0.25, 0.57),
    "paper-32x32": (0.31, 0.0),
    "paper-32x32-nodm": (0.0, 0.0),
}
"""The paper's, of normal and abnormal codebooks."""
ABOUT = {
    "paper": "The paper's configurations, {patients} test patients: its K, D, losses and weights, with narrower "
    "networks, smaller input, small batches and few steps, alike for all, so figures tell configurations apart, not "
    "how good one would become.",
    "ours": "The paper's configurations, {patients} test patients. Grid and distribution matching (DM) are the "
    "paper's; widths and training are those of a small preset, alike for all, so figures tell configurations apart, "
    "not how good one would become. Codes that nobody uses are replaced during training, which the paper does not do: "
    "compactness stays near zero here, and perplexity tells how much of a codebook is in use.",
}


def write_comparison(trained: Sequence[Trained], out: Path) -> Path:
    """Write page, CSV and JSON into the sweep's folder; returns the page."""
    blocks = comparison(trained)
    page = out / "index.html"
    titles = {number: block.title for number, block in enumerate(blocks) if not isinstance(block, Words)}
    contents = "".join(f'<li><a href="#b{number}">{escape(title)}</a></li>' for number, title in titles.items())
    sections = "".join(f"<section id=b{number}>{draw_block(block)}</section>" for number, block in enumerate(blocks))
    body = (
        f"<header><h1>Configurations compared</h1><p class=notice>{escape(NOTICE)}</p></header>"
        f"<nav><ol>{contents}</ol></nav><main>{sections}</main><footer></footer>"
    )
    try:
        for table in (block for block in blocks if isinstance(block, Table)):
            name = table.title.split(",")[0].lower().replace(" ", "-")
            (out / f"{name}.csv").write_text(table_csv(table), encoding="utf-8")
        (out / "comparison.json").write_text(json.dumps(_plain(trained), indent=1), encoding="utf-8")
        page.write_text(html_page("Diptych: sweep", body, style=REPORT_STYLE), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{out}: cannot be written to ({error.strerror}); make room or give another --out") from None
    return page


def comparison(trained: Sequence[Trained]) -> list[Block]:
    """Everything on the page."""
    context = trained[0].context
    pictures = side_by_side(trained, context.homes[context.queries[0]], context.queries)
    about = Words(ABOUT[trained[0].configuration.family].format(patients=len(trained[0].context.queries)))
    return [about, _models(trained), _retrieval(trained), _plot(trained), pictures]


def _models(trained: Sequence[Trained]) -> Table:
    leaky = all("leakiness_paper" in one.numbers for one in trained)
    columns = (
        "configuration", "parameters", "steps", "|x - x̂⁺|", "|x - x̂⁻|", "Dice ET", "Dice ED", "Dice NET", "Dice whole",
        "x̂⁻ off true twin", *(("leak, matched AUROC",) if leaky else ()), "perplexity, normal", "perplexity, abnormal",
        "compactness, normal", "compactness, abnormal", "paper, normal", "paper, abnormal",
    )  # fmt: skip
    return Table.of(
        "Models",
        columns,
        [_model_row(one, leaky=leaky) for one in trained],
        caption="Errors in z-scores: x̂⁺ over the brain, x̂⁻ outside the lesion, and inside it from the true twin where "
        "there is one. Dice of volumes, mean over patients.",
        formats={"parameters": ",d", "perplexity, normal": ".0f", "perplexity, abnormal": ".0f"},
        paper=columns[-2:],
    )


def _model_row(one: Trained, *, leaky: bool) -> list[Cell]:
    numbers, dice = one.numbers, one.numbers["segmentation"]["dice"]
    inside = list(numbers["twins"].get("inside", {}).values())
    books = numbers["codebooks"]
    minus = [numbers["leakiness_paper"].get("x̂⁻, healthy twin", {}).get("matched")] if leaky else []
    return [
        one.configuration.title,
        sum(parameter.numel() for parameter in one.context.network.parameters()),
        int(one.run["steps"]),
        numbers["reconstruction"]["reconstruction"]["mean"]["mean"],
        numbers["reconstruction"]["twin"]["mean"]["mean"],
        *(dice[name]["mean"] for name in ("ET", "ED", "NET", "whole")),
        inside[2]["mean"] if inside else None,
        *minus,
        *(books[panel]["perplexity"] for panel in ("normal", "abnormal")),
        *(books[panel]["compactness"] for panel in ("normal", "abnormal")),
        *COMPACTNESS[one.configuration.preset],
    ]


def _retrieval(trained: Sequence[Trained]) -> Table:
    """The comparison that the paper left out as too costly."""
    rows = []
    for one in trained:
        numbers = one.numbers["sweep_retrieval"]
        for by in ("normal", "abnormal", "both"):
            if by in numbers:
                found = [numbers[by][metric][-1] for metric in METRICS]
                oracle, chance = numbers[by]["oracle"][-1], numbers[by]["chance"]
                rows.append((one.configuration.title, by, *found, chance, oracle, _share(max(found), oracle)))
    return Table.of(
        "Retrieval",
        ("configuration", "searched by", "D_E", "D_A", "D_H", "chance", "oracle", "best of oracle"),
        rows,
        caption=f"Mean Dice of the first {trained[0].numbers['sweep_retrieval']['top']} volumes found; query: the "
        "slice with the largest lesion, own patient excluded, classes absent in both left out; both panels normalised.",
        formats={"best of oracle": ".0%"},
    )


def _share(value: float, of: float) -> float | None:
    return value / of if of > 0 else None


def _plot(trained: Sequence[Trained]) -> Figure:
    plot = Plot(figsize=(9, 5.5), layout="constrained")
    names = [one.configuration.title for one in trained]
    panels: dict[str, list[float | None]] = {
        "mean |x - x̂⁺|": [one.numbers["reconstruction"]["reconstruction"]["mean"]["mean"] for one in trained],
        "Dice, whole lesion": [one.numbers["segmentation"]["dice"]["whole"]["mean"] for one in trained],
        **{f"% of oracle by {by}": [_best(one, by) for one in trained] for by in ("normal", "abnormal")},
    }
    colours = ["C0" if "DM" in name else "C1" for name in names]
    for place, (title, values) in enumerate(panels.items(), start=1):
        axes = plot.add_subplot(2, 2, place)
        axes.bar(range(len(names)), [np.nan if value is None else value for value in values], color=colours)
        axes.set_xticks(range(len(names)), names, rotation=40, ha="right", fontsize=8)
        axes.set_title(title, fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
    return Figure.of_plot("Configurations at a glance", plot, caption="Blue: with distribution matching (DM).")


def _best(one: Trained, by: str) -> float | None:
    numbers = one.numbers["sweep_retrieval"].get(by)
    share = None if numbers is None else _share(max(numbers[metric][-1] for metric in METRICS), numbers["oracle"][-1])
    return None if share is None else 100 * share


def side_by_side(trained: Sequence[Trained], store: SliceStore, keys: Sequence[str]) -> Figure:
    """The slice with the largest lesion of these patients, as every configuration decodes it."""
    key = max(keys, key=lambda name: max(store.patients[name].lesion_pixels or (0,)))
    record, home = store.patients[key], store
    pixels = np.array(record.lesion_pixels)
    row = int(largest_lesion_slices(pixels, np.zeros(len(pixels), dtype=np.int64))[0]) if pixels.any() else 0
    image = torch.from_numpy(home.images(key)[row : row + 1].astype(np.float32))
    channels = [name for name in SHOWN if name in home.channels] or list(home.channels[:1])
    tiles = [_tile("input", image[0], image[0], channels, home.channels)]
    for one in trained:
        found = one.context.network.decompose(image)
        title = one.configuration.title.replace("×", "x")  # which the font of pictures lacks
        tiles.append(_tile(title, found.reconstruction[0], found.healthy_twin[0], channels, home.channels))
    picture = draw_panel(tiles, colours={}, pixel_spacing=record.pixel_spacing)
    return Figure.of_image(
        "Configurations side by side",
        picture,
        caption=f"{key}; x̂⁺ (both codes) and x̂⁻ (healthy) of each configuration.",
    )


def _tile(title: str, plus: torch.Tensor, minus: torch.Tensor, channels: Sequence[str], known: Sequence[str]) -> Tile:
    rows = {}
    for name in channels:
        place = list(known).index(name)
        title_of_channel = CHANNEL_TITLES.get(name, name)
        rows[f"{title_of_channel},\nboth codes"] = plus[place].numpy()
        rows[f"{title_of_channel},\nhealthy"] = minus[place].numpy()
    return Tile(title, "", rows, {})


def _plain(trained: Sequence[Trained]) -> dict[str, Any]:
    return {
        one.configuration.preset: {
            "title": one.configuration.title,
            "changes": list(one.configuration.changes),
            "model": one.context.fingerprint,
            "steps": one.run["steps"],
            "seconds": one.run["seconds"],
            **one.numbers,
        }
        for one in trained
    }
