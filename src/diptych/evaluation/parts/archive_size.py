"""Retrieval against archive size: with more patients the best match gets better; does the search keep up?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Plot
from numpy.typing import NDArray

from diptych.evaluation.contender import own_metrics
from diptych.evaluation.context import Context
from diptych.evaluation.part import Cell, Figure, Part, Section, Table, left_out
from diptych.evaluation.retrieval_score import Truth, nearest_slices
from diptych.progress import Progress

FIRST = 3
REPEATS = 12
SMALLEST = 5
COLOURS = {"euclidean": "#0072b2", "learned": "#e69f00", "overlap": "#d55e00", "fusion": "#cc79a7", "oracle": "#222222"}


def run(context: Context, progress: Progress) -> Section:
    """Draw archives of several sizes from the references and search each."""
    trial = context.trial(progress)
    volumes = np.flatnonzero(np.ones(len(trial.slices.keys), bool) if trial.references is None else trial.references)
    if len(volumes) <= SMALLEST:
        return left_out(f"{len(volumes)} reference patients are too few to draw smaller archives from")
    metrics = [metric for metric in own_metrics(trial) if metric in COLOURS]
    draws = list(_draw(volumes, context.seed))
    curves: dict[str, dict[str, list[float]]] = {}
    for done, by in enumerate(trial.bys, start=1):
        truth = trial.truths()[by]
        distances = {metric: trial.distances(metric, by) for metric in metrics}
        distances["oracle"] = -truth.dice.astype(np.float64)
        curves[by] = {name: _curve(rows, truth, draws) for name, rows in distances.items()}
        progress(done, len(trial.bys), by)
    counts = sizes(len(volumes))
    tables = [_table(by, curve, counts) for by, curve in curves.items()]
    numbers: dict[str, Any] = {"patients": counts, "dice": curves}
    last = metrics[-1]
    headline = [
        (f"{by} {last}, % of oracle, {counts[0]} … {counts[-1]} patients", _shares(curve, last))
        for by, curve in curves.items()
    ]
    return Section((_figure(curves, counts), *tables), numbers, tuple(headline))


def sizes(volumes: int) -> list[int]:
    """Doubling from the smallest to all.

    >>> sizes(40)
    [5, 10, 20, 40]
    """
    found = [SMALLEST]
    while found[-1] * 2 < volumes:
        found.append(found[-1] * 2)
    return [*found, volumes] if found[-1] < volumes else found


def mean_of_first(distances: NDArray[np.float64], truth: Truth, chosen: NDArray[np.bool_], first: int) -> float:
    """Mean Dice of the first volumes found among the chosen ones `[V]`, over queries that can find so many."""
    nearest, keys = nearest_slices(distances, truth)
    allowed = truth.foreign & chosen
    order = np.argsort(np.where(allowed, keys, np.inf), axis=1, kind="stable")[:, :first]
    dice = np.take_along_axis(truth.dice, np.take_along_axis(nearest, order, axis=1), axis=1)
    enough = allowed.sum(axis=1) >= first
    return float(dice[enough].mean()) if enough.any() else float("nan")


def _draw(volumes: NDArray[np.intp], seed: int) -> Iterator[list[NDArray[np.intp]]]:
    """For each size some archives; of the full size there is one."""
    rng = np.random.default_rng(seed)
    for size in sizes(len(volumes)):
        repeats = 1 if size == len(volumes) else REPEATS
        yield [rng.choice(volumes, size, replace=False) for _ in range(repeats)]


def _curve(distances: NDArray[np.float64], truth: Truth, draws: list[list[NDArray[np.intp]]]) -> list[float]:
    curve = []
    for archives in draws:
        means = []
        for archive in archives:
            chosen = np.zeros(len(truth.starts), dtype=np.bool_)
            chosen[archive] = True
            means.append(mean_of_first(distances, truth, chosen, FIRST))
        curve.append(float(np.nanmean(means)))
    return curve


def _table(by: str, curve: dict[str, list[float]], counts: list[int]) -> Table:
    rows: list[list[Cell]] = [[name, *values] for name, values in curve.items()]
    best = curve["oracle"]
    rows += [
        [f"{name}, % of oracle", *(f"{value / top:.1%}" for value, top in zip(values, best, strict=True))]
        for name, values in curve.items()
        if name != "oracle"
    ]
    return Table.of(
        f"Search by {by}",
        ("metric", *(f"{count} patients" for count in counts)),
        rows,
        caption=f"Mean label Dice of the first {FIRST}, absent classes left out; smaller archives are {REPEATS} random "
        "draws of reference patients. The largest holds the query's own patient too, which is never found.",
    )


def _shares(curve: dict[str, list[float]], metric: str) -> str:
    pairs = zip(curve[metric], curve["oracle"], strict=True)
    return "  ".join(f"{value / best:.1%}" for value, best in pairs)


def _figure(curves: dict[str, dict[str, list[float]]], counts: list[int]) -> Figure:
    plot = Plot(figsize=(3.6 * len(curves) + 0.6, 3.2), layout="constrained")
    axes = plot.subplots(1, len(curves), squeeze=False)[0]
    for axis, (by, curve) in zip(axes, curves.items(), strict=True):
        for name, values in curve.items():
            style = "--" if name == "oracle" else "-"
            axis.plot(counts, values, style, marker="o", ms=3.5, color=COLOURS[name], label=name)
        axis.set_xscale("log")
        axis.set_xticks(counts, [str(count) for count in counts])
        axis.minorticks_off()
        axis.set_ylim(0, None)
        axis.set_title(f"search by {by}", fontsize=10)
        axis.set_xlabel("patients in the archive")
        axis.grid(color="#dddddd", lw=0.6)
    axes[0].set_ylabel(f"label Dice of the first {FIRST}")
    axes[0].legend(fontsize=7.5, frameon=False)
    return Figure.of_plot("Dice against archive size", plot)


PART = Part(
    "archive_size",
    "Archive size",
    "Does retrieval gain from a larger archive as the oracle does?",
    run,
    settings={"version": 2, "first": FIRST, "repeats": REPEATS},
)
