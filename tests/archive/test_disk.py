"""Disks that are full, failing or read-only: a clear error, the old state or the new one, and reading goes on."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from diptych.archive import ArchiveStore, ArchiveWriter
from diptych.errors import ArchiveError
from tests.archive.samples import MODEL, make_archive, make_record
from tests.conftest import ROOT

Change = Callable[[Path, int], tuple[str, str]]
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")


@pytest.fixture(scope="module")
def failing_disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("building the failing disk needs a C compiler on Linux")
    library = tmp_path_factory.mktemp("disk") / "failing_disk.so"
    source = Path(__file__).with_name("failing_disk.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
    return library


@contextmanager
def changes_on_failing_disk(library: Path, *, error: int, once: bool) -> Iterator[Change]:
    """What replaces a volume while call number `fail_at` to the disk fails, and gives the two lines that it tells."""
    environment = {**os.environ, "LD_PRELOAD": str(library), "FAIL_ERRNO": str(error)}
    environment |= {"FAIL_ONCE": "1"} if once else {}
    command = [sys.executable, "-m", "tests.archive.changes"]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        told, answers = program.stdin, program.stdout
        assert told
        assert answers

        def change(folder: Path, fail_at: int) -> tuple[str, str]:
            path = make_archive(folder / "A", volumes=3)
            told.write(f"{path}\t{folder / 'armed'}\t{fail_at}\n")
            told.flush()
            return answers.readline().rstrip("\n"), answers.readline().rstrip("\n")

        yield change
        told.close()


def check_old_or_new(path: Path, *, stored: bool) -> None:
    codes = ArchiveStore.open(path).codes()
    assert codes.problems == ()
    ids = codes.normal_ids[codes.volume == 1]
    old, new = make_record(1).normal_ids.reshape(-1, 15), make_record(1, seed=5, slices=60).normal_ids.reshape(-1, 15)
    assert np.array_equal(ids, new) or (not stored and np.array_equal(ids, old))
    assert len(codes.volumes) == 3


def fail_everywhere(folder: Path, library: Path, *, error: int, once: bool) -> int:
    """Let call 1, 2, 3, … fail until the change goes through untouched; return how many calls there were."""
    with changes_on_failing_disk(library, error=error, once=once) as change:
        for fail_at in range(1, 60):
            case = folder / f"{fail_at}"
            case.mkdir()
            outcome, readable = change(case, fail_at)
            check_old_or_new(case / "A", stored=outcome == "stored")
            assert readable == "readable 3"
            if outcome == "stored":
                return fail_at
            assert "all earlier ones are safe" in outcome
    raise AssertionError("the change never went through")


def test_a_failed_sync_is_not_acknowledged(tmp_path: Path, failing_disk: Path) -> None:
    calls = fail_everywhere(tmp_path, failing_disk, error=errno.EIO, once=True)
    assert calls > 3  # at least a header, pages and a sync had their turn


@pytest.mark.slow
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_every_failing_write_and_sync_leaves_the_old_state_or_the_new(
    tmp_path: Path, failing_disk: Path, error: int
) -> None:
    assert fail_everywhere(tmp_path, failing_disk, error=error, once=False) > 3


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of half a megabyte."""
    folder = tmp_path / "small"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "none", str(folder)], check=False)
    if done.returncode != 0:
        pytest.skip("this machine does not let root mount a tmpfs")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@root_only
def test_a_full_disk_keeps_what_was_stored_and_reading_goes_on(small_disk: Path) -> None:
    stored: list[str] = []

    def fill(writer: ArchiveWriter) -> None:
        for number in range(100):
            writer.add(make_record(number, slices=80))
            stored.append(f"P-{number:03d}")

    with ArchiveWriter.open(small_disk / "A", model=MODEL) as writer:
        with pytest.raises(ArchiveError, match="disk is full"):
            fill(writer)
        assert len(stored) > 5
        assert [info.volume_key for info in writer.codes().volumes] == stored
    codes = ArchiveStore.open(small_disk / "A").codes()
    assert [info.volume_key for info in codes.volumes] == stored
    assert codes.problems == ()


@root_only
def test_a_disk_with_no_byte_left_can_still_be_read(small_disk: Path) -> None:
    make_archive(small_disk / "A")
    with pytest.raises(OSError, match="No space"):
        (small_disk / "filler").write_bytes(bytes(1 << 20))
    assert len(ArchiveStore.open(small_disk / "A").codes().volumes) == 5


def test_a_full_database_is_a_clear_error(tmp_path: Path) -> None:
    with ArchiveWriter.open(make_archive(tmp_path / "A")) as writer:
        pages = writer._database.execute("PRAGMA page_count").fetchone()[0]
        writer._database.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(ArchiveError, match=r"disk is full.*free some space.*all earlier ones are safe"):
            writer.add(make_record(9, slices=500))
        assert writer.stat().volumes == 5


@root_only
def test_a_read_only_medium_is_read_and_refuses_changes(tmp_path: Path) -> None:
    path = make_archive(tmp_path / "A")
    mounted = subprocess.run(["mount", "--bind", str(path), str(path)], check=False).returncode == 0
    if not mounted or subprocess.run(["mount", "-o", "remount,ro,bind", str(path)], check=False).returncode != 0:
        pytest.skip("this machine does not let root mount a folder read-only")
    try:
        assert len(ArchiveStore.open(path).codes().volumes) == 5
        with pytest.raises(ArchiveError, match="Read-only file system"):
            ArchiveWriter.open(path)
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_one_may_not_write_is_read_and_refuses_changes(tmp_path: Path) -> None:
    path = make_archive(tmp_path / "A")
    for file in path.iterdir():
        file.chmod(0o400)
    path.chmod(0o500)
    try:
        assert len(ArchiveStore.open(path).codes().volumes) == 5
        with pytest.raises(ArchiveError, match="Permission denied"):
            ArchiveWriter.open(path)
    finally:
        path.chmod(0o700)
