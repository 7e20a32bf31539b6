"""Several indexes as one: the codes of an archive's segments, in the order of the archive's volumes.

Knows packed codes and where each volume lies; nothing about files. Rows keep their place in their segment: what is
joined is only the way to them. Scans go from segment to segment; volumes come out in the archive's order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diptych.search.chunks import Chunks
from diptych.search.panel_codes import PanelCodes

Ints = NDArray[np.integer]


@dataclass(frozen=True, eq=False)
class Places:
    """Where the volumes of an archive lie in its segments."""

    part: NDArray[np.int64]
    """Segment of each volume, `[V]`."""
    start: NDArray[np.int64]
    """Its first slice there, `[V]`."""
    begins: NDArray[np.int64]
    """Its first slice in the archive, and N at the end, `[V + 1]`."""

    def __len__(self) -> int:
        return int(self.begins[-1])

    def rows(self, slices: Ints) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Segment of each slice, and its row there."""
        volumes = np.searchsorted(self.begins, slices, side="right") - 1
        return self.part[volumes], self.start[volumes] + (slices - self.begins[volumes])

    def volumes(self, starts: Ints, stops: Ints) -> NDArray[np.int64]:
        """The volumes in ranges of slices that begin and end with volumes, one range after the other."""
        first, last = (np.searchsorted(self.begins, ends, side="left") for ends in (starts, stops))
        parts = [np.arange(one, other) for one, other in zip(first, last, strict=True)]
        return np.concatenate([np.empty(0, dtype=np.int64), *parts])


@dataclass(frozen=True, eq=False)
class JoinedCodes(PanelCodes):
    """The ids of one panel in several segments; what `PanelCodes` packs for a scan, each of them has for itself."""

    parts: Sequence[tuple[PanelCodes, Chunks]]
    places: Places

    @classmethod
    def of(cls, parts: Sequence[tuple[PanelCodes, Chunks]], places: Places) -> JoinedCodes:
        """Join the codes, and their runs, of several segments."""
        first = parts[0][0]
        nothing = np.empty(0, np.int32), np.empty(0, np.uint16), np.empty(0, np.uint16)
        return cls(first.packed[:0], first.alphabet, first.rare, *nothing, parts, places)

    def __len__(self) -> int:
        return len(self.places)

    @property
    def nbytes(self) -> int:
        """Bytes that grow with the archive."""
        return sum(codes.nbytes for codes, _ in self.parts)

    def ids(self, slices: Ints) -> NDArray[np.uint16]:
        """Unpack the ids of some slices, `[n, P]`."""
        part, rows = self.places.rows(np.asarray(slices))
        out = np.empty((len(rows), self.cells), dtype=np.uint16)
        for number in np.unique(part).tolist():
            mine = part == number
            out[mine] = self.parts[number][0].ids(rows[mine])
        return out

    def equal(self, slices: Ints, ids: Ints) -> NDArray[np.bool_]:
        """Which of some slices have exactly these ids `[P]`."""
        part, rows = self.places.rows(np.asarray(slices))
        out = np.zeros(len(rows), dtype=np.bool_)
        for number in np.unique(part).tolist():
            mine = part == number
            out[mine] = self.parts[number][0].equal(rows[mine], ids)
        return out
