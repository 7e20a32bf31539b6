"""kill -9 at random moments of changing and opening: the archive opens, and answers as one made afresh."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from diptych.archive import ArchiveStore, ArchiveWriter
from diptych.archive.rows import StoredLabels
from diptych.errors import ArchiveError
from diptych.retrieval.catalogue import Catalogue, open_catalogue
from diptych.search import PANELS
from diptych.search.label_maps import LabelMaps
from diptych.search.label_storage import pack_labels
from diptych.search.tables import Tables, panel_tables
from tests.archive.samples import MODEL, make_record


def tables() -> Tables:
    rng = np.random.default_rng(0)
    sizes = MODEL.normal_codes, MODEL.abnormal_codes
    return Tables(*(panel_tables(rng.normal(size=(size, 3)), cells=MODEL.cells) for size in sizes))


def labels(number: int) -> StoredLabels:
    rng = np.random.default_rng(number)
    levels = np.zeros((12, 2, 8, 8), dtype=np.uint8)
    levels[:, :, rng.integers(6) :, 2:5] = 2
    return pack_labels(dict.fromkeys(PANELS, LabelMaps.pack(levels)), "made up")


def change(path: Path, seed: int) -> None:
    """Add, replace, remove and open until somebody kills it."""
    rng, given = np.random.default_rng(seed), tables()
    while True:
        number = int(rng.integers(12))
        with ArchiveWriter.open(path, model=MODEL) as writer:
            if rng.random() < 0.3 and f"P-{number:03d}" in [info.volume_key for info in writer.listing().volumes]:
                writer.remove(f"P-{number:03d}")
            else:
                writer.add(make_record(number, seed=int(rng.integers(3))), labels(number))
            if rng.random() < 0.1:
                writer.compact()
        try:
            open_catalogue(ArchiveStore.open(path), given)
        except ArchiveError:  # nothing left in it
            continue


def kill_after(path: Path, seconds: float, seed: int) -> None:
    child = os.fork()
    if child == 0:
        try:
            change(path, seed)
        finally:
            os._exit(1)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def contents(catalogue: Catalogue) -> list[object]:
    every = np.arange(len(catalogue.index))
    return [
        [info.volume_key for info in catalogue.volumes],
        *[catalogue.index.codes[panel].ids(every).tolist() for panel in PANELS],
        catalogue.z_mm.tolist(),
        catalogue.index.patient_of_volume.tolist(),
        catalogue.index.lesion_free.tolist(),
    ]


def check_kills(path: Path, kills: int) -> None:
    rng, given = np.random.default_rng(kills), tables()
    with ArchiveWriter.open(path, model=MODEL) as writer:
        writer.add(make_record(99), labels(99))
    for number in range(kills):
        kill_after(path, float(rng.uniform(0.02, 0.4)), seed=number)
        store = ArchiveStore.open(path)
        found, codes = open_catalogue(store, given), store.codes()
        assert found.problems == ()
        assert contents(found)[0] == [info.volume_key for info in codes.volumes]
        assert contents(found)[1:3] == [codes.normal_ids.tolist(), codes.abnormal_ids.tolist()]
        assert contents(found)[3] == codes.z_mm.tolist()
        assert all(set(segment) == set(PANELS) for segment in found.labels)


def test_three_kills_leave_an_archive_that_opens_exactly(tmp_path: Path) -> None:
    check_kills(tmp_path / "A", 3)


@pytest.mark.slow
def test_sixty_kills_leave_an_archive_that_opens_exactly(tmp_path: Path) -> None:
    check_kills(tmp_path / "A", 60)
