"""`Library`: the archive that is served, always in its newest version, and what must be made before it can be searched.

Knows retrieval and time. A change on disk is noticed within `CHECK_EVERY` seconds; whoever notices it reads the new
version while the others still ask the old one.
"""

from __future__ import annotations

import time
from threading import Lock

from diptych.metrics.fusion import METRIC as FUSION
from diptych.metrics.learned_tables import METRIC as LEARNED
from diptych.metrics.overlap import METRIC as OVERLAP
from diptych.progress import Progress, silent
from diptych.retrieval import Archive, Question
from diptych.retrieval.catalogue import Catalogue
from diptych.volumes import CHANNELS

CHECK_EVERY = 1.0


class Library:
    """Hands out the current archive."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._checked = time.monotonic()
        self._refreshing = Lock()
        self._preparing = Lock()
        self._places: tuple[Catalogue | None, dict[str, int]] = (None, {})

    @property
    def current(self) -> Archive:
        """The archive as it is now, or was a moment ago."""
        if time.monotonic() - self._checked > CHECK_EVERY and self._refreshing.acquire(blocking=False):
            try:
                self._archive = self._archive.refreshed()
                self._checked = time.monotonic()
            finally:
                self._refreshing.release()
        return self._archive

    def refresh(self) -> None:
        """Look for changes now."""
        with self._refreshing:
            self._archive = self._archive.refreshed()
            self._checked = time.monotonic()

    @property
    def image_size(self) -> tuple[int, int]:
        """Rows and columns of a slice as the network sees it."""
        return self._archive.encoder.geometry.size

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the network's channels, in their order."""
        return CHANNELS[: self._archive.encoder.channels]

    def places(self, archive: Archive) -> dict[str, int]:
        """The number of each volume in the archive's catalogue, by its key."""
        known, places = self._places
        if known is not archive.catalogue:
            places = {info.volume_key: place for place, info in enumerate(archive.catalogue.volumes)}
            self._places = archive.catalogue, places
        return places

    @property
    def metrics(self) -> list[str]:
        """Every metric of the model."""
        tables = [*self._archive.tables.normal]
        return [*tables, OVERLAP, *([FUSION] if LEARNED in tables else [])]

    @property
    def default_metric(self) -> str:
        return LEARNED if LEARNED in self._archive.tables.normal else "euclidean"

    def overlap_ready(self, archive: Archive) -> bool:
        """Whether the metric `overlap` answers at once."""
        return "overlap" in vars(archive)

    def prepare_overlap(self, progress: Progress = silent) -> None:
        """Decode the labels of all slices; what was decoded before comes from the archive's cache."""
        with self._preparing:
            archive = self.current
            if self.overlap_ready(archive):
                return
            vars(archive)["overlap"] = archive.decode_labels(progress)  # where the property keeps it

    def warm_up(self, progress: Progress = silent) -> None:
        """Ask once in each metric of codes, so that the first reader need not wait for compilers and tables."""
        archive = self.current
        catalogue = archive.catalogue
        subject = archive.stored(catalogue.volumes[0].volume_key, z_index=int(catalogue.z_index[0]))
        metrics = list(archive.tables.normal)
        for done, metric in enumerate(metrics, start=1):
            archive.query(subject, Question(metric=metric, top=1))
            progress(done, len(metrics), metric)
