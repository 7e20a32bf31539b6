"""Worth: does the interval that matches are shown with hold as often as it says?"""

from __future__ import annotations

import numpy as np

from diptych.evaluation.context import Context
from diptych.evaluation.part import Cell, Part, Section, Table, left_out
from diptych.evaluation.worth_trial import known_matches
from diptych.progress import Progress
from diptych.retrieval.match_worth import COVERAGE, WorthTables

WORDS = {"normal": "anatomy", "abnormal": "lesion"}


def run(context: Context, progress: Progress) -> Section:
    """Look at every match of every question, by metric and panel."""
    tables = WorthTables.open(context.model, context.network.fingerprint)
    if tables is None:
        return left_out("nobody has measured what this model's matches are worth; do so with 'diptych fit worth'")
    trial = context.trial(progress)
    metrics = [metric for metric in trial.searcher.offered("abnormal") if (metric, "abnormal") in tables.curves]
    rows: list[list[Cell]] = []
    for (metric, panel), pairs in known_matches(trial, metrics, progress=progress).items():
        curve = tables.curves.get((metric, panel))
        if curve is None:
            continue
        said, low, high = (
            np.interp(pairs.distance, curve.distance, v) for v in (curve.expected, curve.low, curve.high)
        )
        held = float(curve.covers(pairs.distance, pairs.dice).mean())
        off = float(np.abs(said - pairs.dice).mean())
        rows.append([metric, WORDS[panel], held, off, float((high - low).mean()), float(pairs.dice.mean())])
    columns = ("metric", "labels", "held", "mean error", "mean width", "mean Dice")
    table = Table.of(
        "What matches were said to be worth",
        columns,
        rows,
        caption=f"Held: share of matches whose true label Dice lies in the interval they are shown with; it should be "
        f"{COVERAGE:.0%}. All questions of ten slices of each patient, by anatomy, lesion and both, first ten matches.",
        formats={"held": ".1%"},
    )
    numbers = {f"{row[0]} {row[1]}": {"held": row[2], "error": row[3], "width": row[4]} for row in rows}
    best = [row for row in rows if row[0] == metrics[-1]]
    headline = ((f"intervals that hold ({metrics[-1]}: anatomy, lesion)", "  ".join(f"{row[2]:.1%}" for row in best)),)
    return Section((table,), numbers, headline)


PART = Part(
    "worth",
    "What a match is worth",
    "Do the intervals that matches are shown with hold as often as they say?",
    run,
    by_default=False,
    settings={"version": 1},
)
