"""Comparators: real lesion-free slices of others, nearest by normal code. Are they of the same place, and free?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from diptych.archive.encoding import NetworkEncoder
from diptych.evaluation.bootstrap import Draws
from diptych.evaluation.contender import own_metrics
from diptych.evaluation.context import Context
from diptych.evaluation.part import Cell, Part, Section, Table, Words, left_out
from diptych.evaluation.retrieval_score import Truth, nearest_slices
from diptych.progress import Progress
from diptych.retrieval.catalogue import clear_of_lesions

FIRST = 5
DECODED_AT_ONCE = 32


def run(context: Context, progress: Progress) -> Section:
    """Search by normal among slices that the model calls lesion-free, and look up where they are and what they hold."""
    trial = context.trial(progress)
    free = context.once("predicted lesion-free", lambda: _predicted_free(context, progress))
    if not free.any():
        return left_out("the model sees a lesion in every slice, so there is nothing to compare with")
    truth = trial.truths()["abnormal"]
    heights = np.concatenate([context.records[key].z_mm for key in context.keys])
    draws = Draws.of(trial.person[trial.slices.volume[trial.queries]], seed=context.seed)
    rows: list[list[Cell]] = []
    for metric in own_metrics(trial):
        distances = np.where(free, trial.distances(metric, "normal"), np.inf)
        rows.append([metric, *_figures(context, truth, heights, _first(distances, truth), draws)])
    rng = np.random.default_rng(context.seed)
    chance = np.where(free, rng.random(truth.dice.shape), np.inf)
    rows.append(["random lesion-free slice", *_figures(context, truth, heights, _first(chance, truth), draws)])
    columns = (
        "metric",
        "position error, mm",
        "95 %",
        "median, mm",
        "truly lesion-free",
        "lesion pixels where not",
    )
    table = Table.of(
        f"The first {FIRST} comparators",
        columns,
        rows,
        caption="Position error: distance between the levels of query and comparator in the images' own millimetres, "
        "which all scans of one atlas space share. Slices count as candidates when the model's own segmentation sees "
        "no lesion in or near them, as in an archive without labels; the true labels then tell whether they are free "
        "of it.",
        formats={"position error, mm": ".1f", "median, mm": ".1f", "truly lesion-free": ".1%", columns[-1]: ".0f"},
    )
    missed, seen = _missed(trial.slices.lesion_area, free)
    words = Words(
        f"The model calls {np.count_nonzero(free)} of {len(free)} slices lesion-free; {missed:.1%} of those do hold a "
        f"lesion, and it sees one in {1 - seen:.1%} of the slices that hold none. With labels in the archive, every "
        "comparator is truly lesion-free."
    )
    numbers = {
        str(row[0]): dict(zip(("mm", "interval", "median_mm", "lesion_free", "pixels"), row[1:], strict=True))
        for row in rows
    }
    headline = tuple((f"{row[0]}", f"{row[1]:5.1f} mm, {row[4]:.1%} truly lesion-free") for row in rows)
    return Section((words, table), numbers, headline)


def _predicted_free(context: Context, progress: Progress) -> NDArray[np.bool_]:
    """Whether the model sees no lesion in or near a slice, `[N]`; every different grid is decoded once."""
    slices = context.slices(progress)
    different, place = np.unique(slices.ids["abnormal"], axis=0, return_inverse=True)
    grids = different.reshape(-1, *slices.grid)
    encoder = NetworkEncoder(context.network)
    pixels = []
    for start in range(0, len(grids), DECODED_AT_ONCE):
        pixels.append(encoder.lesion_pixels(grids[start : start + DECODED_AT_ONCE].astype(np.uint16)))
        progress(min(start + DECODED_AT_ONCE, len(grids)), len(grids), "predicted lesions")
    area = np.concatenate(pixels)[place.reshape(-1)]
    heights = np.concatenate([context.records[key].z_mm for key in context.keys])
    volumes = [slices.volume == volume for volume in range(len(slices.keys))]
    return np.concatenate([clear_of_lesions(area[own], heights[own]) for own in volumes])


def _first(distances: NDArray[np.float64], truth: Truth) -> list[NDArray[np.intp]]:
    """The first comparators of each query; fewer where fewer volumes have a lesion-free slice."""
    nearest, keys = nearest_slices(distances, truth)
    keys = np.where(truth.foreign, keys, np.inf)
    order = np.argsort(keys, axis=1, kind="stable")[:, :FIRST]
    return [slices[picks][np.isfinite(row[picks])] for slices, picks, row in zip(nearest, order, keys, strict=True)]


def _figures(
    context: Context, truth: Truth, heights: NDArray[np.float64], found: list[NDArray[np.intp]], draws: Draws
) -> list[Cell]:
    trial = context.trial()
    area = trial.slices.lesion_area
    errors = [np.abs(heights[slices] - heights[place]) for slices, place in zip(found, trial.queries, strict=True)]
    some = np.array([len(slices) > 0 for slices in found], dtype=np.float64)
    means = np.array([values.mean() if len(values) else 0.0 for values in errors])
    free = np.array([np.mean(area[slices] == 0) if len(slices) else 0.0 for slices in found])
    everything = np.concatenate([area[slices] for slices in found])
    error, held = draws.ratio(means, some), everything[everything > 0]
    return [
        error.value,
        error.text(".1f"),
        float(np.median(np.concatenate(errors))),
        draws.ratio(free, some).value,
        float(held.mean()) if len(held) else None,
    ]


def _missed(area: NDArray[np.int64], free: NDArray[np.bool_]) -> tuple[float, float]:
    """Share of slices called free that are not, and of free slices that are called so."""
    return float(np.mean(area[free] > 0)) if free.any() else 0.0, float(np.mean(free[area == 0])) if (
        area == 0
    ).any() else 1.0


PART = Part(
    "comparators",
    "Comparators",
    "Do real lesion-free slices found by normal code show the same level, and are they truly free of lesions?",
    run,
    settings={"version": 2, "first": FIRST},
)
