"""kill -9 at random moments of indexing: nothing acknowledged is lost, nothing is doubled, and it opens at once."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import TextIO

import numpy as np
import pytest

from diptych.archive import ArchiveStore, ArchiveWriter
from diptych.archive.integrity import verify_archive
from diptych.errors import ArchiveError
from tests.archive.patients import FakeEncoder, index_aloud, write_patient

PATIENTS = 24


@pytest.fixture(scope="module")
def patients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("patients")
    for number in range(PATIENTS):
        write_patient(folder, f"K-{number:02d}", seed=number)
    return folder


def start(patients: Path, archive: Path) -> tuple[int, TextIO]:
    """Index in another process; what it tells."""
    told, telling = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with os.fdopen(telling, "w") as out:
                index_aloud(patients, archive, out)
            os._exit(0)
        finally:
            os._exit(1)
    os.close(telling)
    return child, os.fdopen(told)


def run_and_kill(
    patients: Path, archive: Path, *, stored: int, delay: float = 0.0, by: signal.Signals = signal.SIGKILL
) -> set[str]:
    """Index in another process, stop it `delay` seconds after so many patients; return the acknowledged keys."""
    child, told = start(patients, archive)
    with told:
        printed = [told.readline() for _ in range(1 + stored)]
        assert printed[0] == "ready\n"
        time.sleep(delay)
        os.kill(child, by)
        printed += told.readlines()
    os.waitpid(child, 0)
    return {line.split()[1] for line in printed if line.startswith("stored ")}


def check_kills(patients: Path, archive: Path, kills: int) -> None:
    rng = np.random.default_rng(kills)
    acknowledged: set[str] = set()
    for _ in range(kills):
        if len(acknowledged) == PATIENTS:  # a finished archive is no test: begin anew
            shutil.rmtree(archive)
            acknowledged = set()
        stored, delay = int(rng.integers(6)), float(rng.uniform(0.0, 0.05))  # on any machine, somewhere in the work
        acknowledged |= run_and_kill(patients, archive, stored=stored, delay=delay)
        if (archive / "archive.sqlite").exists():
            check_archive(archive, acknowledged)


def check_archive(archive: Path, acknowledged: set[str]) -> None:
    try:
        codes = ArchiveStore.open(archive).codes()
    except ArchiveError:
        assert not acknowledged  # killed while it was being made
        return
    assert codes.problems == ()
    assert acknowledged <= {info.volume_key for info in codes.volumes}
    assert verify_archive(ArchiveStore.open(archive), encoder=FakeEncoder(), sample=2).problems == ()
    with closing(sqlite3.connect(archive / "archive.sqlite")) as database:
        rows, keys = database.execute("SELECT count(*), count(DISTINCT volume_key) FROM volumes").fetchone()
    assert rows == keys == len(codes.volumes)


def test_five_kills_lose_and_double_nothing(patients: Path, tmp_path: Path) -> None:
    check_kills(patients, tmp_path / "A", 5)


@pytest.mark.slow
def test_forty_kills_lose_and_double_nothing(patients: Path, tmp_path: Path) -> None:
    check_kills(patients, tmp_path / "A", 40)


def test_ctrl_c_keeps_what_was_acknowledged_and_closes_the_file(patients: Path, tmp_path: Path) -> None:
    acknowledged = run_and_kill(patients, tmp_path / "A", stored=4, by=signal.SIGINT)
    assert not (tmp_path / "A" / "archive.sqlite-wal").exists()
    check_archive(tmp_path / "A", acknowledged)


def test_a_killed_run_goes_on_where_it_was_and_leaves_no_stray_copy(patients: Path, tmp_path: Path) -> None:
    acknowledged = run_and_kill(patients, tmp_path / "A", stored=6)
    child, told = start(patients, tmp_path / "A")
    with told:
        assert told.read().endswith("done\n")
    assert os.waitpid(child, 0)[1] == 0
    assert len(acknowledged) < PATIENTS
    with ArchiveWriter.open(tmp_path / "A") as writer:
        writer.compact()
        assert writer.stat().volumes == PATIENTS
    assert len(list((tmp_path / "A" / "volumes").iterdir())) == PATIENTS
