"""How well the lesion comes back from the abnormal code (section 4.4.2): Dice of volumes, by class and by size."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure as Plot
from matplotlib.ticker import NullFormatter
from numpy.typing import NDArray

from diptych.evaluation.bootstrap import CELLS, Summary, plain, summarise
from diptych.evaluation.context import Context
from diptych.evaluation.part import Figure, Part, Section, Table
from diptych.evaluation.survey import Survey, surveyed
from diptych.progress import Progress

ANNOTATOR = {"ET": 0.68, "ED": 0.74}
"""Dice of the paper's annotation networks (appendix B), not of its decoder, for which it prints no number."""
CAPTION = (
    "Dice over all slices of a patient together, mean ± standard deviation over patients with 95 % bootstrap interval. "
    "A class that a patient neither has nor is predicted to have is left out. 'Annotator' is the Dice of the paper's "
    "separate segmentation networks; for its decoder the paper shows bars without numbers."
)


def run(context: Context, progress: Progress) -> Section:
    found = surveyed(context, progress)
    overall = {name: summarise(values, seed=context.seed) for name, values in found.dice.items()}
    groups = size_groups(found.lesion_ml)
    by_size = {
        label: {name: summarise(values[members]) for name, values in found.dice.items()}
        for label, members in groups.items()
    }
    return Section(
        (_table(overall), _size_table(by_size, groups), _plot(found)),
        plain({"dice": overall, "by_size": by_size}),
        tuple((f"Dice {name}", str(value)) for name, value in overall.items()),
    )


def size_groups(lesion_ml: NDArray[np.float64]) -> dict[str, NDArray[np.intp]]:
    """Patients in three groups of equal number by lesion volume, named by their range; patients without one apart.

    >>> [members.tolist() for members in size_groups(np.array([5.0, 1.0, 0.0, 9.0])).values()]
    [[2], [1], [0], [3]]
    """
    groups = {}
    none = np.flatnonzero(lesion_ml == 0)
    if len(none):
        groups["no lesion"] = none
    order = np.argsort(lesion_ml, kind="stable")[len(none) :]
    for members in np.array_split(order, 3):
        if len(members):
            groups[f"{lesion_ml[members[0]]:.1f}–{lesion_ml[members[-1]]:.1f} ml"] = members
    return groups


def _table(overall: dict[str, Summary]) -> Table:
    rows = [(name, *value.cells, ANNOTATOR.get(name)) for name, value in overall.items()]
    columns = ("class", *CELLS, "annotator, paper")
    return Table.of("Segmentation of volumes", columns, rows, caption=CAPTION, paper=("annotator, paper",))


def _size_table(by_size: dict[str, dict[str, Summary]], groups: dict[str, NDArray[np.intp]]) -> Table:
    rows = [
        (label, len(groups[label]), *(value.cells[0] for value in values.values())) for label, values in by_size.items()
    ]
    return Table.of(
        "Dice by lesion size",
        ("lesion volume", "patients", *next(iter(by_size.values()), {})),
        rows,
        caption="Patients in three groups of equal number by the volume of their whole lesion; mean over patients.",
    )


def _plot(found: Survey) -> Figure:
    plot = Plot(figsize=(7, 3), layout="constrained")
    boxes, sizes = plot.subplots(1, 2)
    values = [value[~np.isnan(value)] for value in found.dice.values()]
    boxes.boxplot(values, tick_labels=list(found.dice), widths=0.5)
    sizes.semilogx(np.maximum(found.lesion_ml, 0.1), found.dice["whole"], "o", markersize=4, alpha=0.7)
    sizes.set_xlabel("lesion volume, ml")
    sizes.xaxis.set_major_formatter("{x:g}")
    sizes.xaxis.set_minor_formatter(NullFormatter())
    for axes in (boxes, sizes):
        axes.set_ylim(-0.02, 1.02)
        axes.spines[["top", "right"]].set_visible(False)
    boxes.set_ylabel("Dice of the volume")
    sizes.set_ylabel("Dice, whole lesion")
    return Figure.of_plot("Segmentation by patient", plot)


PART = Part(
    "segmentation",
    "Segmentation",
    "How well the abnormal code alone gives the lesion back, volume by volume.",
    run,
    settings={"version": 2},
)
