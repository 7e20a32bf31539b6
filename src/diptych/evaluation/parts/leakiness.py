"""Whether the healthy twin still tells that there was a lesion (section 4.4.3, appendix D).

Takes minutes: not part of a report unless asked for by name. The decoded images are made once, small, and kept.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from functools import partial

import numpy as np
from matplotlib.figure import Figure as Plot
from numpy.typing import NDArray

from diptych.evaluation.bootstrap import plain
from diptych.evaluation.context import Context
from diptych.evaluation.leak_classifier import (
    ClassifierConfig,
    height_scores,
    matched_pairs,
    positive_predictive_value,
    score_slices,
    shrink,
)
from diptych.evaluation.part import Figure, Part, Section, Table, Words, left_out
from diptych.evaluation.survey import content_key
from diptych.progress import Progress
from diptych.search import load_arrays, save_arrays

IMAGES = {"image": "x, the image itself", "plus": "x̂⁺, reconstruction", "minus": "x̂⁻, healthy twin"}
CONFIG = ClassifierConfig()
CAPTION = (
    "A classifier learns from some of the patients which decoded images stem from diseased slices and is tested on "
    "the others, in turns until all were; no blank slices. PPV is the paper's measure (above .9 for x̂⁺; for x̂⁻ it "
    "rises with the size of the grid and falls with distribution matching); its chance level is the share of diseased "
    "slices. The matched AUROC is over pairs of a diseased and a healthy slice from the same height: .5 tells nothing, "
    "and what the classifier reaches on the image itself is about the most that it can. "
    "95 % bootstrap intervals over patients."
)


def run(context: Context, progress: Progress, *, config: ClassifierConfig = CONFIG) -> Section:
    records = [context.records[key] for key in context.queries]
    diseased = np.array([pixels > 0 for record in records for pixels in record.lesion_pixels or ()])
    position = np.array([place for record in records for place in record.position])
    patient = np.repeat(np.arange(len(records)), [record.slices for record in records])
    if len(records) < 4 or diseased.all() or not diseased.any():
        return left_out("needs four patients or more, with diseased and with healthy slices.")
    images = _images(context, config.side, progress)
    scores = {
        IMAGES[name]: score_slices(images[name], diseased, patient, config=config, seed=context.seed, progress=progress)
        for name in IMAGES
    }
    scores["height alone"] = height_scores(diseased, position, patient, groups=config.groups, seed=context.seed)
    numbers = {}
    for name, values in scores.items():
        matched = matched_pairs(values, diseased, position, patient)
        low, high = matched.interval(seed=context.seed)
        numbers[name] = {
            "ppv": positive_predictive_value(values, diseased),
            "auroc": matched_pairs(values, diseased, position, patient, window=np.inf).auroc,
            "matched": matched.auroc,
            "low": low,
            "high": high,
        }
    return _section(numbers, float(diseased.mean()))


def _images(context: Context, side: int, progress: Progress) -> dict[str, NDArray[np.float16]]:
    """x, x̂⁺ and x̂⁻ of all query slices, `[N, C, side, side]`."""
    path, key = context.cache / f"leakiness-{side}.arrays", f"leakiness 2 of {content_key(context)}"
    kept = load_arrays(path, key=key)
    if kept is None:
        parts: dict[str, list[NDArray[np.float16]]] = {name: [] for name in IMAGES}
        for done, patient in enumerate(context.queries, start=1):
            decoded = context.decomposed(patient)
            parts["image"].append(shrink(decoded.images, side))
            parts["plus"].append(shrink(decoded.reconstruction, side))
            parts["minus"].append(shrink(decoded.healthy_twin, side))
            progress(done, len(context.queries), f"decoding {patient}")
        kept = {name: np.concatenate(arrays).view(np.uint16) for name, arrays in parts.items()}
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            save_arrays(path, kept, key=key)
    return {name: array.view(np.float16) for name, array in kept.items()}


def _section(numbers: dict[str, dict[str, float]], prevalence: float) -> Section:
    minus = numbers[IMAGES["minus"]]
    verdict = "chance lies in the interval" if minus["low"] <= 0.5 <= minus["high"] else "more than chance"
    words = (
        f"From the healthy twin alone a classifier tells diseased from healthy slices of the same height with an AUROC "
        f"of {minus['matched']:.2f} ({minus['low']:.2f} … {minus['high']:.2f}; {verdict}); from the reconstruction, "
        f"{numbers[IMAGES['plus']]['matched']:.2f}, from the image itself, {numbers[IMAGES['image']]['matched']:.2f}. "
        f"{prevalence:.0%} of the slices are diseased."
    )
    rows = [
        (name, plain(v["ppv"]), prevalence, v["auroc"], v["matched"], v["low"], v["high"])
        for name, v in numbers.items()
    ]
    columns = ("seen by the classifier", "PPV", "PPV by chance", "AUROC, all pairs", "AUROC, matched", "low", "high")
    headline = [(f"matched AUROC of {name}", f"{v['matched']:.2f}") for name, v in numbers.items()]
    return Section(
        (Words(words), Table.of("Leakiness", columns, rows, caption=CAPTION), _plot(numbers)),
        plain({"prevalence": prevalence, **numbers}),
        tuple(headline),
    )


def _plot(numbers: dict[str, dict[str, float]]) -> Figure:
    plot = Plot(figsize=(6, 2.2), layout="constrained")
    axes = plot.add_subplot()
    for place, values in enumerate(reversed(numbers.values())):
        axes.plot([values["low"], values["high"]], [place, place], color="C0", linewidth=2)
        axes.plot(values["matched"], place, "o", color="C0")
        axes.plot(values["auroc"], place, "x", color="0.5")
    axes.axvline(0.5, color="0.7", linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(numbers)), list(reversed(numbers)))
    axes.set_xlim(0.35, 1.01)
    axes.set_ylim(-0.5, len(numbers) - 0.5)
    axes.set_xlabel("AUROC: same height (blue, 95 % interval), all pairs (grey cross)")
    axes.spines[["top", "right"]].set_visible(False)
    return Figure.of_plot("Can a classifier tell that there was a lesion?", plot)


PART = Part(
    "leakiness",
    "Leakiness",
    "Whether the healthy twin still tells that there was a lesion.",
    partial(run, config=CONFIG),
    settings={"version": 2, **asdict(CONFIG)},
    by_default=False,
)
