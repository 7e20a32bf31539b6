"""What a description names goes with store, model and archive, and is what they are read by."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from diptych.archive import ArchiveStore, ArchiveWriter
from diptych.archive.encoding import NetworkEncoder, cut_slices
from diptych.archive.records import ModelIdentity
from diptych.config import ModelConfig
from diptych.description import GLIOMA, Description, classes_named, described_by_counts
from diptych.errors import LabelError, MissingChannelError, StoreError, UsageError
from diptych.model import FeatureDecomposingNetwork, load_model, save_model
from diptych.model.model_folder import layers_in_common
from diptych.slices.preprocess import SliceGeometry
from diptych.slices.slice_store import SliceStore
from diptych.volumes import Volume
from diptych.volumes.labels import unify_lesion

STROKE = Description("stroke", ("t1",), classes_named(["lesion"]), codes=((255, 1),))
SHAPE = ModelConfig(image_size=(32, 48), latent_size=(4, 6), widths=(8, 8, 12, 16), code_width=8, codebook_size=16)


def volume(*channels: str) -> Volume:
    signal = np.random.default_rng(0).uniform(1, 2, (len(channels), 12, 16, 5)).astype(np.float32)
    return Volume("P", channels, signal, np.diag([-6.0, -6.0, 6.0, 1.0]))


def network(about: Description) -> FeatureDecomposingNetwork:
    torch.manual_seed(0)
    return FeatureDecomposingNetwork(SHAPE.describing(about))


def test_a_description_survives_json_and_counts_follow_from_it() -> None:
    assert Description.from_json(json.loads(json.dumps(STROKE.to_json()))) == STROKE
    config = SHAPE.describing(STROKE)
    assert (config.channels, config.lesion_classes, config.anatomy_classes) == (1, 2, 7)
    assert SHAPE.describing(replace(STROKE, anatomy=())).anatomy_classes == 0
    assert STROKE.regions == {"whole": (1,)}


@pytest.mark.parametrize(
    "change",
    [
        {"channels": ()},
        {"channels": ("t1", "t1")},
        {"lesion": ()},
        {"lesion": classes_named(["a", "A"])},
        {"lesion": classes_named(["<b>"])},
        {"codes": ((255, 2),)},
        {"disease": "x" * 99},
    ],
)
def test_what_cannot_be_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        replace(STROKE, **change)  # type: ignore[arg-type]


def test_a_description_of_other_counts_does_not_fit_a_network() -> None:
    with pytest.raises(UsageError, match="does not have 2 channels"):
        replace(SHAPE.describing(STROKE), channels=2)


def test_a_model_keeps_its_description_and_one_without_is_about_gliomas(tmp_path: Path) -> None:
    save_model(network(STROKE), tmp_path / "new")
    kept = load_model(tmp_path / "new").description
    assert (kept.disease, kept.channels, kept.codes, kept.size) == ("stroke", ("t1",), ((255, 1),), (32, 48))
    save_model(FeatureDecomposingNetwork(SHAPE), tmp_path / "old")
    assert "description" not in json.loads((tmp_path / "old/config.json").read_text())["model"]
    assert load_model(tmp_path / "old").description.lesion_names == {1: "NET", 2: "ED", 3: "ET"}


def test_names_are_part_of_a_models_identity() -> None:
    flair = replace(STROKE, channels=("flair",))
    assert network(STROKE).fingerprint != network(flair).fingerprint


def test_channels_are_taken_over_by_name() -> None:
    wide, narrow = network(replace(STROKE, channels=("t2", "t1"))), network(STROKE)
    taken, given = layers_in_common(wide, narrow), wide.state_dict()
    assert taken["encoder.trunk.0.weight"].equal(given["encoder.trunk.0.weight"][:, 1:])
    assert taken["image_decoder.out.bias"].equal(given["image_decoder.out.bias"][1:])


def test_old_models_are_described_by_their_counts() -> None:
    assert described_by_counts(4, 4, 7) == GLIOMA
    assert described_by_counts(1, 2, 0).lesion_names == {1: "class 1"}


def test_a_store_keeps_its_description_and_refuses_other_classes(tmp_path: Path) -> None:
    geometry = SliceGeometry((32, 48), (200.0, 160.0))
    SliceStore.create(tmp_path / "store", geometry, ("t1",), description=STROKE)
    assert SliceStore.open(tmp_path / "store").description == replace(STROKE, size=(32, 48))
    with pytest.raises(StoreError, match="classes"):
        SliceStore.create(tmp_path / "store", geometry, ("t1",), description=GLIOMA)


def test_an_archive_keeps_its_description_and_one_without_is_about_gliomas(tmp_path: Path) -> None:
    encoder = NetworkEncoder(network(STROKE))
    with ArchiveWriter.open(tmp_path / "archive", model=encoder.identity):
        pass
    assert ArchiveStore.open(tmp_path / "archive").description.disease == "stroke"
    old = ModelIdentity("f" * 64, (4, 6), 16, 16)
    with ArchiveWriter.open(tmp_path / "old", model=old):
        pass
    assert ArchiveStore.open(tmp_path / "old").description == GLIOMA


def test_a_model_takes_its_channels_by_name_and_refuses_what_is_missing() -> None:
    encoder = NetworkEncoder(network(replace(STROKE, channels=("flair", "t1"))))
    assert cut_slices(volume("t1", "t2", "flair"), encoder).channels == ("flair", "t1")
    with pytest.raises(MissingChannelError, match="has t1, t2, but not flair, which the model reads"):
        cut_slices(volume("t1", "t2"), encoder)


def test_values_of_files_become_classes() -> None:
    values = np.array([0, 255, 1], dtype=np.uint8)
    labels, _ = unify_lesion(Path("seg.nii"), values, [], STROKE)
    assert labels.tolist() == [0, 1, 1]
    with pytest.raises(LabelError, match="--lesion-code 7=1"):
        unify_lesion(Path("seg.nii"), np.array([0, 7], dtype=np.uint8), [], STROKE)
