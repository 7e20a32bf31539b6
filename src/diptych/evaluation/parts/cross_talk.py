"""Cross-talk: a decomposition is one only if a search by one panel ignores the other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from diptych.evaluation.contender import own_answers
from diptych.evaluation.context import Context
from diptych.evaluation.judge import Judge
from diptych.evaluation.part import Cell, Part, Section, Table, Words, left_out
from diptych.evaluation.retrieval_score import best_volumes
from diptych.progress import Progress

OTHER = {"normal": "abnormal", "abnormal": "normal"}
WORDS = {"normal": "anatomy", "abnormal": "lesion"}


def run(context: Context, progress: Progress) -> Section:
    """Judge what each search found by the labels that it should not look at."""
    trial = context.trial(progress)
    if "normal" not in trial.bys:
        return left_out("cross-talk needs patients with anatomy labels, and not every patient has some")
    answers = own_answers(context, progress)
    judge = Judge(trial, seed=context.seed)
    top = judge.tops[-1]
    tables, numbers, headline = [], {}, []
    for by, other in OTHER.items():
        truth = trial.truths()[other]
        levels = {
            f"oracle by {WORDS[by]}": best_volumes(-trial.truths()[by].dice, trial.truths()[by])[:, :top],
            f"oracle by {WORDS[other]}": best_volumes(-truth.dice, truth)[:, :top],
        }
        found = {one.name: one.found[by][:, :top] for one in answers} | levels
        dice = {name: np.take_along_axis(truth.dice, rows, axis=1).mean(axis=1) for name, rows in found.items()}
        dice["random"] = truth.chance
        floor, ceiling = float(dice[f"oracle by {WORDS[by]}"].mean()), float(dice[f"oracle by {WORDS[other]}"].mean())
        rows: list[list[Cell]] = []
        for name, values in dice.items():
            mean = judge.draws.mean(values)
            reached = (mean.value - floor) / (ceiling - floor) if ceiling > floor else float("nan")
            rows.append([name, mean.value, mean.text(), reached])
        numbers[by] = {str(row[0]): row[1] for row in rows}
        tables.append(
            Table.of(
                f"Search by {by}: {WORDS[other]} Dice of the first {top}",
                ("metric", "Dice", "95 %", "of the way to a search by the other panel"),
                rows,
                caption=f"Nothing but {WORDS[by]} is asked for. 'oracle by {WORDS[by]}' finds the best {WORDS[by]} and "
                f"knows nothing of {WORDS[other]}: that is where a search without cross-talk lies (0 %). Absent "
                "classes left out.",
                formats={"of the way to a search by the other panel": ".0%"},
            )
        )
        best = answers[-1].name
        headline.append((f"by {by}: {WORDS[other]} Dice ({best}, level, random)", _three(dice, best, by)))
    words = Words(
        "Lesions of like place and size lie at like levels of the brain, so a perfect search by lesion finds somewhat "
        "like anatomy without looking at it; that, not chance, is the level to compare with."
    )
    return Section((words, *tables), numbers, tuple(headline))


def _three(dice: dict[str, NDArray[np.floating]], best: str, by: str) -> str:
    return f"{dice[best].mean():.3f}  {dice[f'oracle by {WORDS[by]}'].mean():.3f}  {dice['random'].mean():.3f}"


PART = Part(
    "cross_talk",
    "Cross-talk",
    "Does a search by one panel ignore the other?",
    run,
    settings={"version": 1},
)
