"""A coarse raw head that the tests of intake share, and its series."""

from __future__ import annotations

import pytest

from diptych.phantom.phantom_config import PhantomConfig
from diptych.phantom.raw_head import Acquisition, RawHead, RawSeries, acquire_series, draw_raw_head


@pytest.fixture(scope="session")
def head() -> RawHead:
    return draw_raw_head(5, config=PhantomConfig(voxel_mm=4, samples=1))


@pytest.fixture(scope="session")
def oblique(head: RawHead) -> RawSeries:
    """A small sagittal series, turned, with more columns than rows than slices."""
    acquisition = Acquisition("t2", "sagittal", in_plane_mm=5, thickness_mm=6, oblique_deg=(8, -5, 11))
    return acquire_series(head, acquisition)
