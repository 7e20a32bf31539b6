"""What comes back: `SliceMatch` and `Answer`, with names a person can follow instead of places in an index.

Knows the engine's matches and the catalogue's names.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.archive import VolumeInfo
from diptych.retrieval.anywhere import PlacedLesion
from diptych.retrieval.catalogue import Catalogue
from diptych.retrieval.encoded_slice import EncodedSlice
from diptych.retrieval.match_worth import Worth
from diptych.retrieval.question import Question
from diptych.search import Match, PanelMatch


@dataclass(frozen=True, eq=False)
class SliceMatch:
    """A slice that was found."""

    volume: VolumeInfo
    z_index: int
    """Index of the axial plane in its volume, from the bottom."""
    position: float
    """0 at the lowest slice of the brain, 1 at the highest."""
    z_mm: float
    lesion_area: float | None
    """Square millimetres; None where unknown."""
    distance: float
    """What matches are ordered by; smaller is nearer."""
    contributions: NDArray[np.float64]
    """Each cell's part of `distance`, `[h, w]`; they add up to it."""
    normal: PanelMatch | None
    """The normal panels compared, in the question's metric; None in a search that compares none."""
    abnormal: PanelMatch | None
    """The abnormal panels compared."""
    normal_ids: NDArray[np.integer] = field(repr=False)
    """`[h, w]`."""
    abnormal_ids: NDArray[np.integer] = field(repr=False)
    """`[h, w]`."""
    placed: PlacedLesion | None = None
    """The query as it was compared in a search anywhere, its lesion put in the best place."""
    worth: Worth | None = None
    """How well its labels can be expected to agree; None where nobody has measured that for such a search."""

    def to_json(self) -> dict[str, Any]:
        panels = {"normal": self.normal, "abnormal": self.abnormal}
        return {
            "volume_key": self.volume.volume_key,
            "patient_key": self.volume.patient_key,
            "slice": self.z_index,
            "position": round(self.position, 4),
            "z_mm": round(self.z_mm, 2),
            "lesion_area_mm2": self.lesion_area,
            "distance": self.distance,
            **{f"{name}_distance": None if panel is None else panel.distance for name, panel in panels.items()},
            "contributions": self.contributions.tolist(),
            **{
                f"{name}_contributions": None if panel is None else panel.contributions.tolist()
                for name, panel in panels.items()
            },
            "placed": None
            if self.placed is None
            else {name: getattr(self.placed, name) for name in ("rows", "columns", "mirrored")},
            "worth": None if self.worth is None else self.worth.to_json(),
        }


@dataclass(frozen=True, eq=False)
class Answer:
    """The matches to a question about a slice, nearest first."""

    subject: EncodedSlice
    question: Question
    matches: tuple[SliceMatch, ...]
    version: str
    """The archive's version that was searched."""
    missing: tuple[str, ...] = ()
    """Parts of the archive that did not answer, one sentence each, with the share of all slices that they hold."""


def named_matches(
    matches: Sequence[Match], catalogue: Catalogue, placed: Sequence[PlacedLesion] | None = None
) -> tuple[SliceMatch, ...]:
    """Put names to the engine's matches."""
    slices = np.array([match.slice for match in matches], dtype=np.int64)
    normal, abnormal = (catalogue.index.codes[panel].ids(slices) for panel in ("normal", "abnormal"))
    grid = catalogue.index.grid
    return tuple(
        SliceMatch(
            volume=catalogue.volumes[match.volume],
            z_index=int(catalogue.z_index[match.slice]),
            position=float(catalogue.position[match.slice]),
            z_mm=float(catalogue.z_mm[match.slice]),
            lesion_area=_known(float(catalogue.lesion_area[match.slice])),
            distance=match.distance,
            contributions=match.contributions,
            normal=match.normal,
            abnormal=match.abnormal,
            normal_ids=normal[place].reshape(grid),
            abnormal_ids=abnormal[place].reshape(grid),
            placed=None if placed is None else placed[place],
        )
        for place, match in enumerate(matches)
    )


def _known(area: float) -> float | None:
    return None if math.isnan(area) else area
