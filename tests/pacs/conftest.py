"""A real Orthanc on loopback where one is installed, small studies in it, and a door that takes a moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from diptych.archive.encoding import NetworkEncoder
from diptych.metrics.label_indexing import volume_decoder
from diptych.model import load_model, save_model
from diptych.pacs.incoming import Incoming
from diptych.pacs.orthanc import Orthanc, find_orthanc
from diptych.pacs.servers import PacsConfig, read_config
from tests.pacs.making import quick_intake, write_small_study
from tests.retrieval.making import tiny_network

WEB = """
[servers.hospital]
web = "{orthanc.url}/dicom-web"
changes = "{orthanc.url}"
retries = 1
timeout = 10
viewer = "https://viewer.example.org/viewer?StudyInstanceUIDs={{study}}"

[servers.old]
dimse = "127.0.0.1:{orthanc.dimse}"
title = "ORTHANC"
retries = 1
timeout = 10

[servers.mover]
dimse = "127.0.0.1:{orthanc.dimse}"
title = "ORTHANC"
fetch = "move"
move_port = {orthanc.move_port}
retries = 1
timeout = 10

[rules]
stable_seconds = 0.2
poll_seconds = 0.1

[listen]
callers = ["SCANNER"]
port = 0
server = "hospital"
"""


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    save_model(tiny_network(), folder)
    return folder


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One small study as files."""
    return write_small_study(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="session")
def empty_orthanc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orthanc]:
    if find_orthanc() is None:
        pytest.skip("no Orthanc with its DICOMweb plugin here (apt-get install orthanc orthanc-dicomweb)")
    server = Orthanc(tmp_path_factory.mktemp("orthanc")).start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def orthanc(empty_orthanc: Orthanc, study: Path) -> Orthanc:
    """With one study in it."""
    empty_orthanc.put(study)
    return empty_orthanc


@pytest.fixture
def configure(tmp_path: Path) -> Callable[[str], PacsConfig]:
    """Write `pacs.toml` and read it."""

    def write(text: str) -> PacsConfig:
        (tmp_path / "pacs.toml").write_text(text, encoding="utf-8")
        return read_config(tmp_path / "pacs.toml")

    return write


@pytest.fixture
def config(orthanc: Orthanc, configure: Callable[[str], PacsConfig]) -> PacsConfig:
    return configure(WEB.format(orthanc=orthanc))


@pytest.fixture
def incoming(config: PacsConfig, tmp_path: Path, model: Path) -> Incoming:
    return door(tmp_path / "archive", config, model)


@lru_cache
def loaded(model: Path) -> Any:
    """The network of all doors, loaded once."""
    network = load_model(model)
    return network, model, NetworkEncoder(network), volume_decoder(network, model)


def door(archive: Path, config: PacsConfig, model: Path) -> Incoming:
    """A door with the quick intake."""
    made = Incoming(archive, config, model=model, take_in=quick_intake)
    made.__dict__["_model"] = loaded(model)
    return made


@pytest.fixture
def quiet_door(configure: Callable[[str], PacsConfig], tmp_path: Path, model: Path) -> Incoming:
    """A door without any server."""
    return door(tmp_path / "archive", configure("[rules]\nstable_seconds = 0.2\n"), model)
