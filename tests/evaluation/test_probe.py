"""The probe: nothing where codes are noise or tell the place alone, most where they tell the label."""

from __future__ import annotations

import numpy as np

from diptych.evaluation.parts.decomposition import majority, presence
from diptych.evaluation.probe import HEIGHTS, Cells, what_codes_know

SLICES, PLACES = 360, 12


def cells_with(ids: np.ndarray, labels: np.ndarray) -> Cells:
    return Cells(ids, labels, np.arange(SLICES) % HEIGHTS, np.arange(SLICES) // 30)


def some_labels() -> np.ndarray:
    """Lesions that are commoner in some places than in others."""
    rng = np.random.default_rng(0)
    return (rng.random((SLICES, PLACES)) < np.linspace(0.05, 0.4, PLACES)).astype(np.int64)


def test_codes_that_tell_the_place_alone_know_nothing() -> None:
    labels = some_labels()
    ids = np.broadcast_to(np.arange(PLACES), labels.shape)
    assert abs(what_codes_know(cells_with(ids, labels), codes=16, classes=2)) < 0.02


def test_noise_knows_nothing() -> None:
    ids = np.random.default_rng(1).integers(16, size=(SLICES, PLACES))
    assert what_codes_know(cells_with(ids, some_labels()), codes=16, classes=2) < 0.02


def test_codes_that_tell_the_label_know_it() -> None:
    labels = some_labels()
    noise = np.random.default_rng(2).integers(8, size=labels.shape)
    assert what_codes_know(cells_with(8 * labels + noise, labels), codes=16, classes=2) > 0.9


def test_cells_of_a_grid_that_is_not_square() -> None:
    labels = np.zeros((1, 4, 6), dtype=np.uint8)
    labels[0, 3, 5] = 2
    labels[0, :2, 2:4] = 1
    assert presence(labels, (2, 3)).tolist() == [[0, 1, 0, 0, 0, 1]]
    assert majority(labels, (2, 3)).tolist() == [[0, 1, 0, 0, 0, 0]]
