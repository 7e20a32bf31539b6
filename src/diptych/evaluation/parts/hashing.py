"""What binarisation does to distances (section 4.4.5): Hamming against Euclid, before and after algorithm A.1."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Plot
from numpy.typing import NDArray

from diptych.evaluation.bootstrap import plain
from diptych.evaluation.context import Context
from diptych.evaluation.part import Figure, Part, Section, Table, Words
from diptych.evaluation.parts.codebooks import codebooks_of
from diptych.hashing import BinaryCodebook, Form, HashReport, binarise, optimise, report, round_dead
from diptych.hashing.binarise import squared_distances
from diptych.progress import Progress

PAPER = {
    ("normal", "before"): (130816, ".82 .86 .89"),
    ("normal", "after"): (789, ".81 .89 .90"),
    ("abnormal", "before"): (130816, ".84 .87 .89"),
    ("abnormal", "after"): (292, ".81 .88 .90"),
}
"""Bits and concordance of the first 1, 5, 10 in the paper, for K = 512 with two thirds of the codes dead."""
CAPTION = (
    "Concordance is the mean Jaccard overlap of each code's 1, 5 and 10 nearest codes by Hamming and by Euclidean "
    "distance; over distinct codes, dead ones cannot agree with each other for nothing. Merged: hyperplanes between "
    "distinct codes, as searches by hamming have them; literal: between all K, as the paper has it. Algorithm A.1 is "
    "read row by row. The paper's figures are of its 8x8 network with distribution matching, K = 512."
)
FORMS: tuple[Form, ...] = ("merged", "literal")
STAGES = ("before", "after")

Measured = dict[str, dict[str, dict[str, HashReport]]]
"""By panel, form and stage."""


def run(context: Context, progress: Progress) -> Section:
    measured: Measured = {}
    plot = Plot(figsize=(8, 6.4), layout="constrained")
    grid = plot.subplots(2, 2)
    for row, (panel, codebook) in enumerate(codebooks_of(context.network).items()):
        binaries = _binaries(codebook, context.seed)
        measured[panel] = {
            form: {when: report(binary, codebook) for when, binary in stages.items()}
            for form, stages in binaries.items()
        }
        for column, (when, binary) in enumerate(binaries["merged"].items()):
            scatter(grid[row, column], codebook, binary)
            grid[row, column].set_title(f"{panel} codes, {when} optimisation: {binary.bits} bits", fontsize=10)
        progress(row + 1, 2, panel)
    after = {panel: forms["merged"]["after"] for panel, forms in measured.items()}
    words = " ".join(
        f"Of the {panel} codes' hyperplanes algorithm A.1 keeps {value.bits} bits, {value.compression:.2%} of C(K, 2)."
        for panel, value in after.items()
    )
    figure = Figure.of_plot(
        "Hamming against Euclidean distance", plot, caption="Every pair of distinct codes; r is Pearson's correlation."
    )
    headline = [
        (f"{panel} codes: bits, concordance 1/5/10", f"{value.bits}  {_three(value.live_concordance)}")
        for panel, value in after.items()
    ]
    numbers = {
        panel: {form: {when: vars(value) for when, value in stages.items()} for form, stages in forms.items()}
        for panel, forms in measured.items()
    }
    return Section((Words(words), _table(measured), figure), plain(numbers), tuple(headline))


def _binaries(codebook: NDArray[np.floating], seed: int) -> dict[Form, dict[str, BinaryCodebook]]:
    """By form and stage; where no two codes are the same, both forms are."""
    merged = _stages(codebook, "merged", seed)
    same = merged["before"].distinct == len(codebook)
    return {form: merged if form == "merged" or same else _stages(codebook, form, seed) for form in FORMS}


def _stages(codebook: NDArray[np.floating], form: Form, seed: int) -> dict[str, BinaryCodebook]:
    full = binarise(codebook, form=form)
    return dict(zip(STAGES, (full, optimise(full, seed=seed)), strict=True))


def _table(measured: Measured) -> Table:
    rows = [
        (
            panel,
            form,
            f"{when} optimisation",
            value.bits,
            value.compression,
            value.live_compression,
            _three(value.concordance),
            _three(value.live_concordance),
            *PAPER[panel, when],
        )
        for panel, forms in measured.items()
        for form, reports in forms.items()
        for when, value in reports.items()
    ]
    columns = (
        "codebook", "form", "", "bits", "of C(K, 2)", "of distinct", "concordance", "over distinct codes",
        "bits, paper", "concordance, paper",
    )  # fmt: skip
    return Table.of(
        "Binary codes",
        columns,
        rows,
        caption=CAPTION,
        formats={"of C(K, 2)": ".2%", "of distinct": ".2%"},
        paper=columns[-2:],
    )


def scatter(axes: Axes, codebook: NDArray[np.floating], binary: BinaryCodebook) -> None:
    """Every pair of codes by both distances."""
    euclidean = np.sqrt(squared_distances(round_dead(codebook)[binary.representative]))
    pairs = np.triu_indices(binary.distinct, k=1)
    hamming = binary.distances()[pairs]
    axes.plot(hamming, euclidean[pairs], ".", markersize=1.5, alpha=0.25, rasterized=True)
    if binary.distinct > 2:
        correlation = np.corrcoef(hamming, euclidean[pairs])[0, 1]
        axes.text(0.03, 0.93, f"r = {correlation:.2f}", transform=axes.transAxes)
    axes.locator_params(axis="x", nbins=5)
    axes.set_xlabel("Hamming distance")
    axes.set_ylabel("Euclidean distance")
    axes.spines[["top", "right"]].set_visible(False)


def _three(values: dict[int, float]) -> str:
    return " ".join(f"{value:.2f}" for value in values.values())


PART = Part(
    "hashing",
    "Binary codes",
    "Whether Hamming distances between codes follow Euclidean ones, and how few bits that needs.",
    run,
    settings={"version": 2},
)
