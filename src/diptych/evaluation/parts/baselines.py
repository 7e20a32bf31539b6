"""What a user would pick instead, in the same harness and the same table, with what each keeps and costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from diptych.evaluation.baseline_answers import Skipped, baseline_answers, fitting_keys
from diptych.evaluation.contender import OURS, Answers, own_answers
from diptych.evaluation.context import Context
from diptych.evaluation.judge import CONVENTION, Judge, spoken
from diptych.evaluation.part import Block, Cell, Part, Section, Table, Words
from diptych.progress import Progress


def run(context: Context, progress: Progress) -> Section:
    """Judge Diptych's metrics and everything else alike."""
    own = own_answers(context, progress)
    tried = baseline_answers(context, progress)
    others = [one for one in tried if isinstance(one, Answers)]
    judge = Judge(context.trial(), seed=context.seed)
    ours = next((one for one in own if one.name == OURS), own[-1])
    blocks: list[Block] = [Words(_setting(context, ours))]
    blocks += [Words(f"Left out: {one.name}, because {one.reason}.") for one in tried if isinstance(one, Skipped)]
    blocks += [Words(line) for line in verdicts(judge, ours, others)]
    blocks += [_table(judge, [*own, *others], ours, by) for by in judge.trial.bys]
    blocks.append(_methods([*own, *others]))
    numbers = {by: {one.name: _numbers(judge, one, ours, by) for one in [*own, *others]} for by in judge.trial.bys}
    return Section(tuple(blocks), numbers, tuple(_headline(judge, ours, others)))


def verdicts(judge: Judge, ours: Answers, others: list[Answers]) -> list[str]:
    """In words, for each way of searching: who is beaten, who is level, who wins."""
    lines, top = [], judge.tops[-1]
    for by in judge.trial.bys:
        gains = {one.name: judge.difference(ours, one, by, "left out", top) for one in others}
        beaten = [name for name, gain in gains.items() if gain.certain > 0]
        level = [name for name, gain in gains.items() if gain.certain == 0]
        better = [name for name, gain in gains.items() if gain.certain < 0]
        line = f"Search by {by}: {ours.name} finds more than {spoken(beaten)}" if beaten else f"Search by {by}:"
        if not beaten:
            line += f" {ours.name} beats no baseline for certain"
        if level:
            line += f"; no certain difference from {spoken(level)}"
        if better:
            line += f". A baseline wins here: {spoken(better)} finds more than {ours.name}"
        lines.append(f"{line} (top-{top}, 95 %).")
    return lines


def _setting(context: Context, ours: Answers) -> str:
    keys = fitting_keys(context)
    where = "patients on neither list" if context.others else "the reference patients themselves, there being no others"
    return (
        f"All rows answer the same queries and are judged alike. Gains compare {ours.name} with each row, query by "
        f"query (paired bootstrap over patients). PCA and autoencoder were fitted to {len(keys)} {where}, the "
        f"autoencoder on {context.autoencoder_images} images (--autoencoder-images: give it as many as the network has "
        "seen to compare like with like). Bytes are "
        "what an archive keeps of a slice; times are CPU time: to read one image, then to search all slices."
    )


def _table(judge: Judge, answers: list[Answers], ours: Answers, by: str) -> Table:
    top = judge.tops[-1]
    rows: list[list[Cell]] = []
    for one in answers:
        judged = judge.judge(one, by, "left out")
        gain = judge.difference(ours, one, by, "left out", top)
        difference = None if one is ours else f"{100 * gain.value:+.1f} [{100 * gain.low:+.1f}, {100 * gain.high:+.1f}]"
        shares = [judged[count].share.value for count in judge.tops]
        costs = (one.bytes_per_slice[by], 1000 * one.read_seconds, 1000 * one.search_seconds[by])
        alike = [judge.judge(replace(one, found=ways), by, "left out")[top] for ways in (one.alone, one.together)]
        fair = [judged_way.share.value for judged_way in alike]
        rows.append([one.name, *shares, judged[top].share.text(".1%"), *fair, judged[top].text(), difference, *costs])
    for name, judged in (("oracle", judge.oracle(by, "left out")), ("chance, expected", judge.chance(by, "left out"))):
        shares = [judged[count].share.value for count in judge.tops]
        rows.append([name, *shares, judged[top].share.text(".1%"), *[None] * 2, judged[top].text(), *[None] * 4])
    columns = [
        "method",
        *(f"top-{count}" for count in judge.tops),
        f"top-{top}, 95 % interval",
        f"top-{top}, slices alone",
        f"top-{top}, neighbours' say",
        f"Dice top-{top}, mean ± sd",
        f"{ours.name} gains, points",
        "bytes per slice",
        "read, ms",
        "search, ms",
    ]
    percent = dict.fromkeys(columns[len(judge.tops) + 2 :][:2], ".1%")
    formats = {**judge.formats(), **percent, "bytes per slice": ".0f", "read, ms": ".1f", "search, ms": ".2f"}
    caption = f"Label Dice in % of the oracle; {CONVENTION['left out']}. Gains at top-{top} with 95 % intervals. "
    caption += (
        "Overlap and fusion average over neighbouring slices; two columns treat all alike, with and without that."
    )
    return Table.of(f"Search by {by}", columns, rows, caption=caption, formats=formats)


def _methods(answers: list[Answers]) -> Table:
    return Table.of("What each compares", ("method", "compares"), [(one.name, one.about) for one in answers])


def _numbers(judge: Judge, one: Answers, ours: Answers, by: str) -> dict[str, Any]:
    gain = judge.difference(ours, one, by, "left out", judge.tops[-1])
    return {
        "tops": {str(top): judged.numbers() for top, judged in judge.judge(one, by, "left out").items()},
        "gain_of_ours": {"metric": ours.name, "value": gain.value, "interval": [gain.low, gain.high]},
        "bytes_per_slice": one.bytes_per_slice[by],
        "read_seconds": one.read_seconds,
        "search_seconds": one.search_seconds[by],
    }


def _headline(judge: Judge, ours: Answers, others: list[Answers]) -> list[tuple[str, str]]:
    """Share of the oracle at the largest top, by what is searched."""
    top = judge.tops[-1]
    lines = [(f"% of oracle at top-{top}", " ".join(f"{by:>9}" for by in judge.trial.bys))]
    for one in (ours, *others):
        shares = [judge.judge(one, by, "left out")[top].share.value for by in judge.trial.bys]
        lines.append((one.name, " ".join(f"{share:9.1%}" for share in shares)))
    return lines


PART = Part(
    "baselines",
    "What else one could use",
    "Does anything simpler find as much?",
    run,
    settings={"version": 2},
)
