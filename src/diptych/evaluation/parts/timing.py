"""The paper's own timing (appendix F): all K×K distances between codes by the two functions of its listing F.1.

What a search costs is another question: `diptych.search` looks distances up in tables (docs/explanation/search.md).
"""

from __future__ import annotations

from diptych.evaluation.context import Context
from diptych.evaluation.part import Part, Section, Table
from diptych.evaluation.parts.codebooks import codebooks_of
from diptych.hashing import binarise, optimise, time_distances
from diptych.progress import Progress

PAPER = {"normal": 0.483, "abnormal": 0.645}
REPEATS = 5
CAPTION = (
    f"Mean of {REPEATS} repeats on this machine, one core; 1 - t_H/t_E as in the paper, whose codebooks have 512 codes "
    "and whose binary codes have 789 and 292 bits. The command 'diptych hash' prints the same."
)


def run(context: Context, progress: Progress) -> Section:
    rows, numbers = [], {}
    for panel, codebook in codebooks_of(context.network).items():
        shortened = optimise(binarise(codebook), seed=context.seed)
        timing = time_distances(codebook, shortened, repeats=REPEATS, progress=progress)
        numbers[panel] = {**vars(timing), "reduction": timing.reduction, "bits": shortened.bits}
        rows.append((panel, shortened.bits, timing.euclidean, timing.hamming, timing.reduction, PAPER[panel]))
    table = Table.of(
        "Listing F.1",
        ("codebook", "bits", "Euclid, s", "Hamming, s", "1 - t_H/t_E", "paper"),
        rows,
        caption=CAPTION,
        formats={"1 - t_H/t_E": ".1%", "paper": ".1%"},
        paper=("paper",),
    )
    headline = [(f"{panel} codes: time saved by Hamming", f"{v['reduction']:.1%}") for panel, v in numbers.items()]
    return Section((table,), numbers, tuple(headline))


PART = Part(
    "timing",
    "Timing of distances",
    "How much quicker the paper's Hamming distance is.",
    run,
    settings={"version": 1},
    needs_lesions=False,
)
