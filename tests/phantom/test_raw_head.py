"""A raw head has a skull, moves between series, and left stays left."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from diptych.errors import UsageError
from diptych.phantom.phantom_config import PhantomConfig
from diptych.phantom.raw_head import Acquisition, RawHead, acquire_series, draw_raw_head
from diptych.volumes.rawhead import raw_head_warning

AXIAL = Acquisition("flair", in_plane_mm=4, thickness_mm=6, noise=0, shading=0)


@pytest.fixture(scope="module")
def head() -> RawHead:
    return draw_raw_head(5, config=PhantomConfig(voxel_mm=4, samples=1))


def centre_of_lesion(head: RawHead, acquisition: Acquisition) -> NDArray[np.float64]:
    """In the head frame, by way of the series' own grid and pose."""
    series = acquire_series(head, acquisition)
    index = np.argwhere(series.lesion > 0).mean(axis=0)
    place: NDArray[np.float64] = (np.linalg.inv(series.pose) @ series.affine @ [*index, 1.0])[:3]
    return place


def test_a_raw_head_looks_like_one(head: RawHead) -> None:
    assert raw_head_warning(head.array, (4.0, 4.0, 4.0)) is not None


@pytest.mark.parametrize(
    "changed",
    [
        {"plane": "sagittal"},
        {"plane": "coronal", "reverse": True},
        {"oblique_deg": (10.0, -7.0, 5.0), "tilt_deg": 9.0},
        {"pose_deg": (6.0, -4.0, 8.0), "pose_mm": (9.0, -3.0, 5.0)},
    ],
)
def test_every_series_shows_the_same_head(head: RawHead, changed: dict[str, Any]) -> None:
    usual = centre_of_lesion(head, AXIAL)
    assert centre_of_lesion(head, replace(AXIAL, **changed)) == pytest.approx(usual, abs=3.0)


def test_a_cropped_field_covers_less(head: RawHead) -> None:
    whole, part = (acquire_series(head, replace(AXIAL, cover=cover)) for cover in ((0.0, 1.0), (0.3, 1.0)))
    assert part.array.shape[2] == pytest.approx(0.7 * whole.array.shape[2], abs=1)
    np.testing.assert_array_equal(part.array, whole.array[:, :, -part.array.shape[2] :])


def test_an_unknown_plane_is_named(head: RawHead) -> None:
    with pytest.raises(UsageError, match="plane 'slanted' is not known"):
        acquire_series(head, replace(AXIAL, plane="slanted"))
