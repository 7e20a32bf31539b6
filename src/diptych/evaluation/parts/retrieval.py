"""The retrieval table of section 4.4.6: normal, abnormal and both by every metric, beside oracle and chance."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure as Plot

from diptych.evaluation.contender import PAPER_METRICS, Answers, own_answers, raw_sum_answers
from diptych.evaluation.context import Context
from diptych.evaluation.judge import CONVENTION, Judge
from diptych.evaluation.part import Block, Cell, Figure, Part, Section, Table, Words
from diptych.evaluation.retrieval_score import ABSENT, Absent
from diptych.progress import Progress

PAPER = {
    "normal": {"euclidean": 0.50, "angular": 0.47, "hamming": 0.48, "oracle": 0.62},
    "abnormal": {"euclidean": 0.28, "angular": 0.27, "hamming": 0.28, "oracle": 0.37},
    "both": {"euclidean": 0.20, "angular": 0.30, "hamming": 0.23, "oracle": 0.42},
}
"""Dice at top-10 in the paper's table, network 8×8 with distribution matching, its own patients."""

SUBJECTS = {
    "normal": "normal (S_normal, anatomy Dice)",
    "abnormal": "abnormal (S_abnormal, lesion Dice)",
    "both": "both (S_sum, mean of the two)",
}
RAW = ", raw sum"
COLOURS = ("#0072b2", "#56b4e9", "#009e73", "#e69f00", "#d55e00", "#cc79a7")


def run(context: Context, progress: Progress) -> Section:
    """Search by every metric, then judge in both conventions."""
    answers = own_answers(context, progress)
    trial = context.trial()
    judge = Judge(trial, seed=context.seed)
    blocks: list[Block] = [Words(_protocol(context, judge))]
    rows = {by: [*answers, *(raw_sum_answers(context) if by == "both" else [])] for by in trial.bys}
    numbers: dict[str, Any] = {}
    for absent in ABSENT:
        numbers[absent] = {}
        for by in trial.bys:
            blocks.append(_table(judge, rows[by], by, absent))
            numbers[absent][by] = _numbers(judge, rows[by], by, absent)
    blocks.insert(1, _figure(judge, answers))
    return Section(tuple(blocks), numbers, tuple(_headline(judge, answers)))


def _protocol(context: Context, judge: Judge) -> str:
    queries, volumes = len(judge.trial.queries), len(context.references)
    return (
        f"Each of {queries} query patients asks with the slice of its largest lesion; of each of up to {volumes} "
        "reference patients the best slice is found, the query's own patient never. Figures are label Dice in % of "
        "what an oracle reaches that searches by the Dice itself; intervals draw the patients anew (bootstrap, 95 %). "
        "The paper's figures come from other patients and another archive size, so only shares of the oracle compare, "
        "and those roughly."
    )


def _table(judge: Judge, answers: list[Answers], by: str, absent: Absent) -> Table:
    rows: list[list[Cell]] = []
    for one in answers:
        rows.append([_name(one.name), *judge.row(judge.judge(one, by, absent)), *_paper(by, one.name)])
    rows.append(["oracle", *judge.row(judge.oracle(by, absent)), *_paper(by, "oracle")])
    rows.append(["random", *judge.row(judge.chance(by, absent)), None, None])
    beside = ("paper, Dice top-10", "paper, % of oracle")
    return Table.of(
        f"Search by {SUBJECTS[by]}; {'absent classes left out' if absent == 'left out' else 'absent classes 0'}",
        ["metric", *judge.columns(), *beside],
        rows,
        caption=f"Top-1 … top-{judge.tops[-1]}: % of oracle. Here {CONVENTION[absent]}.",
        formats={**judge.formats(), beside[0]: ".2f", beside[1]: ".0%"},
        paper=beside,
    )


def _name(metric: str) -> str:
    return f"{metric} {PAPER_METRICS[metric]}" if metric in PAPER_METRICS else metric


def _paper(by: str, metric: str) -> tuple[float | None, float | None]:
    """The paper's Dice and its share of the oracle; the paper's sum is the raw one."""
    row = metric.removesuffix(RAW) if by != "both" or metric.endswith(RAW) or metric == "oracle" else None
    dice = None if row is None else PAPER[by].get(row)
    return dice, None if dice is None else dice / PAPER[by]["oracle"]


def _numbers(judge: Judge, answers: list[Answers], by: str, absent: Absent) -> dict[str, Any]:
    rows = {one.name: judge.judge(one, by, absent) for one in answers}
    rows |= {"oracle": judge.oracle(by, absent), "random": judge.chance(by, absent)}
    return {name: {str(top): one.numbers() for top, one in row.items()} for name, row in rows.items()}


def _headline(judge: Judge, answers: list[Answers]) -> list[tuple[str, str]]:
    lines = [("% of oracle, absent classes left out", " ".join(f"{f'top-{top}':>7}" for top in judge.tops))]
    for by in judge.trial.bys:
        for one in answers:
            shares = [judged.share.value for judged in judge.judge(one, by, "left out").values()]
            lines.append((f"{by} {one.name}", " ".join(f"{share:7.1%}" for share in shares)))
    return lines


def _figure(judge: Judge, answers: list[Answers]) -> Figure:
    """Shares of the oracle at every top, with their intervals."""
    bys = judge.trial.bys
    plot = Plot(figsize=(3.2 * len(bys) + 1.8, 3.4), layout="constrained")
    axes = plot.subplots(1, len(bys), sharey=True, squeeze=False)[0]
    for axis, by in zip(axes, bys, strict=True):
        for number, one in enumerate(answers):
            judged = judge.judge(one, by, "left out").values()
            places = [place + 0.09 * (number - (len(answers) - 1) / 2) for place in range(len(judge.tops))]
            middle = [100 * item.share.value for item in judged]
            reach = [[100 * (item.share.value - item.share.low) for item in judged]]
            reach.append([100 * (item.share.high - item.share.value) for item in judged])
            colour = COLOURS[number % len(COLOURS)]
            axis.errorbar(places, middle, yerr=reach, fmt="o", ms=4, lw=1.2, color=colour, label=_name(one.name))
        chance = [100 * item.share.value for item in judge.chance(by, "left out").values()]
        axis.plot(range(len(chance)), chance, color="#888888", ls=":", marker="_", label="random")
        axis.set_xticks(range(len(judge.tops)), [f"top-{top}" for top in judge.tops])
        axis.set_title(f"search by {by}", fontsize=10)
        axis.grid(axis="y", color="#dddddd", lw=0.6)
        axis.set_ylim(0, 105)
    axes[0].set_ylabel("label Dice, % of oracle")
    plot.legend(*axes[-1].get_legend_handles_labels(), fontsize=8, loc="outside right center", frameon=False)
    caption = "Absent classes left out; bars are 95 % intervals over patients."
    return Figure.of_plot("Share of the oracle", plot, caption=caption)


PART = Part(
    "retrieval",
    "Retrieval",
    "How much of what an oracle would find does each metric find, by anatomy, by lesion, and by both?",
    run,
    settings={"version": 2},
)
