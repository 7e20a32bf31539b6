"""How near the healthy twin comes to the truth, which only phantoms have: the same brain without its lesion."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure as Plot

from diptych.evaluation.bootstrap import CELLS, Summary, plain, summarise
from diptych.evaluation.context import Context
from diptych.evaluation.part import Figure, Part, Section, Table, Words, left_out
from diptych.evaluation.survey import Survey, surveyed
from diptych.progress import Progress

IMAGES = ("x, the input", "x̂⁺, reconstruction", "x̂⁻, healthy twin")
CAPTION = (
    "Mean |image - true twin| in z-scores of the input's own scale, mean ± standard deviation over phantoms with 95 % "
    "bootstrap interval. Inside the lesion a useful x̂⁻ lies far below x and x̂⁺; outside it the difference is what the "
    "decoder blurs."
)


def run(context: Context, progress: Progress) -> Section:
    if not any("twin" in context.records[key].files for key in context.queries):
        return left_out("no patient has a true healthy twin; only phantoms do ('diptych phantom --help').")
    found = surveyed(context, progress)
    inside, outside = (
        dict(zip(IMAGES, map(summarise, values.T), strict=True))
        for values in (found.from_true_twin, found.from_true_twin_outside)
    )
    x, plus, minus = inside.values()
    verdict = (
        f"Inside the lesion the input differs from the true twin by {x.mean:.2f}, the reconstruction by "
        f"{plus.mean:.2f} and the healthy twin by {minus.mean:.2f}: {1 - minus.mean / x.mean:.0%} of the lesion's "
        "difference is gone."
    )
    return Section(
        (Words(verdict), _table(inside, outside), _plot(found)),
        plain({"inside": inside, "outside": outside}),
        (("off the true twin inside the lesion: x, x̂⁺, x̂⁻", f"{x.mean:.2f}  {plus.mean:.2f}  {minus.mean:.2f}"),),
    )


def _table(inside: dict[str, Summary], outside: dict[str, Summary]) -> Table:
    rows = [
        (where, name, *value.cells)
        for where, values in (("inside the lesion", inside), ("brain outside it", outside))
        for name, value in values.items()
    ]
    return Table.of(
        "Against the true healthy twin",
        ("where", "image", *CELLS),
        rows,
        caption=CAPTION,
    )


def _plot(found: Survey) -> Figure:
    plot = Plot(figsize=(4.2, 3), layout="constrained")
    axes = plot.add_subplot()
    known = found.from_true_twin[~np.isnan(found.from_true_twin).any(axis=1)]
    axes.plot(range(3), known.T, color="0.7", linewidth=0.8)
    axes.plot(range(3), known.mean(axis=0), "o-", color="C0")
    axes.set_xticks(range(3), ["x", "x̂⁺", "x̂⁻"])
    axes.set_ylim(bottom=0)
    axes.set_ylabel("off the true twin in the lesion")
    axes.spines[["top", "right"]].set_visible(False)
    return Figure.of_plot("Healthy twins of phantoms", plot, caption="Each grey line is a phantom, blue their mean.")


PART = Part(
    "twins",
    "Healthy twins",
    "How near the generated healthy image comes to a phantom's true one, inside the lesion.",
    run,
    settings={"version": 2},
)
