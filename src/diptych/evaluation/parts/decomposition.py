"""Decomposition in two numbers: what the normal panel knows of the lesion, and the abnormal one of the anatomy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from diptych.evaluation.context import Context
from diptych.evaluation.part import Cell, Part, Section, Table, Words
from diptych.evaluation.probe import HEIGHTS, Cells, what_codes_know
from diptych.progress import Progress

PANELS = ("normal", "abnormal")
KNOWLEDGE = {"abnormal": "lesion", "normal": "anatomy"}
"""What each panel's labels are called."""
FEWEST = 6
"""Patients that a probe needs: two to count, two to weigh, two to judge."""


def run(context: Context, progress: Progress) -> Section:
    """Probe both panels for both kinds of labels."""
    slices = context.slices(progress)
    if len(slices.keys) < FEWEST:
        return Section((Words(f"A probe needs {FEWEST} patients; there are {len(slices.keys)}."),), {})
    position = np.concatenate([context.records[key].position for key in context.keys])
    height = (np.asarray(position) * HEIGHTS).astype(np.int64).clip(0, HEIGHTS - 1)
    quiet = _commonest(slices.ids["abnormal"])
    known: dict[str, dict[str, float]] = {}
    for panel in PANELS:
        for labelled, name in KNOWLEDGE.items():
            if labelled not in slices.labels:
                continue
            labels = slices.labels[labelled]
            marked = presence(labels, slices.grid) if labelled == "abnormal" else majority(labels, slices.grid)
            cells = Cells(slices.ids[panel], marked, height, slices.volume)
            classes = 2 if labelled == "abnormal" else int(labels.max()) + 1
            share = what_codes_know(
                cells, codes=context.network.config.codebook_size, classes=classes, seed=context.seed
            )
            known.setdefault(panel, {})[name] = share
            progress(len(known), len(PANELS), f"{panel} codes, {name}")
    quiet_share = float(np.mean(slices.ids["abnormal"] == quiet))
    healthy = presence(slices.labels["abnormal"], slices.grid) == 0
    quiet_healthy = float(np.mean(slices.ids["abnormal"][healthy] == quiet))
    quiet_lesion = float(np.mean(slices.ids["abnormal"][~healthy] == quiet))
    columns = ("panel", *(f"knows of the {name}" for name in KNOWLEDGE.values()))
    rows: list[list[Cell]] = [[panel, *(known[panel].get(name) for name in KNOWLEDGE.values())] for panel in PANELS]
    table = Table.of(
        "What the codes of a cell know",
        columns,
        rows,
        caption="Share of the uncertainty about a cell's label, left by its place in the frame and the height of its "
        "slice, that its code removes for patients the probe has not seen. In a clean decomposition the normal panel "
        "knows nothing of the lesion and the abnormal one nothing of the anatomy; the other two figures say what a "
        "panel knows of its own labels, by one cell alone.",
        formats={column: ".1%" for column in columns[1:]},
    )
    words = Words(
        f"The commonest abnormal code stands in {quiet_share:.1%} of all cells, in {quiet_healthy:.1%} of those that "
        f"hold no lesion and in {quiet_lesion:.1%} of those that do."
    )
    headline = [("what the normal panel knows of the lesion", f"{known['normal']['lesion']:.1%}")]
    if "anatomy" in known["abnormal"]:
        headline.append(("what the abnormal panel knows of the anatomy", f"{known['abnormal']['anatomy']:.1%}"))
    headline.append(
        ("cells with the commonest abnormal code: healthy, lesion", f"{quiet_healthy:.1%}  {quiet_lesion:.1%}")
    )
    numbers = {"known": known, "commonest": {"all": quiet_share, "healthy": quiet_healthy, "lesion": quiet_lesion}}
    return Section((table, words), numbers, tuple(headline))


def presence(labels: NDArray[np.integer], grid: tuple[int, int]) -> NDArray[np.int64]:
    """1 for cells that hold any labelled pixel of `[N, H, W]`, else 0, `[N, P]`."""
    return np.asarray(_blocks(labels, grid).any(axis=-1), dtype=np.int64)


def majority(labels: NDArray[np.integer], grid: tuple[int, int]) -> NDArray[np.int64]:
    """The label that fills most of each cell, the smallest where there are several, `[N, P]`."""
    blocks = _blocks(labels, grid)
    counts = np.stack([np.count_nonzero(blocks == label, axis=-1) for label in range(int(labels.max()) + 1)])
    return np.asarray(counts.argmax(axis=0), dtype=np.int64)


def _blocks(labels: NDArray[np.integer], grid: tuple[int, int]) -> NDArray[np.integer]:
    """`[N, H, W]` cut into cells, `[N, P, pixels]`."""
    count, height, width = labels.shape
    rows, columns = grid
    cut = labels.reshape(count, rows, height // rows, columns, width // columns)
    return cut.transpose(0, 1, 3, 2, 4).reshape(count, rows * columns, -1)


def _commonest(ids: NDArray[np.integer]) -> int:
    return int(np.bincount(ids.ravel().astype(np.int64)).argmax())


PART = Part(
    "decomposition",
    "Decomposition",
    "What does the normal panel know of the lesion, and the abnormal panel of the anatomy?",
    run,
    settings={"version": 1},
)
