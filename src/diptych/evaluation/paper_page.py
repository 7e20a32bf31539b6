"""The paper's section of results from a sweep of its family, as a Markdown page with pictures: ours beside the paper's.

    PAGE.md               what somebody wrote, then `MARK`, then what follows from the runs, anew each time
    PAGE/*.png            curves, norms, Hamming against Euclid; decoded slices only of phantoms

Knows what a sweep found (and, from its comparison.json, what one with another seed found); nothing about how.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Plot
from matplotlib.lines import Line2D

from diptych.errors import UsageError
from diptych.evaluation.leak_classifier import PAPER
from diptych.evaluation.part import Cell, Figure, Table
from diptych.evaluation.parts.codebooks import codebooks_of
from diptych.evaluation.parts.hashing import scatter
from diptych.evaluation.parts.leakiness import HEIGHT, IMAGES
from diptych.evaluation.report import markdown_table
from diptych.evaluation.sweep import METRICS, RAW, Trained
from diptych.evaluation.sweep_page import COMPACTNESS, side_by_side
from diptych.hashing import binarise, optimise
from diptych.slices import SliceStore

MARK = "<!-- from here on written by `diptych sweep --page` -->"
CHOSEN = "paper-8x8"
"""The configuration of which the paper gives figures."""
SYMBOLS = {"euclidean": "D_E", "angular": "D_A", "hamming": "D_H"}
RETRIEVAL = {
    "normal": {"euclidean": 0.50, "angular": 0.47, "hamming": 0.48, "oracle": 0.62},
    "abnormal": {"euclidean": 0.28, "angular": 0.27, "hamming": 0.28, "oracle": 0.37},
    "both": {"euclidean, raw sum": 0.20, "angular, raw sum": 0.30, "hamming, raw sum": 0.23, "oracle": 0.42},
}
"""The paper's, top-10, 8×8 with distribution matching, on its own patients at 256×256."""
HASHED = {
    "normal": (789, ".82 .86 .89", ".81 .89 .90", 0.483),
    "abnormal": (292, ".84 .87 .89", ".81 .88 .90", 0.645),
}
"""The paper's bits, concordance of the first 1, 5 and 10 before and after optimisation, and time saved."""
LEAKS = {**IMAGES, "height": HEIGHT}
TERMS = {"latent": "latent", "segmentation": "segmentation", "reconstruction": "reconstruction"}
CAPTIONS = {
    "runs": "Mean ± standard deviation over patients; sums over pixels and channels of a slice, as in the paper, "
    "which shows both only as bars: errors fall and Dice rises from 4×4 to 32×32, with matching as "
    "without. Steps *n of m*: a run that is not at its end.",
    "leaks": "A classifier taught by the training patients, tested on the test patients; appendix D's, smaller: "
    f"{PAPER.side}×{PAPER.side} pixels, {len(PAPER.blocks)} blocks, {PAPER.epochs} epochs. The paper's PPV (bars): "
    "above .9 for x̂⁺ always; for x̂⁻ it rises with the grid and falls with matching. A PPV is worth what it "
    "has above that of height alone: most slices about the middle of a brain are diseased. The matched AUROC "
    "compares slices of the same height: .5 tells nothing. 95 % intervals over patients.",
    "codebooks": "K = 512. Compactness: share of codes with a norm below 1e-5. Used: share that stands in any cell of "
    "the test patients.",
    "hashing": "Bits of 130,816 that algorithm A.1 leaves; concordance of the 1, 5 and 10 nearest codes by Hamming "
    "and Euclid. Literal: hyperplanes between all 512 codes, as the paper has it; merged: identical codes "
    "are one. F.1 is the paper's timing.",
    "retrieval": "Mean Dice of the labels of the volumes found; query: the slice with the largest lesion; own patient "
    "excluded; classes absent in both left out.",
}
SMOOTHED = 25
"""Steps that a curve is averaged over."""

Numbers = Mapping[str, Any]


