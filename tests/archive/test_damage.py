"""Flipped bytes and cut files: found, or without effect. Never a wrong answer."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from diptych.archive import ArchiveStore, ArchiveWriter
from diptych.archive.records import ArchiveCodes
from diptych.errors import ArchiveError
from tests.archive.samples import MODEL, make_archive, make_record

VOLUMES = 6


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive with some history, so that its file has free pages too."""
    path = tmp_path_factory.mktemp("pristine") / "A"
    with ArchiveWriter.open(path, model=MODEL) as writer:
        for number in (*range(VOLUMES), 7, 8):
            writer.add(make_record(number, slices=30))
        writer.remove("P-007")
        writer.remove("P-008")
    return path


def check_answers(path: Path) -> str:
    """Read everything: raises AssertionError on any wrong answer, else tells how the damage showed."""
    try:
        codes = ArchiveStore.open(path).codes()
    except ArchiveError:
        return "refused"
    check_codes(codes)
    if codes.problems:
        return "reported"
    assert len(codes.volumes) == VOLUMES
    return "harmless"


def check_codes(codes: ArchiveCodes) -> None:
    for index, info in enumerate(codes.volumes):
        record = make_record(int(info.volume_key[2:]), slices=30)
        mine = codes.volume == index
        assert info == record.info
        assert np.array_equal(codes.normal_ids[mine], record.normal_ids.reshape(30, -1))
        assert np.array_equal(codes.abnormal_ids[mine], record.abnormal_ids.reshape(30, -1))
        assert np.array_equal(codes.z_index[mine], record.z_index)
        assert np.array_equal(codes.lesion_area[mine], record.lesion_area)
        assert np.array_equal(codes.z_mm[mine], record.z_mm)


def damage(path: Path, flips: list[tuple[int, int]]) -> None:
    content = bytearray(path.read_bytes())
    for offset, mask in flips:
        content[offset] ^= mask
    path.write_bytes(content)


def flip_many(pristine: Path, folder: Path, offsets: list[int], rng: np.random.Generator) -> dict[str, int]:
    counts = {"refused": 0, "reported": 0, "harmless": 0}
    shutil.copytree(pristine, folder / "A")
    file = folder / "A" / "archive.sqlite"
    for offset in offsets:
        shutil.copyfile(pristine / file.name, file)
        damage(file, [(offset, int(rng.integers(1, 256)))])
        counts[check_answers(folder / "A")] += 1
    return counts


def test_any_byte_of_the_first_pages_flipped_gives_no_wrong_answer(pristine: Path, tmp_path: Path) -> None:
    """The file header, the table definitions, the header row: where one byte can do the most."""
    content = (pristine / "archive.sqlite").read_bytes()
    used = [i for i in range(2 * 8192) if content[i]]
    rng = np.random.default_rng(0)
    counts = flip_many(pristine, tmp_path, [*range(100), *rng.choice(used, 300).tolist()], rng)
    assert counts["refused"] > 200


