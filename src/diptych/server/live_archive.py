"""`Library`: the archive that is served, always in its newest version.

Knows retrieval and time. A change on disk is noticed within `CHECK_EVERY` seconds; whoever notices it reads the new
version while the others still ask the old one.
"""

from __future__ import annotations

import time
from threading import Lock

from diptych.errors import ArchiveError
from diptych.metrics.searcher import DEFAULT
from diptych.progress import Progress, silent
from diptych.retrieval import Archive, Question
from diptych.search import PANELS

CHECK_EVERY = 1.0


class Library:
    """Hands out the current archive."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._checked = time.monotonic()
        self._refreshing = Lock()
        self.problem: str | None = None
        """Why the newest version cannot be read; what is in memory is searched meanwhile."""

    @property
    def current(self) -> Archive:
        """The archive as it is now, or was a moment ago."""
        if time.monotonic() - self._checked > CHECK_EVERY and self._refreshing.acquire(blocking=False):
            try:
                self._archive, self.problem = self._archive.refreshed(), None
            except (ArchiveError, OSError) as error:
                self.problem = f"the archive's file cannot be read, the last version is searched ({error})"
            finally:
                self._checked = time.monotonic()
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
        return self._archive.description.channels

    def warm_up(self, progress: Progress = silent) -> None:
        """Ask once in every way that begins at once, the default first: compilers and tables keep no reader waiting."""
        archive = self.current
        catalogue, searcher = archive.catalogue, archive.searcher
        subject = archive.stored(catalogue.volumes[0].volume_key, z_index=int(catalogue.z_index[0]))
        metrics = [DEFAULT, *(metric for metric in searcher.offered("both") if searcher.ready(metric))]
        for done, metric in enumerate(metrics, start=1):
            archive.query(subject, Question(metric=metric, top=1))
            progress(done, len(metrics), metric)
        if archive.patient_search.labels.keys() >= set(PANELS):
            archive.similar_patients(archive.store.record(catalogue.volumes[0].volume_key), Question(top=1))
