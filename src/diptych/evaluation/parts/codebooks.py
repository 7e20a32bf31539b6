"""What the two codebooks are made of: compactness (section 4.4.4), real use, and the norms of appendix E."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure as Plot
from numpy.typing import NDArray

from diptych.evaluation.bootstrap import plain
from diptych.evaluation.context import Context
from diptych.evaluation.part import Figure, Part, Section, Table
from diptych.evaluation.survey import surveyed
from diptych.hashing import compactness
from diptych.model import FeatureDecomposingNetwork
from diptych.progress import Progress

PAPER = {"normal": 0.68, "abnormal": 0.69}
"""Compactness of the paper's 8x8 network with distribution matching."""
CAPTION = (
    "Compactness is the share of codes with a norm below 1e-5, the paper's measure; with codes that die it is high and "
    "says nothing good. Used: codes that stand in at least one cell of the query patients' slices. Perplexity: the "
    "number of codes in effective use, the exponential of the entropy of their frequencies. The paper's figures are of "
    "its 8x8 network with distribution matching."
)


def run(context: Context, progress: Progress) -> Section:
    codebooks, counts = codebooks_of(context.network), surveyed(context, progress).counts
    numbers = {}
    for (panel, codebook), used in zip(codebooks.items(), counts, strict=True):
        norms = np.linalg.norm(codebook, axis=1)
        numbers[panel] = {
            "codes": len(codebook),
            "compactness": compactness(codebook),
            "used": float(np.mean(used > 0)),
            "perplexity": perplexity(used),
            "largest_share": float(used.max() / used.sum()),
            "median_norm": float(np.median(norms)),
        }
    headline = [
        (
            f"{panel} codes: compactness, used, perplexity",
            f"{v['compactness']:.2f}  {v['used']:.0%}  {v['perplexity']:.0f}",
        )
        for panel, v in numbers.items()
    ]
    return Section((_table(numbers), _plot(codebooks, counts)), plain(numbers), tuple(headline))


def codebooks_of(network: FeatureDecomposingNetwork) -> dict[str, NDArray[np.float32]]:
    """Code vectors by panel, `[K, D]`."""
    quantizers = {"normal": network.normal_quantizer, "abnormal": network.abnormal_quantizer}
    return {panel: quantizer.codebook.detach().cpu().numpy() for panel, quantizer in quantizers.items()}


def perplexity(counts: NDArray[np.integer]) -> float:
    """The number of codes in effective use.

    >>> perplexity(np.array([5, 5, 0]))
    2.0
    """
    shares = counts[counts > 0] / counts.sum()
    return float(round(np.exp(-np.sum(shares * np.log(shares))), 9))


def _table(numbers: dict[str, dict[str, float]]) -> Table:
    columns = ("codebook", "codes", "compactness", "used", "perplexity", "share of the commonest", "compactness, paper")
    rows = [
        (panel, v["codes"], v["compactness"], v["used"], v["perplexity"], v["largest_share"], PAPER[panel])
        for panel, v in numbers.items()
    ]
    return Table.of(
        "Codebooks",
        columns,
        rows,
        caption=CAPTION,
        formats={"used": ".1%", "perplexity": ".0f", "share of the commonest": ".1%"},
        paper=("compactness, paper",),
    )


def _plot(codebooks: dict[str, NDArray[np.float32]], counts: NDArray[np.int64]) -> Figure:
    plot = Plot(figsize=(8, 4.6), layout="constrained")
    grid = plot.subplots(2, 2, sharex=True)
    for column, (panel, codebook) in enumerate(codebooks.items()):
        norms = np.linalg.norm(codebook, axis=1)
        order = np.argsort(-norms)
        grid[0, column].bar(np.arange(len(norms)), norms[order], width=1.0)
        grid[1, column].bar(np.arange(len(norms)), counts[column][order] / counts[column].sum(), width=1.0, color="C1")
        grid[0, column].set_title(f"{panel} codebook")
        grid[1, column].set_xlabel("codes in order of their norm")
    grid[0, 0].set_ylabel("norm")
    grid[1, 0].set_ylabel("share of cells")
    for axes in grid.flat:
        axes.spines[["top", "right"]].set_visible(False)
    return Figure.of_plot("Norms of code vectors, and how often each is used", plot, caption="Above: appendix E.")


PART = Part(
    "codebooks",
    "Codebooks",
    "How many codes are alive, how evenly they are used, and how long their vectors are.",
    run,
    settings={"version": 1},
    needs_lesions=False,
)
