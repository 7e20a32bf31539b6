"""How the model fails: how often in each way, and a picture of the worst slice of each.

Pictures show the evaluated patients: the report is to be guarded like their images. Evaluate phantoms to get
pictures that may be shown.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from diptych.evaluation.context import Context
from diptych.evaluation.decomposed import DecomposedPatient
from diptych.evaluation.failures import KINDS, Failing, find_failures
from diptych.evaluation.panels import Tile, draw_panel
from diptych.evaluation.part import Block, Cell, Figure, Part, Section, Table, Words
from diptych.figures import CHANNEL_TITLES, LESION_COLOURS
from diptych.progress import Progress

__all__ = ["PART"]

SHOWN = ("t1gd", "flair")
Row = NDArray[np.floating]


def run(context: Context, progress: Progress) -> Section:
    found: dict[str, Mapping[str, Failing]] = {}
    for place, key in enumerate(context.queries, start=1):
        found[key] = find_failures(context.decomposed(key))
        progress(place, len(context.queries), "failures")
    totals = {name: _total([one[name] for one in found.values()]) for name in KINDS}
    blocks: list[Block] = [
        Words("Pictures show the evaluated patients: guard this page as you guard their images."),
        _table(totals),
    ]
    for name in KINDS:
        key = max(found, key=lambda key: np.nan_to_num(found[key][name].severity, nan=-1.0))
        if totals[name]["failed"]:
            blocks.append(_picture(context, name, key, found[key][name]))
    lines = [(KINDS[name].title, f"{one['failed']} of {one['asked']} slices") for name, one in totals.items()]
    return Section(tuple(blocks), totals, tuple(lines))


def _total(all_of_a_kind: list[Failing]) -> dict[str, int]:
    return {
        "asked": sum(one.asked for one in all_of_a_kind),
        "failed": sum(one.failed for one in all_of_a_kind),
        "patients": sum(one.failed > 0 for one in all_of_a_kind),
    }


def _table(totals: Mapping[str, Mapping[str, int]]) -> Table:
    rows: list[list[Cell]] = []
    for name, one in totals.items():
        share = one["failed"] / one["asked"] if one["asked"] else None
        rows.append([KINDS[name].title, KINDS[name].rule, one["asked"], one["failed"], share, one["patients"]])
    return Table.of(
        "Ways to fail",
        ("what happens", "counted where", "slices asked", "failed", "share", "patients"),
        rows,
        caption="A slice is asked where the failure is possible at all; only phantoms have true twins.",
        formats={"share": ".1%"},
    )


def _picture(context: Context, name: str, key: str, failing: Failing) -> Figure:
    """Image, reconstruction, healthy twin and, where there is one, the true twin of the worst slice."""
    patient, kind = context.decomposed(key), KINDS[name]
    images = {"image": patient.images, "reconstruction": patient.reconstruction, "healthy twin": patient.healthy_twin}
    labels = {"image": patient.lesion, "reconstruction": patient.predicted_lesion}
    below = {"image": "true labels", "reconstruction": "predicted labels"}
    if patient.twin is not None:
        images["true twin"] = patient.twin
    tiles = [
        _tile(context, patient, failing.worst, title, below.get(title, ""), image[failing.worst], labels.get(title))
        for title, image in images.items()
    ]
    return Figure.of_image(
        kind.title,
        draw_panel(tiles, colours={"lesion": LESION_COLOURS}, pixel_spacing=patient.record.pixel_spacing),
        caption=f"{key}, slice {failing.worst}: the worst of all by {kind.measure}, {failing.severity:.3g}.",
    )


def _tile(
    context: Context,
    patient: DecomposedPatient,
    place: int,
    title: str,
    subtitle: str,
    image: NDArray[np.float16],
    labels: NDArray[np.uint8] | None,
) -> Tile:
    channels = context.homes[patient.key].channels
    shown = [name for name in SHOWN if name in channels] or list(channels[:1])
    rows: dict[str, Row] = {CHANNEL_TITLES.get(name, name): image[channels.index(name)] for name in shown}
    rows["lesion"] = image[channels.index(shown[-1])]
    return Tile(title, subtitle, rows, {} if labels is None else {"lesion": labels[place]})


PART = Part(
    "failures",
    "Failures",
    "In which ways the model fails, how often, and what that looks like.",
    run,
    settings={"version": 1},
)
