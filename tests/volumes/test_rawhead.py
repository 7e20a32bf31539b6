"""A head with scalp and bone is noticed, a stripped brain is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from diptych.volumes import patient_from_files, read_patient, write_nifti
from diptych.volumes.rawhead import raw_head_warning

SPACING = (4.0, 4.0, 4.0)
BRAIN, LIQUOR, BONE, SCALP = 600.0, 200.0, 40.0, 900.0


def radius_mm() -> NDArray[np.float64]:
    """Millimetres outside (or, below zero, inside) a brain-sized ellipsoid, `[X, Y, Z]`, neck towards z = 0."""
    x, y, z = (np.arange(n) * 4.0 - centre for n, centre in ((52, 104), (60, 120), (46, 60)))
    r = np.sqrt((x[:, None, None] / 68) ** 2 + (y[:, None] / 85) ** 2 + (np.maximum(z, -20) / 65) ** 2)
    scaled: NDArray[np.float64] = (r - 1) * 72
    return scaled


def stripped() -> NDArray[np.float32]:
    depth = radius_mm()
    noise = np.random.default_rng(0).normal(1, 0.1, depth.shape)
    return np.where(depth < -4, BRAIN, LIQUOR).astype(np.float32) * noise.astype(np.float32) * (depth < 0)


def head(scalp_mm: float = 6) -> NDArray[np.float32]:
    depth, array = radius_mm(), stripped()
    array[(depth >= 0) & (depth < 8)] = BONE
    array[(depth >= 8) & (depth < 8 + scalp_mm)] = SCALP
    return array


def test_stripped_brain_is_silent() -> None:
    assert raw_head_warning(stripped()[None], SPACING) is None


def test_head_in_zeroed_air() -> None:
    assert "bright ring" in str(raw_head_warning(head()[None], SPACING))


def test_head_in_noisy_air() -> None:
    noise = np.abs(np.random.default_rng(1).normal(0, 15, head().shape)).astype(np.float32)
    assert "of the frame has signal" in str(raw_head_warning((head() + noise)[None], SPACING))


def test_one_telling_channel_is_enough() -> None:
    assert raw_head_warning(np.stack([stripped(), head()]), SPACING) is not None


@pytest.mark.parametrize("array", [np.zeros((1, 5, 6, 7)), np.eye(6)[None, None] * np.ones((1, 4, 1, 1))])
def test_tiny_images_are_not_judged(array: NDArray[np.float64]) -> None:
    assert raw_head_warning(array.astype(np.float32), (1, 1, 1)) is None


def test_reader_puts_it_into_the_warnings(tmp_path: Path) -> None:
    write_nifti(tmp_path / "t1.nii", head(), np.diag([-4.0, -4.0, 4.0, 1.0]))
    assert "raw head" in read_patient(patient_from_files(t1=tmp_path / "t1.nii", patient_key="A")).warnings[0]


def test_a_head_without_a_dark_ring_is_too_large_for_a_brain() -> None:
    x, y, z = np.meshgrid(*(np.arange(-120, 120, 6.0),) * 3, indexing="ij")
    head, brain = ((x / a) ** 2 + (y / b) ** 2 + (z / c) ** 2 < 1 for a, b, c in ((85, 105, 100), (65, 82, 65)))
    assert "ml, no brain has more" in (raw_head_warning(head[None].astype(np.float32), (6.0, 6.0, 6.0)) or "")
    assert raw_head_warning(brain[None].astype(np.float32), (6.0, 6.0, 6.0)) is None


def test_a_small_head_that_goes_on_into_the_neck() -> None:
    x, y, z = np.meshgrid(*(np.arange(-96, 96, 6.0),) * 3, indexing="ij")
    depth = (1 - np.sqrt((x / 66) ** 2 + (y / 80) ** 2 + (np.maximum(z, 0) / 64) ** 2)) * 66  # a column below z = 0
    head = np.where(depth > 8, 500.0, np.where(depth > 0, 640.0, 0.0)).astype(np.float32) * (z > -50)
    assert "as through a neck" in (raw_head_warning(head[None], (6.0, 6.0, 6.0)) or "")
    darker = np.where(depth > 8, 500.0, 400.0).astype(np.float32) * (head > 0)  # a slab of a stripped brain
    assert raw_head_warning(darker[None], (6.0, 6.0, 6.0)) is None


@pytest.mark.data
def test_every_series_of_a_real_raw_head_is_noticed(clinical: Path) -> None:
    series = sorted((clinical / "tcga-fg-6692").glob("series-*.nii.gz"))
    assert len(series) == 4
    for path in series:
        volume = read_patient(patient_from_files(t1=path, patient_key="A"))
        stripped_air = np.where(volume.array > 0.05 * np.percentile(volume.array, 99), volume.array, 0)
        assert raw_head_warning(stripped_air.astype(np.float32), volume.spacing) is not None
