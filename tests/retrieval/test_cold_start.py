"""A search from an archived slice needs no network: what its codes decode to was stored when it was indexed."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from diptych.archive import ArchiveWriter
from diptych.archive.encoding import NetworkEncoder
from diptych.errors import ModelError
from diptych.metrics.label_indexing import volume_decoder
from diptych.model import FeatureDecomposingNetwork, save_model
from diptych.model.stored_model import StoredModel
from diptych.retrieval import Archive, Question
from tests.retrieval.making import make_record

COLD = """
import sys
from diptych.cli.app import app
app(sys.argv[1:], standalone_mode=False)
print(sorted({"torch", "scipy.ndimage", "nibabel", "pydicom", "matplotlib"} & sys.modules.keys()))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, network: FeatureDecomposingNetwork) -> Path:
    """A model, and an archive with label maps."""
    folder = tmp_path_factory.mktemp("cold")
    save_model(network, folder / "model")
    decode = volume_decoder(network, folder / "model")
    with ArchiveWriter.open(folder / "A", model=NetworkEncoder(network).identity) as writer:
        for number in range(8):
            record = make_record(number, slices=5 + number)
            writer.add(record, labels=decode(record))
    return folder


def test_the_command_imports_nothing_heavy(folder: Path) -> None:
    options = ["--model", "model", "--metric", "overlap"]
    command = [sys.executable, "-c", COLD, "search", "A", "V02", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("by", ["anatomy", "lesion", "both"])
def test_stored_maps_answer_as_decoded_ones(folder: Path, by: str) -> None:
    archive = Archive.open(folder / "A", model=folder / "model")
    subject = archive.stored("V03", z_index=6)
    question = Question(by=by, metric="overlap", include_own=True)  # type: ignore[arg-type]
    stored, decoded = (archive.query(one, question) for one in (subject, replace(subject, volume_key=None)))
    assert [match.z_index for match in stored.matches] == [match.z_index for match in decoded.matches]
    assert [m.distance for m in stored.matches] == pytest.approx([m.distance for m in decoded.matches])
    assert stored.matches[0].distance == 0


def test_a_slice_with_anothers_codes_is_decoded(folder: Path) -> None:
    archive = Archive.open(folder / "A", model=folder / "model")
    subject, other = archive.stored("V03", z_index=6), archive.stored("V05", z_index=7)
    mixed = replace(subject, abnormal_ids=other.abnormal_ids)
    found = archive.query(mixed, Question(by="lesion", metric="overlap", include_own=True)).matches[0]
    assert (found.volume.volume_key, found.distance) == ("V05", 0)


def test_the_largest_lesion_is_the_same_from_stored_maps_and_from_ids(folder: Path) -> None:
    archive = Archive.open(folder / "A", model=folder / "model")
    record = archive.store.record("V04")
    shares = archive.plane_decoder.probabilities("abnormal", record.abnormal_ids)
    largest = (shares >= 0.5).any(axis=1).sum(axis=(1, 2)).argmax()
    assert archive.stored("V04").z_index == record.z_index[largest]


def test_a_stored_model_has_the_networks_identity(folder: Path, network: FeatureDecomposingNetwork) -> None:
    stored = StoredModel.open(folder / "model")
    assert stored.fingerprint == network.fingerprint
    for panel, codebook in network.codebooks.items():
        np.testing.assert_array_equal(stored.codebooks[panel], codebook)
    assert stored.network.fingerprint == network.fingerprint


def test_a_changed_weight_is_noticed_before_any_network_is_made(
    folder: Path, tmp_path: Path, network: FeatureDecomposingNetwork
) -> None:
    save_model(network, tmp_path)
    path = tmp_path / "model.safetensors"
    raw = bytearray(path.read_bytes())
    raw[-5] ^= 1
    path.write_bytes(raw)
    with pytest.raises(ModelError, match="were changed or mixed up"):
        Archive.open(folder / "A", model=tmp_path)
