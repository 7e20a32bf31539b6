"""Counterfactual slices for teaching: a lesion removed, moved, mirrored or grown by editing abnormal ids.

    edited = move_lesion(archive, archive.stored("P1"), rows=0, columns=2)
    picture = archive.view(edited).reconstruction

Knows ids, cells and what they decode to; nothing about files. The anatomy (normal ids) is never touched. An edited
slice is an `EncodedSlice` like any other: it can be looked at, and it can be asked about.

Where a lesion is lifted off, each cell takes the abnormal id that lesion-free slices of the archive have there most
often. A code also speaks for its neighbourhood, so lifting goes on to neighbouring cells until no lesion is decoded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import binary_dilation, label

from diptych.errors import UsageError
from diptych.retrieval.archive import Archive
from diptych.retrieval.encoded_slice import EncodedSlice
from diptych.retrieval.explanation import decode_lesion
from diptych.retrieval.question import touched_cells
from diptych.slices import FILL

Cells = NDArray[np.bool_]
Grid = NDArray[np.integer]

BRAIN_ABOVE = FILL + 1.0
"""A cell belongs to the brain when the healthy twin is brighter than this anywhere in it."""
GRID_MIRRORED = (
    "The model sees no lesion in the mirrored slice; its codes were mirrored cell by cell, so edges are rough."
)
STILL_THERE = "The model sees a lesion even in the codes of lesion-free slices."


@dataclass(frozen=True, eq=False)
class _Lifted:
    """A slice whose lesion was taken off."""

    ids: Grid
    """What is left, `[h, w]`."""
    lesion: Cells
    """Where the lesion was, `[h, w]`."""
    warnings: tuple[str, ...] = ()


def remove_lesion(archive: Archive, subject: EncodedSlice) -> EncodedSlice:
    """The slice without its lesion."""
    lifted = _lift(archive, subject)
    return _edited(subject, "without its lesion", lifted.ids, lifted)


def move_lesion(archive: Archive, subject: EncodedSlice, *, rows: int, columns: int) -> EncodedSlice:
    """The lesion so many cells further back (rows) and further to the patient's left (columns)."""
    lifted = _lift(archive, subject)
    places = np.argwhere(lifted.lesion) + np.array([rows, columns])
    if places.min() < 0 or (places >= lifted.ids.shape).any():
        raise UsageError(f"move {rows},{columns}: {_room(lifted.lesion)}")
    ids = lifted.ids.copy()
    ids[tuple(places.T)] = subject.abnormal_ids[lifted.lesion]
    return _edited(subject, f"with its lesion moved by {rows},{columns}", ids, lifted)


def mirror_lesion(archive: Archive, subject: EncodedSlice) -> EncodedSlice:
    """The lesion on the other side: codes are not symmetric, so the mirrored slice is encoded anew.

    Where the model sees no lesion in that, the grid itself is mirrored, and a warning says so.
    """
    lifted = _lift(archive, subject)
    ids = archive.mirrored(subject).abnormal_ids
    there = touched_cells(decode_lesion(archive.network, ids[None])[0] > 0, ids.shape)
    if not there.any():
        ids, there = subject.abnormal_ids[:, ::-1], lifted.lesion[:, ::-1]
        lifted = replace(lifted, warnings=(*lifted.warnings, GRID_MIRRORED))
    return _edited(subject, "with its lesion on the other side", np.where(there, ids, lifted.ids), lifted)


def grow_lesion(archive: Archive, subject: EncodedSlice, *, cells: int) -> EncodedSlice:
    """The lesion so many cells larger to each side: each focus magnified about its centre, within grid and brain."""
    if cells < 1:
        raise UsageError(f"grow {cells}: give the number of cells to grow to each side, at least 1")
    lifted = _lift(archive, subject)
    twin = archive.view(subject).healthy_twin
    brain = touched_cells(twin.max(axis=0) > BRAIN_ABOVE, lifted.lesion.shape) | lifted.lesion
    ids = lifted.ids
    foci, count = label(lifted.lesion, structure=np.ones((3, 3)))
    for number in range(1, count + 1):
        rows, columns = _magnified(foci == number, cells)
        ids = np.where((foci == number)[rows, columns] & brain, subject.abnormal_ids[rows, columns], ids)
    return _edited(subject, f"with its lesion grown by {cells} cells to each side", ids, lifted)


def _lift(archive: Archive, subject: EncodedSlice) -> _Lifted:
    """Put what is usual without a lesion in its cells, then around them, until no lesion is decoded any more."""
    lesion = archive.lesion_cells(subject)
    quiet, lifted = archive.catalogue.quiet_ids, lesion
    while True:
        ids = np.where(lifted, quiet, subject.abnormal_ids)
        rest = touched_cells(decode_lesion(archive.network, ids[None])[0] > 0, lesion.shape)
        if not rest.any():
            return _Lifted(ids, lesion)
        if lifted.all():
            return _Lifted(ids, lesion, (STILL_THERE,))
        wider = lifted | rest
        lifted = binary_dilation(lifted) if np.array_equal(wider, lifted) else wider


def _magnified(focus: Cells, cells: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For every cell, the row and column of the cell that grows into it, `[h, w]` each: always nearer to the centre."""
    places = []
    for axis, size in enumerate(focus.shape):
        filled = np.flatnonzero(focus.any(axis=1 - axis))
        centre, extent = (filled[0] + filled[-1]) / 2, filled[-1] - filled[0] + 1
        places.append(np.rint(centre + (np.arange(size) - centre) * extent / (extent + 2 * cells)).astype(np.int64))
    rows, columns = np.meshgrid(*places, indexing="ij")
    return rows, columns


def _edited(subject: EncodedSlice, what: str, ids: Grid, lifted: _Lifted) -> EncodedSlice:
    return replace(
        subject,
        name=f"{subject.name} {what}",
        abnormal_ids=ids.astype(subject.abnormal_ids.dtype),
        volume_key=None,
        image=None,
        lesion=None,
        warnings=(*subject.warnings, *lifted.warnings),
    )


def _room(lesion: Cells) -> str:
    (top, left), (bottom, right) = np.argwhere(lesion).min(axis=0), np.argwhere(lesion).max(axis=0)
    h, w = lesion.shape
    return (
        f"the lesion would leave the grid; rows may change by {-top} to {h - 1 - bottom}, "
        f"columns by {-left} to {w - 1 - right}"
    )
