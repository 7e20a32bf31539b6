"""Keys that name nobody: research ids stay, names become pseudonyms, and everything by the old name still works."""

from __future__ import annotations

from pathlib import Path

import pytest

from diptych.archive import ArchiveStore
from diptych.archive.audit import AuditLog
from diptych.archive.backup import back_up, restore
from diptych.archive.indexing import IndexOptions
from diptych.archive.pseudonyms import SECRET, ArchiveKeys, archive_secret, is_research_id
from diptych.errors import ArchiveError
from diptych.volumes import subject_of
from tests.archive.patients import write_patient
from tests.archive.test_indexing import run_index
from tests.retrieval.running import run

NAME = "DOE_JANE_1957"
KEPT = """BraTS20_Training_001 BraTS-GLI-00013-000 BraTS2021_00000 UPENN-GBM-00001_11 UCSF-PDGM-0004 TCGA-06-0125
    ARC-M2001 sub-r009s012 sub-strokecase0001_ses-0001 P1 Case-1 Patient_042 IXI002 PhantomStroke-00001-00002
    Intake-0123456789-abcdef Anon-0123456789ab-012345"""
HIDDEN = """Doe_Jane JaneDoe doe-1 Mueller.Anna.1957 1957-03-12 case-12.03.1957 1234567 sub-19570312 KIM2 Lee
    sub-doejane patient-doe Intake-doejane Anon-jane"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for seed, key in enumerate((NAME, "BraTS-GLI-00001-000")):
        write_patient(tmp_path / "in", key, seed=seed)
    return tmp_path / "in"


def keys(archive: Path) -> list[str]:
    return sorted(info.volume_key for info in ArchiveStore.open(archive).listing().volumes)


@pytest.mark.parametrize("key", KEPT.split())
def test_research_ids_stay(key: str) -> None:
    assert is_research_id(key)


@pytest.mark.parametrize("key", HIDDEN.split())
def test_names_dates_and_hospital_numbers_do_not(key: str) -> None:
    assert not is_research_id(key)


def test_no_byte_of_the_archive_names_the_patient(source: Path, tmp_path: Path) -> None:
    report = run_index(source, tmp_path / "A")
    (pseudonym,) = [key for key in keys(tmp_path / "A") if key != "BraTS-GLI-00001-000"]
    assert pseudonym.startswith("Anon-")
    assert (report.renamed, sorted(report.added)) == (1, keys(tmp_path / "A"))
    for path in (tmp_path / "A").rglob("*"):
        assert NAME not in str(path.relative_to(tmp_path / "A"))
        assert not path.is_file() or NAME.encode() not in path.read_bytes()


def test_indexing_again_finds_everybody_unchanged_whatever_keys_are_asked_for(source: Path, tmp_path: Path) -> None:
    first = run_index(source, tmp_path / "A")
    assert run_index(source, tmp_path / "A").unchanged == first.added
    assert run_index(source, tmp_path / "A", IndexOptions(keys="names")).unchanged == first.added
    run_index(source, tmp_path / "B", IndexOptions(keys="names"))
    assert len(run_index(source, tmp_path / "B").unchanged) == 2
    assert keys(tmp_path / "B") == ["BraTS-GLI-00001-000", NAME]


def test_all_can_be_pseudonyms_and_visits_stay_together(tmp_path: Path) -> None:
    for visit in range(2):
        write_patient(tmp_path / "in", f"BraTS-GLI-00001-00{visit}", seed=visit)
    run_index(tmp_path / "in", tmp_path / "A", IndexOptions(keys="pseudonyms"))
    first, second = keys(tmp_path / "A")
    assert first.startswith("Anon-")
    assert subject_of(first) == subject_of(second) != first


def test_a_table_may_use_the_names(source: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"key,sex\n{NAME},F\n")
    run_index(source, tmp_path / "A", IndexOptions(metadata=tmp_path / "t.csv"))
    assert ArchiveStore.open(tmp_path / "A").record(NAME).info.sex == "F"


def test_the_owner_still_removes_by_name_and_the_log_has_the_pseudonym(source: Path, tmp_path: Path) -> None:
    run_index(source, tmp_path / "A")
    done = run("archive", "remove", tmp_path / "A", NAME)
    assert done.exit_code == 0, done.output
    assert keys(tmp_path / "A") == ["BraTS-GLI-00001-000"]
    (event,) = [one for one in AuditLog(tmp_path / "A").read() if one["event"] == "delete"]
    assert event["what"]["volumes"][0].startswith("Anon-")


def test_another_archive_or_a_guess_gives_another_pseudonym(tmp_path: Path) -> None:
    (tmp_path / "A").mkdir()
    secret = archive_secret(tmp_path / "A")
    assert ArchiveKeys(secret).pseudonym(NAME) == ArchiveKeys.of_archive(tmp_path / "A").pseudonym(NAME)
    assert ArchiveKeys(secret).pseudonym(NAME) != ArchiveKeys(bytes(32)).pseudonym(NAME)
    assert (tmp_path / "A" / SECRET).stat().st_mode & 0o077 == 0


def test_a_restored_archive_knows_the_names_and_a_spoilt_secret_is_said(source: Path, tmp_path: Path) -> None:
    run_index(source, tmp_path / "A")
    back_up(tmp_path / "A", tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "B")
    assert ArchiveStore.open(tmp_path / "B").known_as(NAME).startswith("Anon-")
    (tmp_path / "B" / SECRET).write_text("ab")
    with pytest.raises(ArchiveError, match="restore it from a backup"):
        run_index(source, tmp_path / "B")
