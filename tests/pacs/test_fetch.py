"""Studies come from a real Orthanc, over both protocols, once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from diptych.archive import ArchiveStore
from diptych.errors import PacsError
from diptych.pacs import Wanted, connect, fetch_study
from diptych.pacs.incoming import Incoming
from diptych.pacs.orthanc import Orthanc
from diptych.pacs.servers import PacsConfig

SERVERS = ("hospital", "old", "mover")


def volumes(archive: Path) -> list[str]:
    return [one.volume_key for one in ArchiveStore.open(archive).listing().volumes]


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_lists_its_studies(name: str, config: PacsConfig) -> None:
    remote = connect(config.server(name))
    remote.echo()
    (found,) = remote.studies(Wanted(patient_id="CANARY-4711"))
    assert (found.date, "MR" in found.modalities) == ("20190813", True)
    assert not list(remote.studies(Wanted(patient_id="NOBODY")))
    series = remote.series(found.uid)
    assert {one.description for one in series} == {"MPRAGE sag", "T1 SE ax Gd", "T2 TSE ax", "FLAIR cor"}
    assert len(remote.instances(found.uid, series[0].uid)) == series[0].instances


@pytest.mark.parametrize("name", SERVERS)
def test_a_study_is_fetched_and_indexed_once(name: str, config: PacsConfig, incoming: Incoming) -> None:
    remote = connect(config.server(name))
    (entry,) = remote.studies(Wanted(patient_id="CANARY-4711"))
    outcome = fetch_study(remote, entry.uid, incoming)
    assert outcome.state == "done", outcome
    assert volumes(incoming.archive) == [outcome.volume_key]
    assert not incoming.study_folder(outcome.study).exists()
    assert fetch_study(remote, entry.uid, incoming).reason == "unchanged"
    assert incoming.vault.original(outcome.study).study_uid == entry.uid
    record = ArchiveStore.open(incoming.archive).record(outcome.volume_key)
    assert record.info.sex == "O"
    assert record.info.age == 62
    assert record.info.study_date is not None


def test_an_unknown_study_waits_with_a_reason(config: PacsConfig, incoming: Incoming) -> None:
    outcome = fetch_study(connect(config.server("hospital")), "1.2.3.4", incoming)
    assert outcome.state in ("refused", "waiting")
    assert incoming.ledger.studies(outcome.state)[0].way_out  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # pynetdicom leaves a socket open
def test_a_dead_server_is_one_line(config: PacsConfig, orthanc: Orthanc) -> None:
    for name in ("hospital", "old"):
        server = replace(config.server(name), web="http://127.0.0.1:9/dicom-web", retries=0, timeout=2)
        if name == "old":
            server = replace(config.server(name), dimse="127.0.0.1:9", retries=0, timeout=2)
        with pytest.raises(PacsError, match=rf"server {name}: cannot be reached; look at it"):
            list(connect(server).studies(Wanted(patient_id="CANARY")))
