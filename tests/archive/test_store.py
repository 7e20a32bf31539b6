"""What goes in comes out: adding, replacing, removing, reading, refusing."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from diptych.archive import ArchiveStore, ArchiveWriter, VolumeRecord, schema
from diptych.archive.rows import StoredLabels
from diptych.errors import ArchiveError, ArchiveLockedError, ArchiveMismatchError
from tests.archive.samples import MODEL, make_archive, make_record


def equal(a: VolumeRecord, b: VolumeRecord) -> bool:
    names = ("normal_ids", "abnormal_ids", "z_index", "position", "z_mm", "lesion_area", "slice_affine")
    return a.info == b.info and all(np.array_equal(getattr(a, name), getattr(b, name)) for name in names)


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    archive = ArchiveStore.open(make_archive(tmp_path / "A"))
    assert equal(archive.record("P-003"), make_record(3))


def test_codes_join_the_records_in_the_order_of_their_keys(tmp_path: Path) -> None:
    with ArchiveWriter.open(tmp_path / "A", model=MODEL) as writer:
        for number in (2, 0, 1):
            writer.add(make_record(number, slices=3 + number))
        codes = writer.codes()
    expected = np.concatenate([make_record(n, slices=3 + n).normal_ids.reshape(-1, 15) for n in range(3)])
    np.testing.assert_array_equal(codes.normal_ids, expected)
    assert [info.volume_key for info in codes.volumes] == ["P-000", "P-001", "P-002"]
    assert codes.volume.tolist() == [0] * 3 + [1] * 4 + [2] * 5
    assert [codes.normal_ids.itemsize, codes.abnormal_ids.itemsize] == [2, 1]


def test_an_empty_archive_has_empty_codes(tmp_path: Path) -> None:
    codes = ArchiveStore.open(make_archive(tmp_path / "A", volumes=0)).codes()
    assert codes.normal_ids.shape == (0, 15)


def test_adding_again_changes_nothing(tmp_path: Path) -> None:
    with ArchiveWriter.open(make_archive(tmp_path / "A")) as writer:
        before = writer.version
        assert writer.add(make_record(2)) == "unchanged"
        assert writer.version == before


def test_adding_other_content_replaces(tmp_path: Path) -> None:
    with ArchiveWriter.open(make_archive(tmp_path / "A")) as writer:
        assert writer.add(make_record(2, seed=1, slices=7)) == "replaced"
        assert equal(writer.record("P-002"), make_record(2, seed=1, slices=7))
        assert (writer.stat().volumes, writer.stat().slices) == (5, 4 * 12 + 7)


def test_a_removed_volume_is_gone_at_once(tmp_path: Path) -> None:
    reader = ArchiveStore.open(make_archive(tmp_path / "A"))
    with ArchiveWriter.open(tmp_path / "A") as writer:
        writer.remove("P-002")
        assert "P-002" not in [info.volume_key for info in reader.codes().volumes]


def test_removing_a_patient_takes_all_its_volumes(tmp_path: Path) -> None:
    with ArchiveWriter.open(make_archive(tmp_path / "A")) as writer:
        assert writer.remove_patient("P-001") == ("P-002", "P-003")
        assert writer.stat().volumes == 3


def test_the_version_names_the_content_not_its_history(tmp_path: Path) -> None:
    straight = ArchiveStore.open(make_archive(tmp_path / "A", volumes=2))
    with ArchiveWriter.open(tmp_path / "B", model=MODEL) as writer:
        writer.add(make_record(1, seed=9))
        writer.add(make_record(1))
        writer.add(make_record(5))
        writer.add(make_record(0))
        writer.remove("P-005")
    assert ArchiveStore.open(tmp_path / "B").version == straight.version


def test_after_compact_no_byte_of_a_removed_patient_is_left(tmp_path: Path) -> None:
    secret = make_record(0, slices=40)
    secret = replace(secret, info=replace(secret.info, volume_key="CANARY-KEY", source="CANARY-SOURCE"))
    with ArchiveWriter.open(make_archive(tmp_path / "A", volumes=30), model=MODEL) as writer:
        writer.add(secret)
        (writer.cache_folder).mkdir()
        (writer.cache_folder / "codes").write_bytes(b"CANARY-CACHE")
        writer.remove("CANARY-KEY")
        writer.compact()
        held = b"".join(file.read_bytes() for file in (tmp_path / "A").rglob("*") if file.is_file())
    assert b"CANARY" not in held
    assert secret.normal_ids[20].astype("<u2").tobytes()[:16] not in held


def test_compact_returns_the_space(tmp_path: Path) -> None:
    with ArchiveWriter.open(make_archive(tmp_path / "A", volumes=20, slices=100)) as writer:
        for number in range(1, 20):
            writer.remove(f"P-{number:03d}")
        freed = writer.compact()
        assert freed > 15 * 100 * 15 * 3
        assert equal(writer.record("P-000"), make_record(0, slices=100))


def test_everything_in_the_folder_is_private(tmp_path: Path) -> None:
    with ArchiveWriter.open(make_archive(tmp_path / "A")) as writer:
        writer.add(make_record(9))
        files = {file.name: stat.S_IMODE(file.stat().st_mode) for file in writer.path.iterdir()}
        assert set(files.values()) == {0o600}
        assert "archive.sqlite-wal" in files
    assert stat.S_IMODE((tmp_path / "A").stat().st_mode) == 0o700


def test_a_second_writer_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    with ArchiveWriter.open(make_archive(tmp_path / "A")), pytest.raises(ArchiveLockedError, match=str(os.getpid())):
        ArchiveWriter.open(tmp_path / "A")
    ArchiveWriter.open(tmp_path / "A").close()


def test_another_model_is_refused_and_both_are_named(tmp_path: Path) -> None:
    other = replace(MODEL, fingerprint="b" * 64)
    path = make_archive(tmp_path / "A")
    for opener in (ArchiveStore.open, ArchiveWriter.open):
        with pytest.raises(ArchiveMismatchError, match=r"model aaaaaaaa.* not by model bbbbbbbb"):
            opener(path, model=other)
    ArchiveWriter.open(path).close()  # the refusal left no lock behind


def test_a_newer_format_is_refused_and_both_are_named(tmp_path: Path) -> None:
    path = make_archive(tmp_path / "A")
    _execute(path, "PRAGMA user_version = 7")
    for opener in (ArchiveStore.open, ArchiveWriter.open):
        with pytest.raises(ArchiveMismatchError, match=r"format 7.* up to 2"):
            opener(path)


def test_an_older_format_is_brought_up_to_date_by_the_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_archive(tmp_path / "A")
    _execute(path, "PRAGMA user_version = 0", "ALTER TABLE header RENAME TO old_header", "DROP TABLE label_maps")

    def step(database: sqlite3.Connection) -> None:
        database.execute("UPDATE old_header SET id = id")
        database.execute("CREATE TABLE kept AS SELECT * FROM old_header")
        database.execute("DROP TABLE old_header")
        database.execute(schema.HEADER_TABLE)
        database.execute("INSERT INTO header SELECT * FROM kept")
        database.execute("DROP TABLE kept")

    with pytest.raises(ArchiveMismatchError, match="cannot bring up to date"):
        ArchiveWriter.open(path)
    monkeypatch.setitem(schema.MIGRATIONS, 0, step)
    ArchiveWriter.open(path).close()
    assert equal(ArchiveStore.open(path).record("P-001"), make_record(1))


def test_the_first_format_is_read_as_it_is_and_gets_label_maps_when_written(tmp_path: Path) -> None:
    path = make_archive(tmp_path / "A")
    _execute(path, "PRAGMA user_version = 1", "DROP TABLE label_maps")
    assert ArchiveStore.open(path).listing().label_versions == (None,) * 5
    with ArchiveWriter.open(path) as writer:
        writer.add_labels("P-001", StoredLabels("decoders 1", b"maps"))
    listing = ArchiveStore.open(path).listing()
    assert listing.label_versions == (None, "decoders 1", None, None, None)
    (stored,), _ = ArchiveStore.open(path).stored(["P-001"])
    assert stored.labels == StoredLabels("decoders 1", b"maps")
    assert stored.identity == listing.identities[1]


def test_label_maps_of_other_codes_do_not_count(tmp_path: Path) -> None:
    path = make_archive(tmp_path / "A")
    with ArchiveWriter.open(path) as writer:
        writer.add_labels("P-001", StoredLabels("decoders 1", b"maps"))
        writer.add(make_record(1, seed=9))
        assert writer.listing().label_versions[1] is None


@pytest.mark.parametrize("content", [None, b"", b"not a database, but long enough to have a header" * 100])
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes | None) -> None:
    (tmp_path / "A").mkdir()
    if content is not None:
        (tmp_path / "A" / "archive.sqlite").write_bytes(content)
    with pytest.raises(ArchiveError, match="archive"):
        ArchiveStore.open(tmp_path / "A")


def test_a_creation_cut_short_is_completed(tmp_path: Path) -> None:
    (tmp_path / "A").mkdir()
    (tmp_path / "A" / "archive.sqlite").touch()
    assert ArchiveStore.open(make_archive(tmp_path / "A")).stat().volumes == 5


def test_an_unknown_volume_is_an_error_that_names_near_keys(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match=r"no volume 'P-0004'; near to it: P-004"):
        ArchiveStore.open(make_archive(tmp_path / "A")).record("P-0004")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: replace(r, normal_ids=r.normal_ids.transpose(0, 2, 1)), r"normal_ids has shape \(12, 5, 3\)"),
        (lambda r: replace(r, abnormal_ids=r.abnormal_ids + 40), "codebook has 40 codes"),
        (lambda r: replace(r, position=r.position[1:]), "position has shape"),
        (lambda r: replace(r, z_index=r.z_index[::-1]), "z_index must grow"),
        (lambda r: replace(r, info=replace(r.info, sex="female")), "must be one of F, M, O"),
        (lambda r: replace(r, info=replace(r.info, age=-3.0)), "between 0 and 150"),
        (lambda r: replace(r, info=replace(r.info, study_date="3/4/2001")), "YYYY-MM-DD"),
        (lambda r: replace(r, info=replace(r.info, volume_key="a\nb")), "printable"),
    ],
)
def test_a_record_that_cannot_be_is_refused(tmp_path: Path, change, message: str) -> None:  # type: ignore[no-untyped-def]
    with ArchiveWriter.open(tmp_path / "A", model=MODEL) as writer:
        with pytest.raises(ArchiveError, match=message):
            writer.add(change(make_record(0)))
        assert writer.stat().volumes == 0


def test_eight_readers_beside_a_writer_each_see_one_version(tmp_path: Path) -> None:
    """The writer swaps all codes of a volume for another seed's; a mixture would show."""
    path = make_archive(tmp_path / "A", volumes=2)
    expected = {seed: make_record(1, seed=seed, slices=5 + seed).normal_ids.reshape(-1, 15) for seed in range(6)}
    expected[-1] = make_record(1).normal_ids.reshape(-1, 15)
    done, seen, failures = threading.Event(), set(), []

    def read() -> None:
        archive = ArchiveStore.open(path)
        while not done.is_set():
            codes = archive.codes()
            ids = codes.normal_ids[codes.volume == 1]
            matches = [seed for seed, wanted in expected.items() if np.array_equal(ids, wanted)]
            seen.update(matches)
            if len(matches) != 1 or codes.problems:
                failures.append((matches, codes.problems))

    readers = [threading.Thread(target=read) for _ in range(8)]
    with ArchiveWriter.open(path) as writer:
        for reader in readers:
            reader.start()
        for turn in range(60):
            seed = turn % 6
            writer.add(make_record(1, seed=seed, slices=5 + seed))
        done.set()
        for reader in readers:
            reader.join()
    assert failures == []
    assert len(seen) > 1


def test_a_reader_in_another_process_is_not_blocked_by_an_open_transaction(tmp_path: Path) -> None:
    path = make_archive(tmp_path / "A")
    with ArchiveWriter.open(path) as writer, writer._change():
        program = f"from diptych.archive import ArchiveStore; print(ArchiveStore.open({str(path)!r}).stat().volumes)"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "5"


def _execute(path: Path, *statements: str) -> None:
    database = sqlite3.connect(path / "archive.sqlite", isolation_level=None)
    for statement in statements:
        database.execute(statement)
    database.close()
