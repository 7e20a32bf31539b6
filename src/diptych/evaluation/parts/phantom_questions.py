"""The other ways of asking, judged by labels: a sketch, a composed slice, a region, a lesion anywhere.

Meant for phantoms, whose labels are true; real patients with labels will do. Each question is asked as users ask it,
through the search engine, by the learned metric where the model has one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from diptych.evaluation.bootstrap import plain, summarise
from diptych.evaluation.compare_metrics import Trial
from diptych.evaluation.context import Context
from diptych.evaluation.part import Part, Section, Table, left_out
from diptych.progress import Progress
from diptych.retrieval.anywhere import PlacedLesion, place_lesion, search_placements
from diptych.retrieval.question import touched_cells
from diptych.retrieval.sketch import SKETCH_FILE, Sketcher
from diptych.search import Filter, Match, Query

TOP = 5
STRIDE = 2
"""Labels are compared at every second pixel."""
CAPTION = (
    "Mean Dice of the first {top} patients' slices with what was asked for, own patients excluded, classes absent in "
    "both left out; oracle: the best {top} there are; chance: a random slice of a random patient. 'Plainly': the query "
    "slice itself, searched without the special question, judged alike. Sketch: the true lesion label, painted, judged "
    "by lesion Dice. Composed: anatomy of one patient with the lesion of the next, judged by the mean of both Dice. "
    "Region: only the cells of the lesion are compared, judged by lesion Dice inside them. Anywhere: judged by lesion "
    "Dice after both lesions are moved to the middle of the frame, mirrored if that fits better."
)


def run(context: Context, progress: Progress) -> Section:
    trial = context.trial(progress)
    if "normal" not in trial.slices.labels or len(trial.slices.keys) < 4:
        return left_out("needs four patients or more with lesion and anatomy labels, such as phantoms.")
    asker = _Asker(context, trial)
    judged: dict[str, list[Judgement]] = {}
    plainly: dict[str, list[Judgement]] = {}
    for done, place in enumerate(trial.queries.tolist(), start=1):
        for name, special, plain_one in asker.ask(place):
            judged.setdefault(name, []).append(special)
            plainly.setdefault(name, []).append(plain_one)
        progress(done, len(trial.queries), "questions")
    numbers = {name: _numbers(values, plainly[name], context.seed) for name, values in judged.items()}
    headline = [
        (f"{name}: found, of the oracle", f"{v['found']:.3f}  {v['of_oracle']:.0%}") for name, v in numbers.items()
    ]
    return Section((_table(numbers, asker.metric),), plain({"metric": asker.metric, **numbers}), tuple(headline))


def _numbers(special: list[Judgement], plainly: list[Judgement], seed: int) -> dict[str, float]:
    found, oracle, chance = (
        np.array([getattr(one, name) for one in special]) for name in ("found", "oracle", "chance")
    )
    summary = summarise(found, seed=seed)
    return {
        "found": summary.mean,
        "low": summary.low,
        "high": summary.high,
        "plainly": float(np.mean([one.found for one in plainly])),
        "oracle": float(oracle.mean()),
        "chance": float(chance.mean()),
        "of_oracle": float(found.mean() / max(oracle.mean(), 1e-12)),
        "queries": len(special),
    }


def _table(numbers: dict[str, dict[str, float]], metric: str) -> Table:
    columns = ("question", "found", "low", "high", "plainly", "oracle", "chance", "of oracle", "queries")
    keys = ("found", "low", "high", "plainly", "oracle", "chance", "of_oracle", "queries")
    rows = [(name, *(plain(values[key]) for key in keys)) for name, values in numbers.items()]
    return Table.of(
        f"Other ways of asking, by the metric {metric}",
        columns,
        rows,
        caption=CAPTION.format(top=TOP),
        formats={"of oracle": ".0%"},
    )


@dataclass(frozen=True, eq=False)
class _Asker:
    """Asks every question about one slice."""

    context: Context
    trial: Trial

    @cached_property
    def metric(self) -> str:
        return self.trial.searcher.default

    @cached_property
    def sketcher(self) -> Sketcher | None:
        known = (self.context.model / SKETCH_FILE).is_file()
        return Sketcher.open(self.context.model, self.context.network) if known else None

    @cached_property
    def lesion(self) -> NDArray[np.uint8]:
        """`[N, H/2, W/2]`."""
        return np.ascontiguousarray(self.trial.slices.labels["abnormal"][:, ::STRIDE, ::STRIDE])

    @cached_property
    def anatomy(self) -> NDArray[np.uint8]:
        return np.ascontiguousarray(self.trial.slices.labels["normal"][:, ::STRIDE, ::STRIDE])

    @cached_property
    def centred_lesion(self) -> NDArray[np.integer]:
        return centred(self.lesion)

    @cached_property
    def quiet(self) -> NDArray[np.int64]:
        """The commonest abnormal id of each cell among lesion-free slices, `[h, w]`."""
        slices = self.trial.slices
        free = slices.ids["abnormal"][slices.lesion_area == 0]
        ids = free if len(free) else slices.ids["abnormal"]
        return np.array([np.bincount(cell).argmax() for cell in ids.T], dtype=np.int64).reshape(slices.grid)

    def ask(self, place: int) -> Iterable[tuple[str, Judgement, Judgement]]:
        """Name of each question, its judgement, and that of the plain search."""
        own = self._query(place, by="abnormal")
        lesion_dice = self._dice(self.lesion, place, classes=3)
        if self.sketcher is not None:
            painted = self.sketcher.ids(self.trial.slices.labels["abnormal"][place])
            sketch = self._query(place, by="abnormal", abnormal=painted)
            yield "sketch", *self._both(sketch, own, lesion_dice)
        yield "composed", *self._composed(place)
        cells = self._cells(place)
        region = self._query(place, by="abnormal", region=cells)
        inside = self._dice_inside(place, cells)
        yield "region", *self._both(region, own, inside)
        aligned = self._aligned_dice(place)
        anywhere = [match for match, _ in self._search_anywhere(place, own, cells)]
        yield "anywhere", self._judge(anywhere, own, aligned), self._judged(own, aligned)
        histogram = self.trial.searcher.search_histograms(own)
        yield "anywhere, as a histogram", self._judge(histogram, own, aligned), self._judged(own, aligned)

    def _composed(self, place: int) -> tuple[Judgement, Judgement]:
        """Anatomy of one patient with the lesion of the next one that asks; plainly: by the anatomy's own slice."""
        queries = self.trial.queries.tolist()
        other = queries[(queries.index(place) + 1) % len(queries)]
        people = tuple({int(self.trial.person[self.trial.slices.volume[one]]) for one in (place, other)})
        composed = self._query(place, by="both", abnormal=self._ids("abnormal", other), exclude=people)
        alone = self._query(place, by="both", exclude=people)
        dice = (self._dice(self.anatomy, place, classes=6) + self._dice(self.lesion, other, classes=3)) / 2
        return self._both(composed, alone, dice)

    def _search_anywhere(self, place: int, query: Query, cells: NDArray[np.bool_]) -> list[tuple[Match, PlacedLesion]]:
        """The lesion in every place of the grid, as it is and mirrored."""
        mirrored = self.context.network.encode(self._image(place).flip(3)).abnormal[0].numpy()
        lesions = [
            *place_lesion(self._ids("abnormal", place), cells, self.quiet),
            *place_lesion(mirrored, cells[:, ::-1], self.quiet, mirrored=True),
        ]
        return search_placements(self.trial.searcher, query, lesions)

    def _image(self, place: int) -> torch.Tensor:
        """The slice's pixels, `[1, C, H, W]`."""
        slices = self.trial.slices
        volume = int(slices.volume[place])
        key, row = slices.keys[volume], place - int(np.searchsorted(slices.volume, volume))
        return torch.from_numpy(self.context.homes[key].images(key)[row : row + 1].astype(np.float32))

    def _ids(self, panel: str, place: int) -> NDArray[np.int64]:
        return np.asarray(self.trial.slices.ids[panel][place].reshape(self.trial.slices.grid))

    def _cells(self, place: int) -> NDArray[np.bool_]:
        return touched_cells(self.trial.slices.labels["abnormal"][place] > 0, self.trial.slices.grid)

    def _query(
        self,
        place: int,
        *,
        by: str,
        abnormal: NDArray[np.int64] | None = None,
        region: NDArray[np.bool_] | None = None,
        exclude: tuple[int, ...] = (),
    ) -> Query:
        own = int(self.trial.person[self.trial.slices.volume[place]])
        return Query(
            normal=self._ids("normal", place),
            abnormal=self._ids("abnormal", place) if abnormal is None else abnormal,
            by=by,  # type: ignore[arg-type]
            metric=self.metric,
            region=region,
            top=min(TOP, self.trial.longest),
            where=Filter(exclude_patients=exclude or (own,), volumes=self.trial.references),
        )

    def _both(self, special: Query, plainly: Query, dice: NDArray[np.float64]) -> tuple[Judgement, Judgement]:
        return self._judged(special, dice), self._judged(plainly, dice)

    def _judged(self, query: Query, dice: NDArray[np.float64]) -> Judgement:
        return self._judge(self.trial.searcher.search(query), query, dice)

    def _judge(self, matches: list[Match], query: Query, dice: NDArray[np.float64]) -> Judgement:
        allowed = ~np.isin(self.trial.person, list(query.where.exclude_patients))
        if query.where.volumes is not None:
            allowed &= query.where.volumes
        return judge(dice, self.trial.slices.volume, allowed, [match.slice for match in matches])

    def _dice(self, labels: NDArray[np.uint8], place: int, *, classes: int) -> NDArray[np.float64]:
        flat = labels.reshape(len(labels), -1)
        return label_dice(flat[place], flat, classes=classes)

    def _dice_inside(self, place: int, cells: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Lesion Dice over the pixels of some cells."""
        _, H, W = self.lesion.shape
        pixels = np.kron(cells, np.ones((H // cells.shape[0], W // cells.shape[1]), dtype=np.bool_)).reshape(-1)
        flat = self.lesion.reshape(len(self.lesion), -1)[:, pixels]
        return label_dice(flat[place], flat, classes=3)

    def _aligned_dice(self, place: int) -> NDArray[np.float64]:
        """Lesion Dice wherever the lesions lie, as they are or mirrored, whichever fits better."""
        mirrored = centred(self.lesion[place : place + 1, :, ::-1])
        flat = self.centred_lesion.reshape(len(self.centred_lesion), -1)
        as_it_is, turned = (label_dice(one, flat, classes=3) for one in (flat[place], mirrored.reshape(-1)))
        return np.maximum(as_it_is, turned)


PART = Part(
    "phantom_questions",
    "Other ways of asking",
    "Whether sketches, composed slices, regions and lesions anywhere find what the labels say is right.",
    run,
    settings={"version": 2},
)


Labels = NDArray[np.integer]


@dataclass(frozen=True)
class Judgement:
    """One question: mean Dice of the first slices found, of the best there are, and of a random slice."""

    found: float
    oracle: float
    chance: float


def label_dice(query: Labels, references: Labels, *, classes: int) -> NDArray[np.float64]:
    """Mean Dice over classes between one label map `[n]` and many `[N, n]`; 1 where neither has any label.

    >>> label_dice(np.array([1, 1, 2, 0]), np.array([[1, 0, 2, 0], [0, 0, 0, 0]]), classes=3).round(3).tolist()
    [0.833, 0.0]
    """
    total = np.zeros(len(references))
    present = np.zeros(len(references))
    for label in range(1, classes + 1):
        own, others = query == label, references == label
        both = np.count_nonzero(own) + np.count_nonzero(others, axis=1)
        shared = np.count_nonzero(others[:, own], axis=1)
        total += 2 * shared / np.maximum(both, 1)
        present += both > 0
    return np.where(present > 0, total / np.maximum(present, 1), 1.0)


def judge(
    dice: NDArray[np.float64], volume: NDArray[np.integer], allowed: NDArray[np.bool_], found: list[int]
) -> Judgement:
    """Judge slices that a question found, one per volume.

    Args:
        dice: what each slice is worth, `[N]`.
        volume: whose slice it is, `[N]`.
        allowed: which volumes may be found, `[V]`.
        found: slices, best first.
    """
    assert allowed[volume[found]].all(), "a question found a patient that it must not find"
    best = np.full(len(allowed), -np.inf)
    np.maximum.at(best, volume, dice)
    counts = np.bincount(volume, minlength=len(allowed))
    means = np.bincount(volume, weights=dice, minlength=len(allowed)) / np.maximum(counts, 1)
    usable = allowed & (counts > 0)
    oracle = np.sort(best[usable])[::-1][: len(found)]
    return Judgement(float(dice[found].mean()), float(oracle.mean()), float(means[usable].mean()))


def centred(labels: Labels) -> Labels:
    """Label maps `[N, H, W]` with the lesion's centre moved to the middle of the frame; what leaves it is lost."""
    moved = np.zeros_like(labels)
    _, H, W = labels.shape
    for place, one in enumerate(labels):
        rows, columns = np.nonzero(one)
        if not len(rows):
            continue
        rows_to = rows + H // 2 - round(float(rows.mean()))
        columns_to = columns + W // 2 - round(float(columns.mean()))
        inside = (rows_to >= 0) & (rows_to < H) & (columns_to >= 0) & (columns_to < W)
        moved[place, rows_to[inside], columns_to[inside]] = one[rows[inside], columns[inside]]
    return moved
