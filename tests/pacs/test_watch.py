"""A server is followed: stable studies come in once, whatever happens in between."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from diptych.errors import PacsError, UsageError
from diptych.pacs import Incoming, Outcome, PacsConfig, Wanted, connect, read_config
from diptych.pacs.orthanc import Orthanc, find_orthanc
from diptych.pacs.watch import Watcher
from diptych.phantom.phantom_dicom import Person
from tests.pacs.conftest import WEB, door
from tests.pacs.making import write_small_study
from tests.pacs.test_fetch import volumes


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two studies of one person and one of another, as files."""
    folder = tmp_path_factory.mktemp("pair")
    for name, patient, day in (("a", "W-1", "20240105"), ("b", "W-1", "20240601"), ("c", "W-2", "20240301")):
        write_small_study(folder / name, person=Person(patient_id=patient, study_date=day), seed=ord(name))
    return folder


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Orthanc]:
    if find_orthanc() is None:
        pytest.skip("no Orthanc with its DICOMweb plugin here (apt-get install orthanc orthanc-dicomweb)")
    orthanc = Orthanc(tmp_path / "orthanc").start()
    yield orthanc
    orthanc.stop()


def opened(tmp_path: Path, server: Orthanc, model: Path, more: str = "") -> tuple[PacsConfig, Incoming]:
    (tmp_path / "pacs.toml").write_text(WEB.format(orthanc=server) + more, encoding="utf-8")
    config = read_config(tmp_path / "pacs.toml")
    return config, door(tmp_path / "archive", config, model)


def follow(watcher: Watcher, wanted: int, seconds: float = 60.0) -> None:
    """Step until so many studies are in the archive."""
    end = time.monotonic() + seconds
    while len(watcher.incoming.ledger.studies("done")) < wanted and time.monotonic() < end:
        watcher.step()
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hospital", "old"])
def test_studies_come_in_once_by_feed_and_by_polling(
    name: str, server: Orthanc, pair: Path, tmp_path: Path, model: Path
) -> None:
    config, incoming = opened(tmp_path, server, model)
    reported: list[Outcome] = []
    watcher = Watcher(connect(config.server(name)), incoming, report=reported.append)
    watcher.step()
    server.put(pair)
    follow(watcher, 3)
    assert len(volumes(incoming.archive)) == 3
    assert [one.state for one in reported] == ["done"] * 3
    again = Watcher(connect(config.server(name)), incoming, report=reported.append)
    again.run(Event(), until_quiet=True)
    assert len(reported) == 3
    people = {key.rsplit("-", 1)[0] for key in volumes(incoming.archive)}
    assert len(people) == 2  # two studies of one person form one time line


@pytest.mark.slow
def test_a_study_that_grows_is_not_taken_in_before_it_is_whole(
    server: Orthanc, pair: Path, tmp_path: Path, model: Path
) -> None:
    config, incoming = opened(tmp_path, server, model)
    clock = [0.0]
    watcher = Watcher(connect(config.server("old")), incoming, now=lambda: clock[0])
    server.put(pair / "a" / "t1")
    watcher.step()
    server.put(pair / "a" / "t2")
    clock[0] += 10
    watcher.step()
    assert not incoming.ledger.studies("done", "refused")
    for part in ("t1gd", "flair"):
        server.put(pair / "a" / part)
    watcher.step()
    clock[0] += 10
    watcher.step()
    assert [row.state for row in incoming.ledger.studies()] == ["done"]


@pytest.mark.slow
def test_a_killed_server_is_one_line_and_nothing_is_lost(
    server: Orthanc, pair: Path, tmp_path: Path, model: Path
) -> None:
    config, incoming = opened(tmp_path, server, model)
    lines: list[str] = []
    watcher = Watcher(connect(config.server("hospital")), incoming, complain=lines.append)
    server.put(pair / "a")
    follow(watcher, 1)
    server.kill()
    watcher.step()
    watcher.step()
    assert len(lines) == 1
    assert "server hospital: cannot be reached" in lines[0]
    server.start()
    server.put(pair / "b")
    follow(watcher, 2)
    assert len(volumes(incoming.archive)) == 2