def write_page(
    trained: Sequence[Trained], page: Path, *, phantoms: SliceStore | None = None, beside: Path | None = None
) -> Path:
    """Write the page anew below its mark, and its pictures beside it."""
    seeds = {"": _numbers(trained), "again": _read(beside)} if beside else {"": _numbers(trained)}
    tables = [_runs(seeds), _leaks(seeds), _codebooks(seeds), _hashing(seeds), *_retrieval(seeds)]
    figures = [_curves(trained), _norms(trained), *_hamming(trained)]
    if phantoms is not None:
        figures.append(side_by_side(trained, phantoms, sorted(phantoms.patients)))
    lines = [MARK, ""]
    for table in tables:
        lines += [f"### {table.title}", "", *markdown_table(table), "", table.caption, ""]
    for figure in figures:
        lines += [f"![{figure.title}]({page.stem}/{_name(figure)})", "", f"*{figure.title}. {figure.caption}*", ""]
    try:
        page.with_suffix("").mkdir(parents=True, exist_ok=True)
        for figure in figures:
            (page.with_suffix("") / _name(figure)).write_bytes(figure.png)
        before = page.read_text(encoding="utf-8") if page.exists() else ""
        page.write_text(before.partition(MARK)[0] + "\n".join(lines), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{page}: cannot be written ({error.strerror}); give another --page") from None
    return page


def _numbers(trained: Sequence[Trained]) -> dict[str, Numbers]:
    return {one.configuration.preset: {"title": one.configuration.title, **one.run, **one.numbers} for one in trained}


def _read(sweep: Path) -> dict[str, Numbers]:
    """What a sweep with another seed has found."""
    try:
        found: dict[str, Numbers] = json.loads((sweep / "comparison.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise UsageError(f"{sweep}: has no comparison.json; run that sweep without --train-only first") from None
    return found


def _rows(seeds: Mapping[str, Mapping[str, Numbers]]) -> list[tuple[str, str, Numbers]]:
    """Preset, how the row is called, and its numbers; a second seed follows its first."""
    rows = []
    for preset in seeds[""]:
        for again, found in seeds.items():
            if preset in found:
                rows.append((preset, found[preset]["title"] + (", second seed" if again else ""), found[preset]))
    return rows


def _runs(seeds: Mapping[str, Mapping[str, Numbers]]) -> Table:
    rows: list[list[Cell]] = []
    for _, title, numbers in _rows(seeds):
        errors, dice = numbers["reconstruction"], numbers["segmentation"]["dice"]
        planned = numbers.get("planned")
        rows.append(
            [
                title,
                f"{numbers['steps']} of {planned}" if planned else f"{numbers['steps']}",
                _spread(errors["reconstruction"]["l1"], ".0f"),
                _spread(errors["twin"]["l1"], ".0f"),
                *(_spread(dice[name], ".2f") for name in ("ET", "ED", "NET")),
                dice["whole"]["mean"],
            ]
        )
    return Table.of(
        "Reconstruction and segmentation",
        ("configuration", "steps", "Σ|x − x̂⁺|", "Σ|M⁻x − M⁻x̂⁻|", "Dice ET", "Dice ED", "Dice NET", "whole"),
        rows,
        caption=CAPTIONS["runs"],
        formats={"whole": ".2f"},
    )


def _leaks(seeds: Mapping[str, Mapping[str, Numbers]]) -> Table:
    rows: list[list[Cell]] = []
    for _, title, numbers in _rows(seeds):
        leaks = numbers.get("leakiness_paper", {})
        found = {name: leaks.get(label) for name, label in LEAKS.items()}
        row: list[Cell] = [title]
        for name in ("plus", "minus", "height"):
            row += [found[name]["ppv"] if found[name] else None]
        for name in ("plus", "minus", "image"):
            row += [_interval(found[name]) if found[name] else None]
        rows.append([*row, leaks.get("prevalence")])
    return Table.of(
        "Leakiness",
        (
            "configuration", "PPV x̂⁺", "PPV x̂⁻", "PPV of height alone", "matched AUROC x̂⁺", "of x̂⁻", "of x itself",
            "diseased slices",
        ),
        rows,
        caption=CAPTIONS["leaks"],
        formats=dict.fromkeys(("PPV x̂⁺", "PPV x̂⁻", "PPV of height alone", "diseased slices"), ".2f"),
    )  # fmt: skip


def _codebooks(seeds: Mapping[str, Mapping[str, Numbers]]) -> Table:
    rows: list[list[Cell]] = []
    for preset, title, numbers in _rows(seeds):
        books = numbers["codebooks"]
        for place, panel in enumerate(("normal", "abnormal")):
            book = books[panel]
            shown = [book[name] for name in ("compactness", "used", "perplexity", "median_norm")]
            rows.append([title, panel, *shown, COMPACTNESS[preset][place]])
    columns = ("configuration", "codebook", "compactness", "used", "perplexity", "median norm", "compactness, paper")
    return Table.of(
        "Codebooks",
        columns,
        rows,
        caption=CAPTIONS["codebooks"],
        formats={"compactness": ".2f", "used": ".1%", "perplexity": ".0f", columns[-1]: ".2f"},
    )


def _hashing(seeds: Mapping[str, Mapping[str, Numbers]]) -> Table:
    rows: list[list[Cell]] = []
    for preset, title, numbers in _rows(seeds):
        for panel in ("normal", "abnormal"):
            forms, paper = numbers["hashing"][panel], HASHED[panel] if preset == CHOSEN else (None, None, None, None)
            literal, merged = forms["literal"], forms["merged"]
            rows.append(
                [
                    title,
                    panel,
                    literal["after"]["bits"],
                    merged["after"]["bits"],
                    paper[0],
                    *(_three(form[when]["concordance"]) for form in (literal, merged) for when in ("before", "after")),
                    paper[1] and f"{paper[1]} → {paper[2]}",
                    numbers["timing"][panel]["reduction"],
                    paper[3],
                ]
            )
    return Table.of(
        "Binary codes",
        (
            "configuration", "codebook", "bits, literal", "merged", "paper", "concordance literal, all bits",
            "shortened", "merged, all bits", "shortened ", "paper's", "F.1 saves", "paper's ",
        ),
        rows,
        caption=CAPTIONS["hashing"],
        formats={"F.1 saves": ".0%", "paper's ": ".0%"},
    )  # fmt: skip


def _retrieval(seeds: Mapping[str, Mapping[str, Numbers]]) -> list[Table]:
    """One table for each way of searching: top-1 to top-10, all configurations and distances."""
    tables = []
    first = next(iter(seeds[""].values()))["sweep_retrieval"]
    for by in (name for name in RETRIEVAL if name in first):
        names = [*METRICS, *(f"{metric}{RAW}" for metric in METRICS if by == "both")]
        rows: list[list[Cell]] = []
        for preset, title, numbers in _rows(seeds):
            found = numbers["sweep_retrieval"][by]
            for name in names:
                share = found[name][-1] / found["oracle"][-1] if found["oracle"][-1] else None
                paper = RETRIEVAL[by].get(name) if preset == CHOSEN else None
                rows.append([title, _symbol(name), *found[name], share, paper])
        rows.append(["oracle", "", *first[by]["oracle"], 1.0, RETRIEVAL[by]["oracle"]])
        rows.append(["chance", "", *[first[by]["chance"]] * first["top"], None, None])
        tops = [f"top-{top}" for top in range(1, first["top"] + 1)]
        tables.append(
            Table.of(
                f"Retrieval by {by}",
                ("configuration", "distance", *tops, "of oracle", "paper, top-10"),
                rows,
                caption=CAPTIONS["retrieval"],
                formats={**dict.fromkeys(tops, ".2f"), "of oracle": ".0%", "paper, top-10": ".2f"},
            )
        )
    return tables


def _curves(trained: Sequence[Trained]) -> Figure:
    """Terms of the loss along training, and critic and regulariser where there are any."""
    plot = Plot(figsize=(11, 2.1 * max(1, -(-len(trained) // 2)) + 0.4), layout="constrained")
    shown: dict[str, Line2D] = {}
    for place, one in enumerate(trained, start=1):
        axes = plot.add_subplot(-(-len(trained) // 2), 2, place)
        log = _log(one.context.model.parent / "log.csv")
        for name, label in TERMS.items():
            axes.plot(*_smooth(log, name), label=label, linewidth=1)
        axes.set(yscale="log", xlabel="step", ylabel="term of the loss")
        axes.set_title(one.configuration.title.replace("×", "x"), fontsize=9)
        shown |= {str(line.get_label()): line for line in axes.get_lines()}
        if np.isfinite(log.get("critic", [np.nan])).any():
            other = axes.twinx()
            for name, colour in (("critic", "C4"), ("regulariser", "C5")):
                (shown[name],) = other.plot(*_smooth(log, name), color=colour, label=f"{name} (right)", linewidth=1)
    plot.legend(handles=list(shown.values()), loc="outside upper center", ncols=len(shown), fontsize=7)
    return Figure.of_plot("Training", plot, caption=f"Terms before weighting, means of {SMOOTHED} steps (figure G.1).")


def _norms(trained: Sequence[Trained]) -> Figure:
    plot = Plot(figsize=(11, 2.0 * max(1, -(-len(trained) // 4)) + 0.4), layout="constrained")
    for place, one in enumerate(trained, start=1):
        axes = plot.add_subplot(-(-len(trained) // 4), 4, place)
        for panel, codebook in codebooks_of(one.context.network).items():
            axes.plot(np.sort(np.linalg.norm(codebook, axis=1))[::-1], label=panel, linewidth=1)
        axes.set_title(one.configuration.title.replace("×", "x"), fontsize=9)
        axes.set(xlabel="code", ylabel="norm")
        if place == 1:
            axes.legend(fontsize=6)
    return Figure.of_plot("Norms of code vectors", plot, caption="In descending order, 512 codes (figure E.1).")


def _hamming(trained: Sequence[Trained]) -> list[Figure]:
    """Of the configuration that the paper shows, or the first one there is."""
    one = next((one for one in trained if one.configuration.preset == CHOSEN), trained[0])
    plot = Plot(figsize=(8, 6.4), layout="constrained")
    for row, (panel, codebook) in enumerate(codebooks_of(one.context.network).items()):
        full = binarise(codebook, form="literal")
        for column, (when, binary) in enumerate({"before": full, "after": optimise(full)}.items()):
            axes: Axes = plot.add_subplot(2, 2, 2 * row + column + 1)
            scatter(axes, codebook, binary)
            axes.set_title(f"{panel} codes, {when} optimisation: {binary.bits} bits", fontsize=9)
    caption = f"{one.configuration.title}, every pair of the 512 codes (the paper's figure of both distances)."
    return [Figure.of_plot("Hamming against Euclid", plot, caption=caption)]


def _log(path: Path) -> dict[str, list[float]]:
    """Columns of a run's log."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {name: [float(row[name] or "nan") for row in rows] for name in (rows[0] if rows else ()) if name}


def _smooth(log: Mapping[str, list[float]], name: str) -> tuple[list[float], list[float]]:
    values = np.array(log[name])
    blocks = [values[at : at + SMOOTHED] for at in range(0, len(values), SMOOTHED)]
    means = [float(np.nanmean(block)) if np.isfinite(block).any() else float("nan") for block in blocks]
    return [float(log["step"][min(at + SMOOTHED, len(values)) - 1]) for at in range(0, len(values), SMOOTHED)], means


def _symbol(name: str) -> str:
    metric, raw, _ = name.partition(RAW)
    return SYMBOLS[metric] + (" raw" if raw else "")


def _spread(summary: Mapping[str, float], form: str) -> str:
    return "–" if summary["mean"] is None else f"{summary['mean']:{form}} ± {summary['sd']:{form}}"


def _interval(leak: Mapping[str, float]) -> str:
    return f"{leak['matched']:.2f} ({leak['low']:.2f} … {leak['high']:.2f})"


def _three(values: Mapping[str, float]) -> str:
    return " ".join(f"{value:.2f}".lstrip("0") for value in values.values())


def _name(figure: Figure) -> str:
    return figure.title.lower().replace(" ", "-") + ".png"
