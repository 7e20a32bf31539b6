"""One small archive, opened once for all tests that only ask."""

from __future__ import annotations

import pytest

from diptych.archive import VolumeRecord
from diptych.model import FeatureDecomposingNetwork
from diptych.retrieval import Archive
from tests.retrieval.making import make_record, tiny_network, write_archive


@pytest.fixture(scope="session")
def network() -> FeatureDecomposingNetwork:
    return tiny_network()


@pytest.fixture(scope="session")
def records() -> list[VolumeRecord]:
    """Eight volumes of four patients, with different numbers of slices."""
    return [make_record(number, slices=5 + number) for number in range(8)]


@pytest.fixture(scope="session")
def archive(
    tmp_path_factory: pytest.TempPathFactory, network: FeatureDecomposingNetwork, records: list[VolumeRecord]
) -> Archive:
    path = write_archive(tmp_path_factory.mktemp("archive") / "A", network, records)
    return Archive.open(path, model=network)
