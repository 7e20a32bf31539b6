"""`Volume`: one patient at one time point, as everything above this layer sees it.

Knows nothing about files; `nifti.py` and `layout.py` make volumes.

Axes are canonical **LPS**: index x grows towards the patient's Left, y towards Posterior, z towards Superior.
A plane `array[:, :, :, z]` transposed to `[C, Y, X]` is therefore an axial image as radiologists hang it: anterior
at the top, the patient's right on the left of the screen. `affine` maps voxel indices to millimetres in NIfTI's
RAS+ world, so its first two diagonal entries are negative.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

CHANNELS = ("t1", "t1gd", "t2", "flair")
"""Channel names in the order in which arrays hold them."""

LESION_LABELS = {0: "background", 1: "NET", 2: "ED", 3: "ET"}
"""Necrotic / non-enhancing core, oedema, enhancing tumour."""

ANATOMY_LABELS = {
    0: "background",
    1: "left cerebrum",
    2: "right cerebrum",
    3: "left cerebellum",
    4: "right cerebellum",
    5: "left lateral ventricle",
    6: "right lateral ventricle",
}

_MIRRORED = np.array([0, 2, 1, 4, 3, 6, 5], dtype=np.uint8)


@dataclass(frozen=True, eq=False)
class Volume:
    """A multi-channel image of one patient with its geometry and, where known, its labels."""

    patient_key: str
    """Pseudonym used for splits, grouping and exclusion."""
    channels: tuple[str, ...]
    """Names of the first axis of `array`, a subset of `CHANNELS` in that order."""
    array: NDArray[np.float32]
    """Signal, `[C, X, Y, Z]`, zero outside the brain."""
    affine: NDArray[np.float64]
    """Voxel index to RAS+ millimetres, `[4, 4]`."""
    lesion: NDArray[np.uint8] | None = None
    """`LESION_LABELS` per voxel, `[X, Y, Z]`."""
    anatomy: NDArray[np.uint8] | None = None
    """`ANATOMY_LABELS` per voxel, `[X, Y, Z]`."""
    twin: NDArray[np.float32] | None = None
    """A phantom's true healthy twin: the same brain without the lesion, `[C, X, Y, Z]`."""
    warnings: tuple[str, ...] = ()
    """What the reader noticed and did not refuse, one plain sentence each."""
    sources: tuple[str, ...] = field(default=(), repr=False)
    """Files this volume was read from."""

    @property
    def spacing(self) -> tuple[float, float, float]:
        """Voxel size in millimetres along x, y, z."""
        x, y, z = np.linalg.norm(self.affine[:3, :3], axis=0)
        return float(x), float(y), float(z)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Voxels along x, y, z."""
        _, x, y, z = self.array.shape
        return x, y, z

    @property
    def brain(self) -> NDArray[np.bool_]:
        """Voxels with signal in any channel, `[X, Y, Z]`."""
        brain: NDArray[np.bool_] = np.any(self.array > 0, axis=0)
        return brain


def mirror_anatomy(labels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Swap left and right in anatomy labels, as any horizontal flip of the image must.

    >>> mirror_anatomy(np.array([0, 1, 2, 5], dtype=np.uint8)).tolist()
    [0, 2, 1, 6]
    """
    return _MIRRORED[labels]
