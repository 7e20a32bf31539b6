"""What is sent to us comes in; titles that are not listed are turned away."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pydicom
import pytest

from diptych.errors import PacsError, UsageError
from diptych.intake.dicom_files import lenient
from diptych.pacs.dimse import DimseRemote
from diptych.pacs.incoming import Incoming
from diptych.pacs.listen import LISTENED, Listener
from diptych.pacs.servers import PacsConfig, Server
from tests.pacs.conftest import door
from tests.pacs.test_fetch import volumes

LISTEN = '[rules]\nstable_seconds = 0.2\n[listen]\ncallers = ["SCANNER"]\nport = 0\n'


@pytest.fixture
def listening(
    configure: Callable[[str], PacsConfig], tmp_path: Path, model: Path
) -> Iterator[tuple[Listener, DimseRemote]]:
    listener = Listener(door(tmp_path / "archive", configure(LISTEN), model))
    port = listener.start()
    scanner = Server("us", dimse=f"127.0.0.1:{port}", title="DIPTYCH", calling="SCANNER", retries=0, timeout=10)
    yield listener, DimseRemote(scanner)
    listener.stop()


def images(study: Path, part: str = "") -> list[Any]:
    with lenient():
        return [pydicom.dcmread(path) for path in sorted((study / part).rglob("*.dcm"))]


def test_a_sent_study_is_taken_in_and_indexed(listening: tuple[Listener, DimseRemote], study: Path) -> None:
    listener, scanner = listening
    scanner.echo()
    scanner.store(images(study))
    assert listener.step() == 0  # not whole yet
    (row,) = listener.incoming.ledger.studies("coming")
    assert row.server == LISTENED
    time.sleep(0.3)
    assert listener.step() == 1
    assert len(volumes(listener.incoming.archive)) == 1
    assert listener.step() == 0


def test_what_comes_later_is_added_and_old_images_go(listening: tuple[Listener, DimseRemote], study: Path) -> None:
    listener, scanner = listening
    for part in ("t1", "t1gd"):
        scanner.store(images(study, part))
    time.sleep(0.3)
    listener.step()
    (row,) = listener.incoming.ledger.studies("refused")  # without FLAIR it cannot be taken in
    for part in ("t2", "flair"):
        scanner.store(images(study, part))
    time.sleep(0.3)
    listener.step()
    assert [one.state for one in listener.incoming.ledger.studies()] == ["done"]
    folder = listener.incoming.study_folder(row.study)
    assert folder.is_dir()
    later = Listener(listener.incoming, now=lambda: time.time() + 30 * 3600)
    assert later.sweep() == 1
    assert not folder.exists()


def test_after_a_kill_what_was_acknowledged_comes_in(
    listening: tuple[Listener, DimseRemote], study: Path, model: Path
) -> None:
    """The ledger and the disk are all that is left of the first listener."""
    listener, scanner = listening
    scanner.store(images(study))
    listener.stop()
    incoming = listener.incoming
    second = Listener(door(incoming.archive, incoming.config, model), now=lambda: time.time() + 1)
    assert second.step() == 1
    assert len(volumes(incoming.archive)) == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # pynetdicom leaves a socket open
@pytest.mark.parametrize("wrong", [{"calling": "SOMEBODY"}, {"title": "OTHER"}])
def test_strangers_are_turned_away(wrong: dict[str, str], listening: tuple[Listener, DimseRemote], study: Path) -> None:
    listener, scanner = listening
    stranger = DimseRemote(replace(scanner.server, **wrong))  # type: ignore[arg-type]
    with pytest.raises(PacsError, match="refuses our title"):
        stranger.store(images(study, "t2")[:1])
    assert not listener.incoming.ledger.studies()


def test_a_full_disk_is_told_to_the_sender(
    listening: tuple[Listener, DimseRemote], study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be kept is not acknowledged, so the sender keeps it."""
    listener, scanner = listening

    def full(*_: Any) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(listener.incoming, "take", full)
    with pytest.raises(PacsError, match="refused an instance"):
        scanner.store(images(study, "t2")[:1])
    monkeypatch.undo()
    scanner.store(images(study, "t2")[:1])
    assert listener.incoming.ledger.studies("coming")


def test_nobody_listed_is_a_mistake(quiet_door: Incoming) -> None:
    with pytest.raises(UsageError, match="callers is empty"):
        Listener(quiet_door).start()
