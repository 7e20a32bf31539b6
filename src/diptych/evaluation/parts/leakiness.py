"""Whether the healthy twin still tells that there was a lesion (section 4.4.3, appendix D).

Takes minutes: not part of a report unless asked for by name. The decoded images are made once, small, and kept. Two
ways to ask: among the query patients alone, in groups (`leakiness`), and as the paper does, of a classifier that
learns from training patients (`leakiness_paper`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np
from matplotlib.figure import Figure as Plot
from numpy.typing import NDArray

from diptych.evaluation.bootstrap import plain
from diptych.evaluation.context import Context
from diptych.evaluation.leak_classifier import (
    PAPER,
    ClassifierConfig,
    deal_patients,
    height_scores,
    matched_pairs,
    positive_predictive_value,
    score_others,
    score_slices,
    shrink,
)
from diptych.evaluation.part import Figure, Part, Section, Table, Words, left_out
from diptych.evaluation.survey import content_key
from diptych.progress import Progress
from diptych.search import load_arrays, save_arrays
from diptych.slices import FILL
from diptych.slices.preprocess import BLANK_BELOW

IMAGES = {"image": "x, the image itself", "plus": "x̂⁺, reconstruction", "minus": "x̂⁻, healthy twin"}
HEIGHT = "height alone"
CONFIG = ClassifierConfig()
CAPTION = (
    "No blank slices. PPV is the paper's measure (above .9 for x̂⁺; for x̂⁻ it rises with the size of the grid and falls "
    "with distribution matching); its chance level is the share of diseased slices. The matched AUROC is over pairs of "
    "a diseased and a healthy slice from the same height, scored by one classifier: .5 tells nothing, and what the "
    "classifier reaches on the image itself is about the most that it can. 95 % bootstrap intervals over patients."
)
GROUPS = "A classifier learns from some of the patients and is tested on the others, in turns until all were. "
TAUGHT = "A classifier learns from {count} other patients (training patients, say) and is tested on these. "


@dataclass(frozen=True, eq=False)
class Material:
    """The slices of some patients, blank ones left out."""

    images: dict[str, NDArray[np.float16]]
    """By the names of `IMAGES`, `[N, C, side, side]`."""
    diseased: NDArray[np.bool_]
    position: NDArray[np.floating]
    patient: NDArray[np.integer]


def run(context: Context, progress: Progress, *, config: ClassifierConfig = CONFIG) -> Section:
    """Query patients among themselves."""
    judged = gather(context, context.queries, config.side, progress)
    if len(context.queries) < 4 or judged.diseased.all() or not judged.diseased.any():
        return left_out("needs four patients or more, with diseased and with healthy slices.")
    scores = {
        IMAGES[name]: score_slices(
            judged.images[name], judged.diseased, judged.patient, config=config, seed=context.seed, progress=progress
        )
        for name in IMAGES
    }
    group = deal_patients(judged.patient, groups=config.groups, seed=context.seed)
    scores[HEIGHT] = height_scores(judged.diseased, judged.position, group=group)
    return _section(judged, scores, group, context.seed, GROUPS)


def run_paper(context: Context, progress: Progress, *, config: ClassifierConfig = PAPER) -> Section:
    """As in the paper: one classifier, which other patients have taught, judges the query patients."""
    if len(context.others) < 2:
        return left_out("needs patients to learn from: labelled ones in the store who are on neither list.")
    judged = gather(context, context.queries, config.side, progress)
    taught = gather(context, context.others, config.side, progress)
    if any(one.diseased.all() or not one.diseased.any() for one in (judged, taught)):
        return left_out("needs diseased and healthy slices.")
    scores = {
        IMAGES[name]: score_others(
            taught.images[name], taught.diseased, judged.images[name],
            config=config, seed=context.seed, progress=progress,
        )
        for name in IMAGES
    }  # fmt: skip
    group = np.repeat([0, 1], [len(taught.diseased), len(judged.diseased)])
    diseased = np.concatenate([taught.diseased, judged.diseased])
    position = np.concatenate([taught.position, judged.position])
    scores[HEIGHT] = height_scores(diseased, position, group=group)[group == 1]
    lead = TAUGHT.format(count=len(context.others))
    return _section(judged, scores, np.zeros(len(judged.diseased), np.int64), context.seed, lead)


def gather(context: Context, keys: Sequence[str], side: int, progress: Progress) -> Material:
    """Images, labels and heights of all slices of these patients that show some brain."""
    records = [context.homes[key].patients[key] for key in keys]
    arrays = _images(context, keys, side, progress)
    shown = arrays.pop("shown") > 0
    diseased = np.array([pixels > 0 for record in records for pixels in record.lesion_pixels or ()])
    position = np.array([place for record in records for place in record.position])
    patient = np.repeat(np.arange(len(records)), [record.slices for record in records])
    images = {name: array.view(np.float16)[shown] for name, array in arrays.items()}
    return Material(images, diseased[shown], position[shown], patient[shown])


def _images(context: Context, keys: Sequence[str], side: int, progress: Progress) -> dict[str, NDArray[np.uint16]]:
    """x, x̂⁺ and x̂⁻ of all slices, `[N, C, side, side]` as bits of float16, and which slices show brain, `[N]`."""
    whose = "" if tuple(keys) == context.queries else "-others"
    path = context.cache / f"leakiness-{side}{whose}.arrays"
    key = f"leakiness 3 of {content_key(context, keys)}"
    kept = load_arrays(path, key=key)
    if kept is not None:
        return {name: np.asarray(array) for name, array in kept.items()}
    parts: dict[str, list[NDArray[np.uint16]]] = {name: [] for name in (*IMAGES, "shown")}
    for done, patient in enumerate(keys, start=1):
        decoded = context.decomposed(patient)
        for name, images in zip(IMAGES, (decoded.images, decoded.reconstruction, decoded.healthy_twin), strict=True):
            parts[name].append(shrink(images, side).view(np.uint16))
        brain = (decoded.images > FILL).any(axis=1).mean(axis=(1, 2))
        parts["shown"].append((brain >= BLANK_BELOW).astype(np.uint16))
        progress(done, len(keys), f"decoding {patient}")
    made = {name: np.concatenate(arrays) for name, arrays in parts.items()}
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        save_arrays(path, made, key=key)
    return made


def _figures(judged: Material, scores: NDArray[np.float64], group: NDArray[np.integer], seed: int) -> dict[str, float]:
    pairs = partial(matched_pairs, scores, judged.diseased, judged.position, judged.patient, group=group)
    matched = pairs()
    low, high = matched.interval(seed=seed)
    return {
        "ppv": positive_predictive_value(scores, judged.diseased),
        "auroc": pairs(window=np.inf).auroc,
        "matched": matched.auroc,
        "low": low,
        "high": high,
    }


def _section(
    judged: Material, scores: dict[str, NDArray[np.float64]], group: NDArray[np.integer], seed: int, lead: str
) -> Section:
    numbers = {name: _figures(judged, values, group, seed) for name, values in scores.items()}
    prevalence = float(judged.diseased.mean())
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
        (Words(words), Table.of("Leakiness", columns, rows, caption=lead + CAPTION), _plot(numbers)),
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
    settings={"version": 3, **asdict(CONFIG)},
    by_default=False,
)