@pytest.mark.slow
def test_a_server_set_up_anew_is_read_from_the_beginning(
    server: Orthanc, pair: Path, tmp_path: Path, model: Path
) -> None:
    config, incoming = opened(tmp_path, server, model)
    incoming.ledger.move_cursor("hospital", 1_000_000)
    server.put(pair / "c")
    follow(Watcher(connect(config.server("hospital")), incoming), 1)
    assert len(volumes(incoming.archive)) == 1


@pytest.mark.slow
def test_the_rules_choose_and_priors_follow(server: Orthanc, pair: Path, tmp_path: Path, model: Path) -> None:
    config, incoming = opened(tmp_path, server, model, more="")
    text = (tmp_path / "pacs.toml").read_text(encoding="utf-8")
    (tmp_path / "pacs.toml").write_text(text.replace("[rules]", "[rules]\nnewest_days = 1"), encoding="utf-8")
    strict = read_config(tmp_path / "pacs.toml")
    server.put(pair)
    watcher = Watcher(connect(strict.server("old")), door(tmp_path / "archive", strict, model))
    watcher.run(Event(), until_quiet=True)
    assert not incoming.ledger.studies()
    (tmp_path / "pacs.toml").write_text(text.replace("[rules]", "[rules]\npriors = 1"), encoding="utf-8")
    eager = door(tmp_path / "archive", read_config(tmp_path / "pacs.toml"), model)
    remote = connect(config.server("hospital"))
    newest = next(one for one in remote.studies(Wanted(patient_id="W-1")) if one.date == "20240601")
    watcher = Watcher(remote, eager)
    watcher._seen.clear()
    from diptych.pacs.fetch import fetch_study

    fetch_study(remote, newest.uid, eager)
    watcher._priors(newest.uid)
    assert len(volumes(eager.archive)) == 2


def test_two_watchers_of_one_server_are_refused(quiet_door: Incoming) -> None:
    from types import SimpleNamespace

    from diptych.pacs.watch import _only_watcher

    lock = _only_watcher(quiet_door.folder, "hospital")
    remote: Any = SimpleNamespace(server=SimpleNamespace(name="hospital", changes=None))
    with pytest.raises(UsageError, match="watched already"):
        Watcher(remote, quiet_door).run(Event())
    lock.release()


def test_a_server_that_fails_is_reported_once(quiet_door: Incoming) -> None:
    class Away:
        class server:
            name, changes = "hospital", None

        def studies(self, wanted: Wanted) -> Iterator[Any]:
            raise PacsError("server hospital: cannot be reached")

    lines: list[str] = []
    watcher = Watcher(Away(), quiet_door, complain=lines.append)  # type: ignore[arg-type]
    for _ in range(3):
        assert not watcher.step()
    assert lines == ["server hospital: cannot be reached"]


KILLED = """
import sys
from pathlib import Path
from threading import Event
from diptych.pacs import connect, read_config
from diptych.pacs.watch import Watcher
from tests.pacs.conftest import door

folder, model = Path(sys.argv[1]), Path(sys.argv[2])
config = read_config(folder / "pacs.toml")
watcher = Watcher(connect(config.server("hospital")), door(folder / "archive", config, model),
                  report=lambda one: print(one.state, flush=True))
watcher.run(Event())
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_kill_minus_nine_at_any_point_loses_and_doubles_nothing(
    server: Orthanc, pair: Path, tmp_path: Path, model: Path
) -> None:
    config, incoming = opened(tmp_path, server, model)
    server.put(pair)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*filter(None, sys.path), str(Path.cwd())])}
    for delay in (0.2, 0.6, 1.2, 2.0):
        watching = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", KILLED, str(tmp_path), str(model)], env=environment,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        ledger = incoming.ledger.path
        start = time.monotonic()
        while not ledger.stat().st_size and time.monotonic() - start < 60:
            time.sleep(0.05)
        time.sleep(8 + delay)  # imports, then some way into the work
        watching.send_signal(signal.SIGKILL)
        watching.wait(timeout=30)
    incoming.ledger.forget_failures()
    follow(Watcher(connect(config.server("hospital")), incoming), 3)
    found = volumes(incoming.archive)
    assert len(found) == len(set(found)) == 3
    assert not list((incoming.folder / "incoming").glob("*/*/*.dcm"))
