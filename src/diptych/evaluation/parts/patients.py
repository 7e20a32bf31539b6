"""Whole patients: how alike, in three dimensions, are those that a search for patients finds?

Truth is the Dice of two patients' label maps stacked by height; a search for patients compares decoded maps in the same
way (`retrieval/patient_search.py`). Both go through `overlap`, here over all pairs, without pruning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diptych.archive import VolumeInfo
from diptych.evaluation.bootstrap import Draws
from diptych.evaluation.compare_metrics import Trial
from diptych.evaluation.context import Context
from diptych.evaluation.part import Cell, Part, Section, Table, left_out
from diptych.evaluation.retrieval_score import pack_labels
from diptych.metrics.label_planes import Planes, shared_bits
from diptych.metrics.learned_tables import METRIC as LEARNED
from diptych.progress import Progress
from diptych.retrieval.patient_search import mean_distance, nearest_slices
from diptych.retrieval.volume_search import VolumeSearch
from diptych.search import Filter, Query

FIRST, LONGEST = 5, 10
WORDS = {"normal": "anatomy", "abnormal": "lesion", "both": "both"}
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Lesions:
    """Where the true lesion of each volume lies, in millimetres, and how large it is."""

    centre: Floats
    """`[V, 3]`: to the right of the image's middle, down, up; not a number where there is none."""
    amount: Floats
    """Millilitres, `[V]`."""


def run(context: Context, progress: Progress) -> Section:
    """Compare everybody with everybody, as they are labelled and as they are decoded."""
    trial = context.trial(progress)
    if trial.decoder is None or trial.longest < 1:
        return left_out("this model's codes decode to no labels, or there is nobody to find")
    stacks = _stacks(context)
    asking = trial.slices.volume[trial.queries]
    foreign = trial.truths()["abnormal"].foreign
    decoded = trial.searcher.planes.planes(progress) if trial.searcher.planes is not None else {}
    true, found = {}, {}
    for panel, labels in trial.slices.labels.items():
        if panel in decoded:
            true[panel] = overlap(pack_labels(labels, classes=trial.slices.classes[panel]), stacks, asking)
            found[panel] = overlap(decoded[panel], stacks, asking)
    if {"normal", "abnormal"} <= true.keys():
        for panels in (true, found):
            panels["both"] = (panels["normal"] + panels["abnormal"]) / 2
    draws = Draws.of(trial.person[asking], seed=context.seed)
    top = min(LONGEST, trial.longest)
    rows: list[list[Cell]] = []
    for by in true:
        tables = _by_tables(trial, by, top)
        best = np.argsort(np.where(foreign, -true[by], np.inf), axis=1, kind="stable")[:, :top]
        mine = np.argsort(np.where(foreign, -found[by], np.inf), axis=1, kind="stable")[:, :top]
        oracle = np.take_along_axis(true[by], best, axis=1).mean(axis=1)
        chance = np.where(foreign, true[by], 0).sum(axis=1) / foreign.sum(axis=1)
        for name, order in (("patients in 3-D", mine), ("volumes by tables", tables), ("oracle", best)):
            got = np.take_along_axis(true[by], order, axis=1).mean(axis=1)
            share, gain = draws.ratio(got, oracle), draws.ratio(got - chance, oracle - chance)
            above = gain.value if np.isfinite(gain.value) else None
            rows.append([WORDS[by], name, float(got.mean()), share.value, share.text(".1%"), above])
        rows.append([WORDS[by], "chance", float(chance.mean()), float(chance.mean() / oracle.mean()), "", 0.0])
    order = np.argsort(np.where(foreign, -found["abnormal"], np.inf), axis=1, kind="stable")[:, :FIRST]
    facts = _facts(_lesions(context, trial), asking, order)
    return _section(rows, facts, top)


def overlap(planes: Planes, stacks: Sequence[Mapping[int, int]], asking: NDArray[np.integer]) -> Floats:
    """Mean Dice in three dimensions between some volumes and all, `[Q, V]`.

    Args:
        planes: label maps of all slices.
        stacks: of each volume, the slice at each height.
        asking: volumes that are compared with all.
    """
    by_height: dict[int, list[tuple[int, int]]] = {}
    for volume, stack in enumerate(stacks):
        for height, place in stack.items():
            by_height.setdefault(height, []).append((volume, place))
    amounts = np.array([planes.areas[list(stack.values())].sum(axis=0) for stack in stacks], dtype=np.float64)
    dice = np.empty((len(asking), len(stacks)))
    for row, volume in enumerate(asking.tolist()):
        shared = np.zeros_like(amounts)
        for height, place in stacks[volume].items():
            owners, places = zip(*by_height[height], strict=True)
            shared[list(owners)] += shared_bits(planes.words[place], planes.words[list(places)])
        dice[row] = 1 - mean_distance(shared, amounts[volume] + amounts)
    return dice


