"""How long it takes to open an archive and to answer the first query, in a fresh process.

    python benchmarks/search.py --opening --slices 1m
    python benchmarks/opening.py ARCHIVE KEY          processor time of the whole command `diptych search ARCHIVE KEY`

An archive of made-up codes is written as `diptych index` writes it, volume by volume, in a folder that is deleted at
the end. It is opened twice: once to build the cache, and once more, with a warm disk, in the process that is timed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np

from diptych.archive import ArchiveWriter, ModelIdentity, VolumeInfo, VolumeRecord
from diptych.search.synthetic import SyntheticArchive, synthetic_archive

GOAL = 3.0
"""Seconds, for one million slices."""
COMMAND_GOAL = 1.5
"""Seconds of processor time, for the command."""
ROUNDS = 5

FIRST_QUERY = """
import time
start = time.perf_counter()
import sys
import numpy as np
from diptych.archive import ArchiveStore
from diptych.retrieval.catalogue import open_catalogue
from diptych.search import Query, SearchEngine
from diptych.search.tables import Tables, panel_tables
imported = time.perf_counter()
path, codebooks = sys.argv[1], np.load(sys.argv[2])
tables = Tables(*(panel_tables(codebooks[panel], cells=64) for panel in ("normal", "abnormal")))
catalogue = open_catalogue(ArchiveStore.open(path), tables)
opened = time.perf_counter()
ids = catalogue.index.codes["normal"].ids(np.array([77]))[0].reshape(catalogue.index.grid)
found = SearchEngine(catalogue.index, tables).search(Query(normal=ids))
assert found[0].distance == 0
answered = time.perf_counter()
print(imported - start, opened - imported, answered - opened)
"""


def report_opening(slices: int) -> None:
    """Print how long each part takes."""
    made = synthetic_archive(slices, codes=165, seed=1)
    with tempfile.TemporaryDirectory() as folder:
        path, codebooks = Path(folder) / "archive", Path(folder) / "codebooks.npz"
        np.savez(codebooks, normal=made.normal_codebook, abnormal=made.abnormal_codebook)
        start = time.perf_counter()
        write_archive(made, path)
        print(
            f"{slices} slices in {made.volume_of_slice[-1] + 1} volumes written in {time.perf_counter() - start:.0f} s"
        )
        command = [sys.executable, "-c", FIRST_QUERY, str(path), str(codebooks)]
        for title in ("without a cache", "from the cache"):
            printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            importing, opening, answering = (float(part) for part in printed.split())
            total = importing + opening + answering
            print(
                f"{title:16}  imports {importing:5.2f} s, opening {opening:5.2f} s, first query {answering:5.2f} s, "
                f"together {total:5.2f} s"
            )
        print(f"goal {GOAL:.0f} s for opening and first query: {'yes' if opening + answering < GOAL else 'NO'}")


def report_command(archive: str, key: str) -> None:
    """Print what the command costs from its start to its end, imports included; the first run fills caches."""
    command = [sys.executable, "-m", "diptych", "search", archive, key]
    spent = []
    for _ in range(ROUNDS + 1):
        before = os.times()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        after = os.times()
        spent.append(after.children_user + after.children_system - before.children_user - before.children_system)
    print(f"diptych search {archive} {key}: first {spent[0]:.2f} s, then", ", ".join(f"{s:.2f}" for s in spent[1:]))
    print(f"goal {COMMAND_GOAL} s: {'yes' if sorted(spent[1:])[ROUNDS // 2] < COMMAND_GOAL else 'NO'}")


def write_archive(made: SyntheticArchive, path: Path) -> None:
    """One volume per patient, one transaction per volume."""
    model = ModelIdentity("0" * 64, made.grid, len(made.normal_codebook), len(made.abnormal_codebook))
    edges = np.flatnonzero(np.diff(made.volume_of_slice, prepend=-1, append=-1)).tolist()
    with ArchiveWriter.open(path, model=model) as writer:
        for number, (first, end) in enumerate(pairwise(edges)):
            writer.add(record(made, number, slice(first, end)))


def record(made: SyntheticArchive, number: int, slices: slice) -> VolumeRecord:
    count = slices.stop - slices.start
    return VolumeRecord(
        info=VolumeInfo(volume_key=f"V-{number:06d}", patient_key=f"P-{number:06d}", lesion_source="labels"),
        normal_ids=made.normal[slices].reshape(count, *made.grid),
        abnormal_ids=made.abnormal[slices].reshape(count, *made.grid),
        z_index=np.arange(count, dtype=np.uint16),
        position=np.linspace(0, 1, count, dtype=np.float32),
        z_mm=np.arange(count, dtype=np.float32),
        lesion_area=np.where(made.lesion_free[slices], 0, 100).astype(np.float32),
        slice_affine=np.eye(4),
    )


if __name__ == "__main__":
    report_command(*sys.argv[1:3])
