"""How the model fails: how often in each way, and a picture of the worst slice of each.

Pictures show the evaluated patients: the report is to be guarded like their images. Evaluate phantoms to get
pictures that may be shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diptych.drawing.sheet import CHANNEL_TITLES
from diptych.evaluation.context import Context
from diptych.evaluation.evaluation_data import DecomposedPatient
from diptych.evaluation.part import Block, Cell, Figure, Part, Section, Table, Words
from diptych.evaluation.result_strip import Tile, draw_panel
from diptych.progress import Progress
from diptych.slices import FILL

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
        draw_panel(
            tiles,
            colours={"lesion": context.network.description.lesion_colours},
            pixel_spacing=patient.record.pixel_spacing,
        ),
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


SEEN = 20
"""Pixels of a lesion from which on a reader would see it in the slice."""
BRAIN_SHARE = 0.1
"""Of the frame: a slice with less brain in it than that has little to reconstruct."""

Figures = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Failing:
    """One kind of failure on one patient."""

    asked: int
    """Slices where it could happen."""
    failed: int
    """Slices where it did."""
    worst: int
    """The slice where it is worst; -1 where it could happen on none."""
    severity: float
    """How bad it is there, in the kind's own measure; only compares within the kind."""


@dataclass(frozen=True)
class Kind:
    """A way to fail."""

    title: str
    rule: str
    """When a slice counts as failed, in words."""
    measure: str
    """What severity is."""
    severities: Callable[[DecomposedPatient], Figures]
    """Severity of each slice, `[Z]`; not a number where it cannot happen."""
    limit: float
    """A slice above this severity has failed."""


def find_failures(patient: DecomposedPatient) -> Mapping[str, Failing]:
    """Every kind of failure on a patient, by name."""
    return {name: _find(kind, patient) for name, kind in KINDS.items()}


def _find(kind: Kind, patient: DecomposedPatient) -> Failing:
    severities = kind.severities(patient)
    asked = ~np.isnan(severities)
    if not asked.any():
        return Failing(0, 0, -1, np.nan)
    worst = int(np.nanargmax(severities))
    failed = int(np.count_nonzero(severities[asked] > kind.limit))
    return Failing(int(np.count_nonzero(asked)), failed, worst, float(severities[worst]))


def _missed(patient: DecomposedPatient) -> Figures:
    """Pixels of a lesion that is missed: less than a tenth of it is called lesion."""
    true = patient.lesion > 0
    area, found = _areas(true), _areas(true & (patient.predicted_lesion > 0))
    return np.where(area >= SEEN, np.where(found < 0.1 * area, area, 0.0), np.nan)


def _imagined(patient: DecomposedPatient) -> Figures:
    """Pixels called lesion in a slice without any."""
    return np.where(_areas(patient.lesion > 0) == 0, _areas(patient.predicted_lesion > 0), np.nan)


def _mistaken(patient: DecomposedPatient) -> Figures:
    """Share of a found lesion's pixels that is given to the wrong class."""
    both = (patient.lesion > 0) & (patient.predicted_lesion > 0)
    wrong = _areas(both & (patient.lesion != patient.predicted_lesion))
    area = _areas(both)
    return np.where(area >= SEEN, wrong / np.maximum(area, 1), np.nan)


def _left_ill(patient: DecomposedPatient) -> Figures:
    """How far x̂⁻ is off the true twin inside the lesion."""
    inside = (patient.lesion > 0) & _brain(patient)
    if patient.twin is None:
        return np.full(len(inside), np.nan)
    off = np.abs(patient.healthy_twin.astype(np.float32) - patient.twin.astype(np.float32)).mean(axis=1)
    return _mean_inside(off, inside)


def _blurred(patient: DecomposedPatient) -> Figures:
    """How far x̂⁺ is off the image, in the brain."""
    off = np.abs(patient.reconstruction.astype(np.float32) - patient.images.astype(np.float32)).mean(axis=1)
    brain = _brain(patient)
    enough = _areas(brain) >= BRAIN_SHARE * brain[0].size
    return np.where(enough, _mean_inside(off, brain), np.nan)


def _brain(patient: DecomposedPatient) -> NDArray[np.bool_]:
    return np.asarray((patient.images > FILL).any(axis=1))


def _areas(masks: NDArray[np.bool_]) -> Figures:
    return np.asarray(np.count_nonzero(masks, axis=(1, 2)), dtype=np.float64)


def _mean_inside(values: NDArray[np.floating], mask: NDArray[np.bool_]) -> Figures:
    """Mean of `[Z, H, W]` over a slice's part of the mask; not a number where that has no more than a few pixels."""
    area = _areas(mask)
    return np.where(area >= SEEN, (values * mask).sum(axis=(1, 2)) / np.maximum(area, 1), np.nan)


KINDS: Mapping[str, Kind] = {
    "missed": Kind(
        "A lesion is missed", "less than a tenth of a visible lesion is called lesion", "pixels missed", _missed, 0
    ),
    "imagined": Kind(
        "A lesion is seen where there is none",
        f"{SEEN} pixels or more are called lesion in a slice without any",
        "pixels called lesion",
        _imagined,
        SEEN - 1,
    ),
    "mistaken": Kind(
        "A lesion is found and its parts are mistaken",
        "more than half of what was found is given to the wrong class",
        "share of pixels in the wrong class",
        _mistaken,
        0.5,
    ),
    "left_ill": Kind(
        "The healthy twin is not healthy",
        "inside the lesion x̂⁻ is more than 0.75 z-scores off the true twin",
        "mean difference, z-scores",
        _left_ill,
        0.75,
    ),
    "blurred": Kind(
        "The reconstruction is another image",
        "in the brain x̂⁺ is more than 0.75 z-scores off the image",
        "mean difference, z-scores",
        _blurred,
        0.75,
    ),
}
