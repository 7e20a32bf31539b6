"""`Question`: what is asked about a slice, in a user's words, and how it becomes a query to the search engine.

Knows catalogues and search queries; nothing about images or models.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from diptych.archive.filters import parse_filter
from diptych.errors import UsageError
from diptych.metrics.searcher import DEFAULT
from diptych.retrieval.catalogue import Catalogue
from diptych.retrieval.encoded_slice import EncodedSlice
from diptych.search import Filter, Query
from diptych.search.query import By, panel_named, panel_word

Anywhere = Literal["shifted", "mirrored", "both", "histogram"]


@dataclass(frozen=True, eq=False)
class Question:
    """How slices are compared, and which may be found."""

    by: By = "both"
    """What to compare: anatomy, lesion or both (the paper's words normal and abnormal mean the same)."""
    weight: float = 0.5
    """Share of the normal panel in a search by both, 0 to 1."""
    combine: Literal["normalised", "paper"] = "normalised"
    """In a search by both: distances divided by their spread in the archive, or added raw as in the paper."""
    metric: str = DEFAULT
    """One of `diptych.metrics.searcher.METRICS`; default is what finds best: fusion by anatomy and by both, overlap by
    lesion, where label maps are stored; else learned where the model has it; else (and with the paper's way to combine)
    euclidean."""
    rerank: int | None = None
    """Let the metric choose this many volumes, and order those by overlap."""
    region: NDArray[np.bool_] | None = None
    """Cells to compare, `[h, w]` (see `regions`); all of them by default."""
    inside_lesion: bool = False
    """Compare only the cells in which the query's lesion is predicted."""
    anywhere: Anywhere | None = None
    """Find the lesion elsewhere too: shifted, mirrored, both of these, or as a histogram without any place."""
    level_mm: float | None = None
    """Find only slices within so many millimetres of the query's level, as a share of the brain's height; `LEVEL_MM` is
    a good width. None for any level."""
    top: int = 10
    """How many matches to return at most."""
    group: Literal["patient", "volume"] = "patient"
    """One match per patient, or one per volume."""
    where: str | None = None
    """Condition on metadata that volumes must fulfil, such as "sex = 'F' and age > 60"."""
    allowed: NDArray[np.bool_] | None = None
    """Volumes that may be found, `[V]` in the order of the archive's catalogue; all of them by default."""
    lesion_free: bool = False
    """Find only slices that are known to hold no lesion."""
    include_own: bool = False
    """Whether slices of the query's own patient may be found."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "by", panel_named(self.by))


BRAIN_MM = 140.0
"""Height of an adult's brain: levels are compared as shares of it, so that heads of all sizes and scanners compare."""
LEVEL_MM = 40.0
"""Width of a good question about a level, up and down. Of the first ten matches by lesion of 12 validation patients,
whole lesions overlap most within 25 to 40 mm (3-D Dice .359, .348 at any level), slices most at 40 and beyond
(`benchmarks/level.py`)."""


@dataclass(frozen=True, eq=False)
class Scan:
    """A slice as it would stand in the archive if that held the same scan, under whatever name."""

    z_index: int
    z_mm: float
    position: float
    ids: Mapping[str, NDArray[np.integer]]
    """By panel, `[h, w]`."""

    def patients(self, catalogue: Catalogue) -> list[int]:
        """Patients in whose volumes this very slice stands, at the same place with the same codes."""
        places = np.flatnonzero(catalogue.z_index == self.z_index)
        for column, own, off in (catalogue.z_mm, self.z_mm, 1e-3), (catalogue.position, self.position, 1e-6):
            places = places[np.isclose(column[places], own, atol=off)]
        for panel, ids in self.ids.items():
            places = places[catalogue.index.codes[panel].equal(places, ids.reshape(-1))]
        found: list[int] = np.unique(catalogue.index.patient_of_volume[catalogue.index.volume_of(places)]).tolist()
        return found


@dataclass(frozen=True, eq=False)
class OpenFilter(Filter):
    """What a question about a slice says of others, to be settled where those lie: in the archive, or in its shards."""

    scan: Scan | None = None
    """Nobody who has the same scan is found."""
    level: tuple[float, float] | None = None
    """Only slices near this place in the brain, and how near in millimetres."""

    def settled(self, catalogue: Catalogue) -> Filter:
        """The same in the numbers of a catalogue, for its engine."""
        excluded = [*self.exclude_patients, *(self.scan.patients(catalogue) if self.scan is not None else ())]
        slices = self.slices if self.level is None else near_level(*self.level, catalogue)
        return Filter(self.volumes, slices, excluded, self.lesion_free)


def slice_query(question: Question, subject: EncodedSlice, catalogue: Catalogue) -> Query:
    """The question about a slice as a query."""
    query = open_query(question, subject, catalogue)
    assert isinstance(query.where, OpenFilter)
    require_level(question, subject, catalogue)
    return replace(query, where=query.where.settled(catalogue))


def open_query(question: Question, subject: EncodedSlice, catalogue: Catalogue) -> Query:
    """The same with a filter that is not settled yet."""
    query = volume_query(question, subject.patients, catalogue)
    where, scan, level = query.where, None, None
    ids = {"normal": subject.normal_ids, "abnormal": subject.abnormal_ids}
    if subject.z_index is not None and subject.z_mm is not None and subject.position is not None:
        scan = None if question.include_own else Scan(subject.z_index, subject.z_mm, subject.position, ids)
    if question.level_mm is not None:
        level = level_of(subject, question.level_mm), question.level_mm
    archived = None
    if subject.volume_key is not None and subject.z_index is not None:
        archived = catalogue.place(subject.volume_key, subject.z_index)
    where = OpenFilter(where.volumes, where.slices, where.exclude_patients, where.lesion_free, scan, level)
    return replace(query, normal=ids["normal"], abnormal=ids["abnormal"], where=where, archived=archived)


def level_of(subject: EncodedSlice, level_mm: float) -> float:
    """How far up the brain the subject lies, where it can be asked for."""
    if subject.position is None:
        raise UsageError(f"{subject.name}: has no level; leave the level out")
    if not level_mm > 0:
        raise UsageError(f"level_mm is {level_mm}: give millimetres above zero")
    return subject.position


def near_level(position: float, level_mm: float, catalogue: Catalogue) -> NDArray[np.bool_]:
    """Slices of the archive about as far up the brain, `[N]`."""
    near: NDArray[np.bool_] = np.abs(catalogue.position - position) * BRAIN_MM <= level_mm
    return near


def require_level(question: Question, subject: EncodedSlice, catalogue: Catalogue) -> None:
    """Refuse a question about a level at which nothing lies."""
    width = question.level_mm
    if width is not None and not near_level(level_of(subject, width), width, catalogue).any():
        raise UsageError(f"level: no slice lies within {width:g} mm of {subject.name}; ask for more")


def volume_query(question: Question, own: Collection[str], catalogue: Catalogue) -> Query:
    """Everything that a question says but for the ids; `own` are the patients it is about."""
    if question.anywhere not in (None, *get_args(Anywhere)):
        raise UsageError(f"anywhere {question.anywhere!r}: choose one of {', '.join(get_args(Anywhere))}")
    if question.anywhere is not None and question.by != "abnormal":
        raise UsageError(f"by {panel_word(question.by)}: only a lesion can lie anywhere; search by lesion")
    return Query(
        by=question.by,
        weight=question.weight,
        combine=question.combine,
        metric=question.metric,
        region=question.region,
        top=question.top,
        group=question.group,
        where=_filter(question, own, catalogue),
    )


def _filter(question: Question, own: Collection[str], catalogue: Catalogue) -> Filter:
    """Which volumes and slices may be found."""
    if question.lesion_free and not catalogue.index.lesion_free.any():
        raise UsageError(
            "lesion-free slices: none is known in this archive; index patients with label maps, or with "
            "--predict-lesions"
        )
    known = [catalogue.patients[key] for key in own if key in catalogue.patients]
    return Filter(
        volumes=_allowed(question, catalogue),
        exclude_patients=() if question.include_own else known,
        lesion_free=question.lesion_free,
    )


def _allowed(question: Question, catalogue: Catalogue) -> NDArray[np.bool_] | None:
    """Volumes that fulfil the condition and are among those the question allows."""
    if question.where is None:
        return question.allowed
    fulfilled = parse_filter(question.where).keep(catalogue.volumes)
    return fulfilled if question.allowed is None else fulfilled & question.allowed


Region = NDArray[np.bool_]
"""`[h, w]`, true where cells are compared."""


def region_of_cells(cells: Iterable[tuple[int, int]], *, grid: tuple[int, int]) -> Region:
    """Cells by row and column, counted from 0 at the top left.

    >>> region_of_cells([(0, 1)], grid=(2, 3)).astype(int).tolist()
    [[0, 1, 0], [0, 0, 0]]
    """
    region = np.zeros(grid, dtype=np.bool_)
    for row, column in cells:
        if not (0 <= row < grid[0] and 0 <= column < grid[1]):
            raise UsageError(f"cell {row},{column}: this grid has rows 0…{grid[0] - 1} and columns 0…{grid[1] - 1}")
        region[row, column] = True
    return _filled(region, "no cell is given; name at least one, such as 3,4")


def region_of_rectangle(
    rectangle: tuple[int, int, int, int], *, image_size: tuple[int, int], grid: tuple[int, int]
) -> Region:
    """Cells that a rectangle touches: top row, left column, bottom row, right column, the last two left out.

    >>> region_of_rectangle((0, 7, 8, 9), image_size=(16, 24), grid=(2, 3)).astype(int).tolist()
    [[1, 1, 0], [0, 0, 0]]
    """
    top, left, bottom, right = rectangle
    H, W = image_size
    if not (0 <= top < bottom <= H and 0 <= left < right <= W):
        raise UsageError(
            f"rectangle {top},{left},{bottom},{right}: give top,left,bottom,right with "
            f"0 ≤ top < bottom ≤ {H} and 0 ≤ left < right ≤ {W}"
        )
    mask = np.zeros(image_size, dtype=np.bool_)
    mask[top:bottom, left:right] = True
    return region_of_mask(mask, image_size=image_size, grid=grid)


def region_of_mask(mask: ArrayLike, *, image_size: tuple[int, int], grid: tuple[int, int]) -> Region:
    """Cells that a mask `[H, W]` touches: all that is not zero counts, so a label map will do."""
    marked: NDArray[np.bool_] = np.asarray(mask) != 0
    if marked.shape != image_size:
        raise UsageError(
            f"mask of shape {marked.shape}: slices have {image_size[0]}x{image_size[1]} pixels; draw it on a slice"
        )
    region = touched_cells(marked, grid)
    return _filled(region, "the mask is empty; mark at least one pixel")


def touched_cells(mask: NDArray[np.bool_], grid: tuple[int, int]) -> Region:
    """The same without any check: an empty mask touches nothing."""
    (H, W), (h, w) = mask.shape, grid
    return np.asarray(mask.reshape(h, H // h, w, W // w).any(axis=(1, 3)))


def _filled(region: Region, otherwise: str) -> Region:
    if not region.any():
        raise UsageError(f"empty region: {otherwise}")
    return region
