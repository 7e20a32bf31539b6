"""Tiny patients of 16 x 18 x 14 voxels with a lesion that T1Gd and FLAIR show, and a network small enough for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from diptych.annotation.lesions import lesion_network as presets
from diptych.annotation.lesions.lesion_network import LesionPreset
from diptych.volumes import write_nifti

SHAPE = (16, 18, 14)
LPS_2MM = np.diag([-2.0, -2.0, 2.0, 1.0])
NAMES = ("t1n", "t1c", "t2w", "t2f")

TINY = LesionPreset(
    name="tiny", spacing_mm=2.0, crop=(8, 8, 8), filters=8, blocks_down=(1, 1), blocks_up=(1,), warmup_steps=2
)


@pytest.fixture
def tiny_preset(monkeypatch: pytest.MonkeyPatch) -> LesionPreset:
    """A preset that trains in seconds, under the name `tiny`."""
    monkeypatch.setitem(presets.PRESETS, "tiny", TINY)
    return TINY


def labels_of(seed: int) -> NDArray[np.uint8]:
    """A core with a rim inside oedema, somewhere in the brain."""
    rng = np.random.default_rng(seed)
    middle = rng.integers((6, 6, 5), (10, 12, 9))
    distance = np.abs(np.indices(SHAPE) - middle[:, None, None, None]).max(axis=0)
    labels: NDArray[np.uint8] = np.array([1, 3, 2, 2, 0], dtype=np.uint8)[np.minimum(distance, 4)]
    return labels


def write_case(
    folder: Path,
    seed: int,
    *,
    key: str | None = None,
    labels: Callable[[int], NDArray[np.uint8]] | None = labels_of,
    affine: NDArray[np.float64] = LPS_2MM,
    turn: Callable[[NDArray[np.int16]], NDArray[np.int16]] = lambda array: array,
) -> str:
    """One patient's files under `folder`; returns the key."""
    key = key or f"case-{seed:02d}"
    place = folder / key
    place.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    lesion = labels_of(seed)
    for number, name in enumerate(NAMES):
        image = np.zeros(SHAPE, dtype=np.int16)
        image[2:-2, 2:-2, 2:-2] = rng.integers(90, 110, [side - 4 for side in SHAPE])
        image += ((lesion == 3) * 80 if number == 1 else (lesion == 2) * 40).astype(np.int16) * (image > 0)
        write_nifti(place / f"{key}-{name}.nii.gz", np.ascontiguousarray(turn(image)), affine)
    if labels is not None:
        seg = turn(labels(seed).astype(np.int16)).astype(np.uint8)
        write_nifti(place / f"{key}-seg.nii.gz", np.ascontiguousarray(seg), affine)
    return key


def write_cases(folder: Path, count: int) -> Path:
    """`count` labelled patients."""
    for seed in range(count):
        write_case(folder, seed)
    return folder
