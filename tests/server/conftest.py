"""A service on a small archive: three patients made of noise, with images, and a network that has learnt nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from diptych.archive import ArchiveWriter
from diptych.archive.encoding import NetworkEncoder
from diptych.archive.indexing import IndexOptions, index_patients
from diptych.model import FeatureDecomposingNetwork, save_model
from diptych.model.label_networks import LabelEncoder
from diptych.retrieval import Archive
from diptych.retrieval.sketch import Sketcher
from diptych.server.connections import limited_protocol
from diptych.server.serve import bind
from diptych.server.settings import ServerSettings
from diptych.server.web_app import create_app
from diptych.volumes.sources import find_sources
from tests.archive.patients import write_patient
from tests.retrieval.making import tiny_network

API = "/api/v1"
KEYS = ("Case-1", "Case-2", "Case-3")


@pytest.fixture(scope="session")
def patients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("patients")
    for seed, key in enumerate(KEYS):
        write_patient(folder, key, seed=seed)
    return folder


@pytest.fixture(scope="session")
def network() -> FeatureDecomposingNetwork:
    return tiny_network()


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory, network: FeatureDecomposingNetwork) -> Path:
    """The network in a folder of its own, with a label encoder beside it."""
    folder = tmp_path_factory.mktemp("model")
    save_model(network, folder)
    Sketcher(network, LabelEncoder(network.config)).save(folder)
    return folder


def make_archive(path: Path, network: FeatureDecomposingNetwork, patients: Path) -> Path:
    encoder = NetworkEncoder(network)
    with ArchiveWriter.open(path, model=encoder.identity) as writer:
        options = IndexOptions(source="noise", tags=("first",))
        index_patients(writer, encoder, find_sources([patients]), options=options)
    return path


@pytest.fixture(scope="session")
def archive_path(tmp_path_factory: pytest.TempPathFactory, network: FeatureDecomposingNetwork, patients: Path) -> Path:
    return make_archive(tmp_path_factory.mktemp("archive") / "A", network, patients)


@pytest.fixture(scope="session")
def client(archive_path: Path, model: Path) -> Iterator[httpx.Client]:
    """One service for all tests that change nothing for each other."""
    with serving(Archive.open(archive_path, model=model), max_uploads=1000) as client:
        yield client


@contextmanager
def serving(archive: Archive, **settings: Any) -> Iterator[httpx.Client]:
    """A client of a service that listens on a port of its own, in a thread."""
    chosen = ServerSettings(
        port=0, **{"sign_in": "token" in settings, "audit": False, "max_uploads_per_user": 1000, **settings}
    )
    with listening(create_app(archive, chosen), chosen) as client:
        yield client


@contextmanager
def listening(app: Any, chosen: ServerSettings) -> Iterator[httpx.Client]:
    """A client of an application that listens on a port of its own, in a thread."""
    listener = bind(chosen.host, 0)
    limited = limited_protocol(chosen)
    config = uvicorn.Config(app, log_config=None, access_log=False, http=limited, ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=60) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join(timeout=20)
        listener.close()


def finish(client: httpx.Client, job: str) -> dict[str, Any]:
    """Wait for a job."""
    for _ in range(600):
        state: dict[str, Any] = client.get(f"{API}/jobs/{job}").json()
        if state["state"] in ("done", "failed"):
            return state
        time.sleep(0.05)
    raise AssertionError(f"job {job} goes on and on: {state}")


def upload(client: httpx.Client, folder: Path, **form: str) -> Any:
    """Send all files of a folder."""
    files = [("files", (path.name, path.read_bytes())) for path in sorted(folder.iterdir())]
    return client.post(f"{API}/uploads", files=files, data=form)