def _stacks(context: Context) -> list[dict[int, int]]:
    """Of each volume, the place among all slices of the one at each height."""
    stacks, first = [], 0
    for key in context.keys:
        z_mm = np.asarray(context.records[key].z_mm)
        stacks.append({height: first + place for height, place in nearest_slices(z_mm).items()})
        first += len(z_mm)
    return stacks


def _by_tables(trial: Trial, by: str, top: int) -> NDArray[np.intp]:
    """Volumes that a comparison of aligned slices by the model's tables finds."""
    slices, grid = trial.slices, trial.slices.grid
    infos = [VolumeInfo(str(number), str(number)) for number in range(len(slices.keys))]
    search = VolumeSearch(trial.engine, infos)
    metric = LEARNED if LEARNED in trial.tables.normal else "euclidean"
    rows = []
    for volume in slices.volume[trial.queries].tolist():
        own = slices.volume == volume
        normal, abnormal = (slices.ids[panel][own].reshape(-1, *grid) for panel in ("normal", "abnormal"))
        query = Query(
            normal=normal[0],
            abnormal=abnormal[0],
            by=by,  # type: ignore[arg-type]
            metric=metric,
            top=top,
            where=Filter(exclude_patients=(int(trial.person[volume]),), volumes=trial.references),
        )
        rows.append([int(match.volume.volume_key) for match in search.search(normal, abnormal, query)])
    return np.array(rows, dtype=np.intp)


def _lesions(context: Context, trial: Trial) -> Lesions:
    labels, owner = trial.slices.labels["abnormal"], trial.slices.volume
    _, H, W = labels.shape
    heights = np.concatenate([context.records[key].z_mm for key in context.keys])
    centre, amount = np.full((len(context.keys), 3), np.nan), np.zeros(len(context.keys))
    for volume, key in enumerate(context.keys):
        mine = np.flatnonzero(owner == volume)
        own, z = np.asarray(labels[mine]) > 0, heights[mine]
        place, row, column = np.nonzero(own)
        down, right = (float(step) for step in context.records[key].pixel_spacing)
        if len(place):
            middle = (column.mean() - (W - 1) / 2) * right, (row.mean() - (H - 1) / 2) * down
            centre[volume] = (*middle, z[place].mean())
            amount[volume] = len(place) * down * right * float(np.median(np.diff(z))) / 1000 if len(z) > 1 else 0.0
    return Lesions(centre, amount)


def _facts(lesions: Lesions, asking: NDArray[np.integer], order: NDArray[np.intp]) -> dict[str, float]:
    """How the first that are found by lesion differ from the query."""
    own, others = lesions.centre[asking][:, None], lesions.centre[order]
    both = np.isfinite(own).all(axis=2) & np.isfinite(others).all(axis=2)
    if not both.any():
        return {}
    off = np.abs(others - own)
    ratio = np.log2(np.maximum(lesions.amount[order], 1e-3) / np.maximum(lesions.amount[asking][:, None], 1e-3))
    return {
        "same_side": float(np.mean((np.sign(others[..., 0]) == np.sign(own[..., 0]))[both])),
        "level_mm_median": float(np.median(off[..., 2][both])),
        "level_mm_p90": float(np.quantile(off[..., 2][both], 0.9)),
        "centroid_mm_median": float(np.median(np.linalg.norm(others - own, axis=2)[both])),
        "volume_factor_median": float(2 ** np.median(np.abs(ratio[both]))),
    }


def _section(rows: list[list[Cell]], facts: dict[str, float], top: int) -> Section:
    columns = ("by", "found as", "3-D Dice", "of oracle", "95 %", "of the gain over chance")
    table = Table.of(
        f"The first {top} patients",
        columns,
        rows,
        caption="Dice of two patients' true label maps stacked by height (one slice every 4 mm), mean over the classes "
        "that either has, in the space that the scans share. Oracle: ordered by that Dice itself.",
        formats={"of oracle": ".1%", "of the gain over chance": ".1%"},
    )
    names = {
        "same_side": "on the same side",
        "level_mm_median": "level, median difference in mm",
        "level_mm_p90": "level, 90th percentile in mm",
        "centroid_mm_median": "centroid, median distance in mm",
        "volume_factor_median": "volume, median factor",
    }
    about = Table.of(f"The first {FIRST} by lesion", ("", "value"), [(names[key], facts[key]) for key in facts])
    mine = {str(row[0]): row for row in rows if row[1] == "patients in 3-D"}
    numbers = {by: {"dice": row[2], "of_oracle": row[3], "of_gain": row[5]} for by, row in mine.items()}
    headline = tuple((by, f"{row[3]:.1%} of oracle in 3-D Dice") for by, row in mine.items())
    return Section((table, about), {**numbers, "first": facts}, headline)


PART = Part(
    "patients",
    "Whole patients",
    "How alike, in three dimensions, are the patients that a search for patients finds?",
    run,
    settings={"version": 1, "first": FIRST},
)
