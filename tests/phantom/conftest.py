"""One small phantom, made once, that most tests look at."""

from __future__ import annotations

import pytest

from diptych.phantom import Phantom, PhantomConfig, make_phantom
from diptych.phantom.atlas import Atlas, load_atlas

SMALL = PhantomConfig(voxel_mm=4.0, low_grade=0.0, multifocal=0.0)
SEED = 3


@pytest.fixture(scope="session")
def atlas() -> Atlas:
    return load_atlas()


@pytest.fixture(scope="session")
def phantom() -> Phantom:
    return make_phantom(SEED, config=SMALL)