def test_random_flips_give_no_wrong_answer(pristine: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    size = (pristine / "archive.sqlite").stat().st_size
    counts = flip_many(pristine, tmp_path, rng.integers(size, size=500).tolist(), rng)
    assert counts["reported"] > 100


@pytest.mark.slow
def test_flips_all_over_the_file_give_no_wrong_answer(pristine: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    size = (pristine / "archive.sqlite").stat().st_size
    flip_many(pristine, tmp_path, list(range(0, size, 11)), rng)


def test_truncation_anywhere_gives_no_wrong_answer(pristine: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    content = (pristine / "archive.sqlite").read_bytes()
    shutil.copytree(pristine, tmp_path / "A")
    for length in (0, 1, 99, 100, 8192, *rng.integers(len(content), size=60).tolist(), len(content) - 1):
        (tmp_path / "A" / "archive.sqlite").write_bytes(content[:length])
        assert check_answers(tmp_path / "A") != "harmless" or length > len(content) - 3 * 8192


def test_a_damaged_write_ahead_log_is_noticed(tmp_path: Path) -> None:
    """As a killed writer leaves it: everything still in the log."""
    live = tmp_path / "live"
    with ArchiveWriter.open(live, model=MODEL) as writer:
        for number in range(VOLUMES):
            writer.add(make_record(number, slices=30))
        shutil.copytree(live, tmp_path / "killed", ignore=shutil.ignore_patterns("*-shm"))
    log = (tmp_path / "killed" / "archive.sqlite-wal").read_bytes()
    rng = np.random.default_rng(4)
    assert check_answers(tmp_path / "killed") == "harmless"
    for trial, offset in enumerate(rng.integers(len(log), size=80).tolist()):
        copy = tmp_path / f"copy{trial}"
        shutil.copytree(live, copy, ignore=shutil.ignore_patterns("archive.sqlite*"))
        for name in ("archive.sqlite", "archive.sqlite-wal"):
            shutil.copyfile(tmp_path / "killed" / name, copy / name)
        damage(copy / "archive.sqlite-wal", [(offset, int(rng.integers(1, 256)))])
        check_answers(copy)
        shutil.rmtree(copy)


def test_a_lost_write_ahead_log_is_noticed(tmp_path: Path) -> None:
    live = tmp_path / "live"
    make_archive(live, volumes=2)
    with ArchiveWriter.open(live) as writer:
        writer.add(make_record(3))
        shutil.copytree(live, tmp_path / "copy", ignore=shutil.ignore_patterns("*-wal", "*-shm"))
    problems = ArchiveStore.open(tmp_path / "copy").listing().problems
    assert "change 3 was acknowledged, the newest one found is 2" in problems[0]


def test_a_damaged_row_is_named_and_the_others_are_read(pristine: Path, tmp_path: Path) -> None:
    path = spoil_row(pristine, tmp_path / "A", "P-002")
    codes = ArchiveStore.open(path).codes()
    assert [info.volume_key for info in codes.volumes] == ["P-000", "P-001", "P-003", "P-004", "P-005"]
    assert len(codes.problems) == 1
    assert "'P-002'" in codes.problems[0]
    assert codes.version != ArchiveStore.open(pristine).version


def test_adding_a_damaged_volume_again_mends_it(pristine: Path, tmp_path: Path) -> None:
    path = spoil_row(pristine, tmp_path / "A", "P-002")
    with ArchiveWriter.open(path) as writer:
        assert writer.add(make_record(2, slices=30)) == "replaced"
    assert check_answers(path) == "harmless"
    assert ArchiveStore.open(path).version == ArchiveStore.open(pristine).version


def test_repair_drops_damaged_rows_and_names_them(pristine: Path, tmp_path: Path) -> None:
    path = spoil_row(pristine, tmp_path / "A", "P-002")
    with ArchiveWriter.open(path) as writer:
        dropped = writer.repair()
        assert len(dropped) == 1
        assert "'P-002'" in dropped[0]
        assert writer.codes().problems == ()
        assert len(writer.codes().volumes) == VOLUMES - 1


def test_one_damaged_volume_asked_for_by_name_is_an_error(pristine: Path, tmp_path: Path) -> None:
    path = spoil_row(pristine, tmp_path / "A", "P-002")
    with pytest.raises(ArchiveError, match=r"'P-002'.*index this volume again"):
        ArchiveStore.open(path).record("P-002")


def test_a_hidden_row_is_noticed(pristine: Path, tmp_path: Path) -> None:
    shutil.copytree(pristine, tmp_path / "A")
    execute(tmp_path / "A", "DELETE FROM volumes WHERE volume_key = 'P-003'")
    assert "5 volumes are readable, 6 were stored" in ArchiveStore.open(tmp_path / "A").listing().problems[0]


def test_changed_metadata_is_noticed(pristine: Path, tmp_path: Path) -> None:
    shutil.copytree(pristine, tmp_path / "A")
    execute(tmp_path / "A", "UPDATE volumes SET age = 41.5 WHERE volume_key = 'P-003'")
    assert "metadata does not match its checksum" in ArchiveStore.open(tmp_path / "A").listing().problems[0]


def spoil_row(pristine: Path, path: Path, volume_key: str) -> Path:
    shutil.copytree(pristine, path)
    old = make_record(int(volume_key[2:]), slices=30).normal_ids.astype("<u2").tobytes()
    new = bytes([old[0] ^ 1]) + old[1:]
    execute(path, "UPDATE volumes SET normal_ids = ? WHERE volume_key = ?", (new, volume_key))
    return path


def execute(path: Path, statement: str, values: tuple[object, ...] = ()) -> None:
    database = sqlite3.connect(path / "archive.sqlite")
    with database:
        database.execute(statement, values)
    database.close()
