"""With a trained model: a phantom whose lesion was moved, or that was mirrored, is found first among strangers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from diptych.archive import ArchiveWriter, VolumeInfo
from diptych.archive.encoding import NetworkEncoder, encode_volume
from diptych.model import FeatureDecomposingNetwork, load_model
from diptych.model.shipped import shipped_models
from diptych.phantom import make_phantom
from diptych.retrieval import Archive, Question
from diptych.volumes import Volume

pytestmark = pytest.mark.slow

CELL_VOXELS = 10
"""Columns of the default grid are 20 mm wide; phantoms have voxels of 2 mm."""


@pytest.fixture(scope="module")
def trained() -> FeatureDecomposingNetwork:
    models = shipped_models()
    if not models:
        pytest.skip("no trained model comes with this installation")
    return load_model(next(iter(models.values())))


@pytest.fixture(scope="module")
def phantoms() -> list[Volume]:
    return [make_phantom(70, index=index).volume for index in range(8)]


def move_lesion(volume: Volume) -> Volume:
    """Lift the lesion off and lay it down one cell to the side, on whichever side more of it stays in the brain."""
    assert volume.twin is not None
    assert volume.lesion is not None
    difference = np.where(volume.lesion > 0, volume.array - volume.twin, 0)

    def shifted(array: NDArray[np.float32], voxels: int) -> NDArray[np.float32]:
        return np.roll(array, voxels, axis=-3)

    inside = np.all(volume.twin > 0, axis=0)
    voxels = max((CELL_VOXELS, -CELL_VOXELS), key=lambda by: int((shifted(volume.lesion, by)[inside] > 0).sum()))  # type: ignore[arg-type]
    array = np.where(inside, np.maximum(volume.twin + shifted(difference, voxels), 1), volume.twin)
    return replace(volume, patient_key="Moved", array=array.astype(np.float32), lesion=None, anatomy=None)


def mirror(volume: Volume) -> Volume:
    array = np.ascontiguousarray(volume.array[:, ::-1])
    return replace(volume, patient_key="Mirrored", array=array, lesion=None, anatomy=None)


def open_with(path: Path, network: FeatureDecomposingNetwork, volumes: list[Volume]) -> Archive:
    encoder = NetworkEncoder(network)
    with ArchiveWriter.open(path, model=encoder.identity) as writer:
        for volume in volumes:
            writer.add(encode_volume(volume, VolumeInfo(volume.patient_key, volume.patient_key), encoder))
    return Archive.open(path, model=network)


@pytest.mark.parametrize(("change", "anywhere"), [(move_lesion, "shifted"), (mirror, "mirrored"), (mirror, "both")])
def test_the_changed_twin_is_found_first(
    trained: FeatureDecomposingNetwork, phantoms: list[Volume], tmp_path: Path, change: object, anywhere: str
) -> None:
    query, *others = phantoms
    twin = change(query)  # type: ignore[operator]
    archive = open_with(tmp_path / "A", trained, [*others, twin])
    answer = archive.query(archive.encode(query), Question(by="abnormal", anywhere=anywhere))  # type: ignore[arg-type]
    assert answer.matches[0].volume.volume_key == twin.patient_key
