"""What is sent to us comes in; titles that are not listed are turned away."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
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


@pytest.fixture
def small(
    configure: Callable[[str], PacsConfig], tmp_path: Path, model: Path
) -> Iterator[Callable[[str], tuple[Listener, DimseRemote, list[str]]]]:
    """Starts a listener with limits; what it complains of comes with it."""
    started: list[Listener] = []

    def start(limits: str) -> tuple[Listener, DimseRemote, list[str]]:
        said: list[str] = []
        listener = Listener(door(tmp_path / "archive", configure(LISTEN + limits), model), complain=said.append)
        started.append(listener)
        port = listener.start()
        scanner = Server("us", dimse=f"127.0.0.1:{port}", title="DIPTYCH", calling="SCANNER", retries=0, timeout=10)
        return listener, DimseRemote(scanner), said

    yield start
    for one in started:
        one.stop()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # pynetdicom leaves a socket open
def test_an_image_beyond_the_limit_ends_its_association_and_is_listed(
    small: Callable[[str], tuple[Listener, DimseRemote, list[str]]], study: Path
) -> None:
    listener, scanner, said = small("image_mb = 1\n")
    one = images(study, "t2")[0]
    one.Rows, one.Columns, one.PixelData = 1000, 1000, bytes(2_000_000)
    with pytest.raises(PacsError):
        scanner.store([one])
    assert said == ["SCANNER: turned away: an image is larger than [listen] image_mb = 1; raise it, or send less"]
    assert [row[1:] for row in listener.incoming.ledger.aside()] == [("SCANNER", said[0].split(": ", 2)[2], 1)]
    scanner.store(images(study, "t2"))  # others are still taken
    assert len(listener.incoming.ledger.studies("coming")) == 1


def test_images_beyond_the_disk_are_refused_and_listed_until_there_is_room(
    small: Callable[[str], tuple[Listener, DimseRemote, list[str]]], study: Path
) -> None:
    listener, scanner, said = small("disk_gb = 0.000004\n")
    with pytest.raises(PacsError, match="0xA700"):
        scanner.store(images(study))
    kept = sum(path.stat().st_size for path in listener.incoming.folder.glob("incoming/*/*/*.dcm"))
    assert 0 < kept <= 6000
    assert said == ["SCANNER: turned away: [listen] disk_gb = 4e-06 is used up; raise it, or lower keep_hours"]
    assert listener.incoming.ledger.aside()[0][3] == 1
    for path in listener.incoming.folder.glob("incoming/*/*/*.dcm"):
        path.unlink()
    listener.step()  # counts anew
    scanner.store(images(study, "t2")[:1])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_unit_that_calls_itself_gigabytes_long_is_not_read(listening: tuple[Listener, DimseRemote]) -> None:
    _, scanner = listening
    with socket.create_connection(scanner.server.address, timeout=10) as stranger:
        stranger.sendall(b"\x01\x00" + (4_000_000_000).to_bytes(4, "big") + bytes(64))
        with suppress(ConnectionError):
            assert stranger.recv(1) == b""  # closed, without waiting for the rest
    scanner.echo()
