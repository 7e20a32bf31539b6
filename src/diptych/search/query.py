"""What is asked and what comes back: `Query`, `Filter`, `Match`.

Knows the words of a search, not how it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from diptych.errors import UsageError

PANELS = ("normal", "abnormal")
By = Literal["normal", "abnormal", "both", "anatomy", "lesion"]
"""What to search by. Users say anatomy and lesion; queries and questions turn these into the paper's two words."""
WORDS = {"normal": "anatomy", "abnormal": "lesion"}
"""The panels as users call them."""


@dataclass(frozen=True, eq=False)
class Filter:
    """Which slices may be found. Everything that is given must hold."""

    volumes: NDArray[np.bool_] | None = None
    """Allowed volumes, `[V]`."""
    slices: NDArray[np.bool_] | None = None
    """Allowed slices, `[N]`."""
    exclude_patients: Collection[int] = ()
    """Patients that are left out, such as the query's own."""
    lesion_free: bool = False
    """Only slices known to hold no lesion."""


@dataclass(frozen=True, eq=False)
class Query:
    """Codes, what to compare, and where to look."""

    normal: NDArray[np.integer] | None = None
    """Ids of the normal code, `[h, w]`."""
    abnormal: NDArray[np.integer] | None = None
    """Ids of the abnormal code, `[h, w]`."""
    by: By = "normal"
    """Which panel to search by."""
    weight: float = 0.5
    """Share of the normal panel in `both`, 0…1; the abnormal panel has the rest."""
    combine: Literal["normalised", "paper"] = "normalised"
    """In `both`: divide each distance by its spread in the archive, or add raw distances as the paper does."""
    metric: str = "euclidean"
    """Name of a table: `euclidean`, `angular`, `hamming`, or one given to the engine."""
    region: NDArray[np.bool_] | None = None
    """Grid positions to compare, `[h, w]`; all of them by default."""
    top: int = 10
    """How many volumes, or patients, to return at most."""
    group: Literal["volume", "patient"] = "volume"
    """One match per volume, or one per patient."""
    where: Filter = field(default_factory=Filter)
    """Which slices may be found."""
    archived: int | None = None
    """Place in the index of the archived slice that asks, where one does: what its codes decode to is stored."""
    decoded: Mapping[str, Any] | None = None
    """What its codes decode to, by panel, where somebody has decoded them already."""
    spreads: Mapping[tuple[str, str], float] | None = None
    """How far apart slices are, by metric and panel, in a larger archive that the searched one is a part of."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "by", panel_named(self.by))


@dataclass(frozen=True, eq=False)
class PanelMatch:
    """How one panel of a match compares with the query."""

    distance: float
    """Distance in the query's metric, neither normalised nor weighted."""
    contributions: NDArray[np.float64]
    """Each cell's part of `distance`, `[h, w]`; they add up to it."""
    weight: float
    """What `distance` is multiplied by in the match's own; 0 where the search does not look at this panel."""


@dataclass(frozen=True, eq=False)
class Match:
    """The best slice of one volume."""

    slice: int
    """Place of the slice in the index."""
    volume: int
    patient: int
    distance: float
    """What matches are ordered by; smaller is nearer: the panels' distances, each times its weight, added up. Equal
    distances stand in the order of volume and slice."""
    contributions: NDArray[np.float64]
    """Each cell's part of `distance`, `[h, w]`; they add up to it."""
    normal: PanelMatch | None
    """The normal panels compared, where the query has one."""
    abnormal: PanelMatch | None
    """The abnormal panels compared, where the query has one."""
    key: float = 0.0
    """What orders the matches of one query exactly, where rounding may make distances equal."""


def panel_named(word: str) -> By:
    """What to search by, in a user's words (anatomy, lesion) or in the paper's (normal, abnormal)."""
    by = {said: panel for panel, said in WORDS.items()}.get(word, word)
    if by not in (*PANELS, "both"):
        raise UsageError(f"by {word!r}: search by anatomy, lesion or both (the paper's words: normal, abnormal)")
    return cast(By, by)


def panel_word(by: str) -> str:
    """What a search is by, as users say it: anatomy, lesion or both."""
    return WORDS.get(by, by)


def panels_of(by: str) -> tuple[str, ...]:
    """The panels that a search looks at."""
    if by not in (*PANELS, "both"):
        raise UsageError(f"by {by!r}: search by anatomy, lesion or both")
    return PANELS if by == "both" else (by,)


def panel_weights(query: Query, spread: Callable[[str], float]) -> dict[str, float]:
    """What each panel's distance is multiplied by; `spread` tells how far apart random slices are in a panel."""
    panels = panels_of(query.by)
    if not 0 <= query.weight <= 1:
        raise UsageError(f"weight {query.weight}: the share of the normal panel lies in 0…1")
    if len(panels) == 1 or query.combine == "paper":
        return dict.fromkeys(panels, 1.0)
    shares = {"normal": query.weight, "abnormal": 1 - query.weight}
    return {panel: share / spread(panel) for panel, share in shares.items()}
