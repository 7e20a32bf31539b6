"""How well images come back from their codes (section 4.4.1): x̂⁺ everywhere, x̂⁻ outside the lesion."""

from __future__ import annotations

from matplotlib.figure import Figure as Plot

from diptych.evaluation.bootstrap import CELLS, Summary, plain, summarise
from diptych.evaluation.context import Context
from diptych.evaluation.part import Figure, Part, Section, Table
from diptych.evaluation.survey import Survey, surveyed
from diptych.progress import Progress

MEASURES = {
    "l1": "Σ|x - x̂| of a slice, as in the paper",
    "mean": "mean |x - x̂| in the brain",
    "psnr": "PSNR in the brain, dB",
    "ssim": "SSIM of the frame",
}
IMAGES = {"reconstruction": "x̂⁺, everywhere", "twin": "x̂⁻, outside the lesion"}
CAPTION = (
    "Mean ± standard deviation over patients, and the 95 % bootstrap interval of the mean. Errors are in z-scores; the "
    "sum runs over pixels and channels of a slice and so depends on the image size, the mean does not. PSNR's peak "
    "is the full range of clipped z-scores (8). The paper shows its errors as bars without numbers."
)


def run(context: Context, progress: Progress) -> Section:
    found = surveyed(context, progress)
    summaries = {
        image: {measure: summarise(getattr(found, f"{measure}_{image}"), seed=context.seed) for measure in MEASURES}
        for image in IMAGES
    }
    plus = summaries["reconstruction"]
    return Section(
        (_table(summaries), _plot(found)),
        plain(summaries),
        (
            ("error of x̂⁺, z-scores in the brain", f"{plus['mean'].mean:.3f}"),
            ("error of x̂⁻ outside the lesion", f"{summaries['twin']['mean'].mean:.3f}"),
            ("SSIM of x̂⁺", f"{plus['ssim'].mean:.3f}"),
        ),
    )


def _table(summaries: dict[str, dict[str, Summary]]) -> Table:
    rows = [
        (IMAGES[image], MEASURES[measure], *value.cells)
        for image, measures in summaries.items()
        for measure, value in measures.items()
    ]
    return Table.of("Reconstruction", ("image", "measure", *CELLS), rows, caption=CAPTION)


def _plot(found: Survey) -> Figure:
    plot = Plot(figsize=(7, 3), layout="constrained")
    for place, (measure, title) in enumerate((("mean", "mean |x - x̂|"), ("ssim", "SSIM")), start=1):
        axes = plot.add_subplot(1, 2, place)
        values = [getattr(found, f"{measure}_{image}") for image in IMAGES]
        axes.boxplot(values, tick_labels=["x̂⁺", "x̂⁻ outside\nthe lesion"], widths=0.5)
        axes.set_ylabel(title)
        axes.spines[["top", "right"]].set_visible(False)
    return Figure.of_plot("Reconstruction by patient", plot, caption="Boxes are quartiles over patients.")


PART = Part(
    "reconstruction",
    "Reconstruction",
    "How near both decoded images come to the input.",
    run,
    settings={"version": 2},
    needs_lesions=False,
)
