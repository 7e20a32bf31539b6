"""`Changes`: two studies of one patient compared in a job, kept for a while: numbers, maps, and the old study moved.

Knows cases, jobs and `compare_studies`; nothing about HTTP. The old study's images lie in the service's own folder, on
the grid of the new one, so that a viewer shows both with one crosshair.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from diptych.drawing.tile import tile_size
from diptych.progress import Progress
from diptych.retrieval.change import StudyChange, compare_studies
from diptych.retrieval.change_figure import cell_map, old_image, subtraction
from diptych.server.cases import Case, Cases
from diptych.server.jobs import Job, Jobs
from diptych.server.problems import Problem, not_found
from diptych.server.slice_pictures import paint_labels
from diptych.volumes import write_nifti

MapKind = Literal["image", "old", "new", "abnormal", "normal", "subtraction"]
KEPT = 4
"""Comparisons in memory; each holds both studies as slices."""
HEIGHT = 512


@dataclass(frozen=True, eq=False)
class Compared:
    """A finished comparison."""

    change: StudyChange
    folder: Path
    """Where the old study's channels lie, as `channel.nii.gz`."""
    colours: Mapping[int, tuple[int, int, int]]
    """Of the classes of lesion."""

    def place(self, z: int) -> int:
        found = np.flatnonzero(self.change.new.z_index == z)
        if not len(found):
            raise not_found(f"slice {z}: the two studies show no common brain there")
        return int(found[0])

    def picture(self, z: int, kind: MapKind, channel: str) -> bytes:
        """The old study in one slice, or a transparent overlay: a predicted lesion, changed cells, the subtraction."""
        place, change = self.place(z), self.change
        size = tile_size(change.new.images.shape[2:], change.new.pixel_spacing, height=HEIGHT)
        if kind in ("old", "new"):
            lesion = change.old_lesion if kind == "old" else change.new_lesion
            return paint_labels(lesion[place], size, self.colours)
        if kind in ("abnormal", "normal"):
            layer: NDArray[Any] = cell_map(change, place, kind)
            how = Image.Resampling.NEAREST
        else:
            if channel not in change.new.channels:
                raise not_found(f"channel {channel}: these studies have {', '.join(change.new.channels)}")
            layer = (old_image if kind == "image" else subtraction)(change, place, change.new.channels.index(channel))
            how = Image.Resampling.BICUBIC
        buffer = BytesIO()
        Image.fromarray(layer.astype(np.uint8)).resize(size, how).save(buffer, "PNG", compress_level=3)
        return buffer.getvalue()


class Changes:
    """Which comparisons there are, and which are being made; safe to use from many threads."""

    def __init__(self) -> None:
        self._done: OrderedDict[tuple[str, str], Compared] = OrderedDict()
        self._jobs: dict[tuple[str, str], Job] = {}
        self._lock = Lock()

    def get(self, jobs: Jobs, cases: Cases, old: Case, new: Case) -> Compared | Job:
        """The comparison, or the job that makes it."""
        if not old.channels or not new.channels:
            raise Problem(409, "the archive keeps codes only of one of these studies", code="no_pixels")
        key = old.tag, new.tag
        with self._lock:
            if key in self._done:
                self._done.move_to_end(key)
                return self._done[key]
            job = self._jobs.get(key)
            if job is None or job.over:
                job = jobs.submit("decompose", "compare", lambda told: self._make(cases, old, new, told))
                self._jobs[key] = job
            return job

    def _make(self, cases: Cases, old: Case, new: Case, progress: Progress) -> None:
        archive = cases.library.current
        first, second = (
            replace(cases.read(case), patient_key=case.info.volume_key, lesion=None, anatomy=None)
            for case in (old, new)
        )
        names = archive.description.lesion_names
        change = compare_studies(first, second, archive.encoder, archive.network, classes=names, progress=progress)
        folder = cases.folder / "changes" / f"{old.tag}-{new.tag}"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        moved = change.moved
        for channel, image in zip(moved.channels, moved.array, strict=True):
            write_nifti(folder / f"{channel}.nii.gz", np.rint(image).astype(np.int16), moved.affine)
        empty = replace(moved, array=np.zeros((0, 1, 1, 1), dtype=np.float32))
        with self._lock:
            self._done[(old.tag, new.tag)] = Compared(
                replace(change, moved=empty), folder, archive.description.lesion_colours
            )
            while len(self._done) > KEPT:
                self._done.popitem(last=False)
