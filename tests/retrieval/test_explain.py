"""Comparators are real, lesion-free and of others; explanations show what was compared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from diptych.archive import ArchiveWriter, VolumeRecord
from diptych.archive.encoding import NetworkEncoder
from diptych.archive.indexing import index_patients
from diptych.errors import ArchiveError, UsageError
from diptych.model import FeatureDecomposingNetwork
from diptych.retrieval import Archive, Question, compose
from diptych.retrieval.explanation import decode
from diptych.volumes.sources import find_sources
from tests.archive.patients import write_patient
from tests.retrieval.making import make_record, write_archive


@pytest.fixture(scope="module")
def scanned(tmp_path_factory: pytest.TempPathFactory, network: FeatureDecomposingNetwork) -> Archive:
    """Three patients with images and labels."""
    folder = tmp_path_factory.mktemp("patients")
    for number in range(3):
        write_patient(folder / "source", f"S{number}", seed=number)
    encoder = NetworkEncoder(network)
    with ArchiveWriter.open(folder / "archive", model=encoder.identity) as writer:
        index_patients(writer, encoder, find_sources([folder / "source"]))
    return Archive.open(folder / "archive", model=network)


def test_comparators_are_lesion_free_slices_of_others(archive: Archive, records: list[VolumeRecord]) -> None:
    subject = archive.stored("V03", z_index=5)
    answer = archive.comparators(subject, Question(top=3))
    assert len(answer.matches) == 3
    assert all(match.lesion_area == 0 and match.volume.patient_key != "P01" for match in answer.matches)
    nearest = min(
        match.distance
        for match in archive.query(subject, Question(by="normal", lesion_free=True, group="volume", top=99)).matches
    )
    assert answer.matches[0].distance == nearest


def test_no_known_lesion_free_slice_is_said(tmp_path: Path, network: FeatureDecomposingNetwork) -> None:
    records = [make_record(number, lesion_source="unknown") for number in range(4)]
    archive = Archive.open(write_archive(tmp_path / "A", network, records), model=network)
    with pytest.raises(UsageError, match="--predict-lesions"):
        archive.comparators(archive.stored("V00", z_index=4))


def test_decoding_ids_equals_decomposing_the_image(network: FeatureDecomposingNetwork) -> None:
    images = torch.randn(3, 4, 32, 64)
    whole = network.decompose(images)
    decoded = decode(network, whole.normal_ids.numpy(), whole.abnormal_ids.numpy())
    assert np.allclose(decoded.reconstruction, whole.reconstruction, atol=1e-4)
    assert np.allclose(decoded.healthy_twin, whole.healthy_twin, atol=1e-4)
    assert np.array_equal(decoded.lesion, whole.lesion_probabilities.argmax(dim=1))
    assert whole.anatomy_probabilities is not None
    assert decoded.anatomy is not None
    assert np.array_equal(decoded.anatomy, whole.anatomy_probabilities.argmax(dim=1))


def test_an_explanation_shows_images_labels_and_agreement(scanned: Archive) -> None:
    answer = scanned.query(scanned.stored("S0", z_index=5))
    shown = scanned.explain(answer, 0)
    assert shown.query.pixels is not None
    assert shown.found.pixels is not None
    assert shown.found.pixels.image.shape == (4, 32, 64)
    assert shown.found.pixels.lesion is not None
    match = answer.matches[0]
    assert np.array_equal(shown.normal_agreement, answer.subject.normal_ids == match.normal_ids)
    assert match.normal is not None
    assert (match.normal.contributions[shown.normal_agreement] == 0).all()


def test_stored_pixels_are_what_was_encoded(scanned: Archive) -> None:
    subject = scanned.stored("S1", z_index=4)
    pixels = scanned.pixels(subject)
    assert pixels is not None
    assert np.array_equal(scanned.encoder.encode(pixels.image[None])[0][0], subject.normal_ids)


def test_changed_images_are_refused_and_codes_still_answer(scanned: Archive) -> None:
    info = scanned.store.record("S2").info
    file = scanned.store.path / info.files[0].path
    content = file.read_bytes()
    file.write_bytes(content[:-1] + b"x")
    try:
        with pytest.raises(ArchiveError, match="has changed since it was indexed"):
            scanned.pixels(scanned.stored("S2", z_index=4))
        assert scanned.query(scanned.stored("S2", z_index=4)).matches
    finally:
        file.write_bytes(content)


def test_a_composed_query_has_a_preview(archive: Archive) -> None:
    one, other = archive.stored("V00", z_index=4), archive.stored("V05", z_index=6)
    preview, parts = archive.view(compose(one, other)), (archive.view(one), archive.view(other))
    assert np.allclose(preview.healthy_twin, parts[0].healthy_twin, atol=1e-5)
    assert np.array_equal(preview.predicted_lesion, parts[1].predicted_lesion)
