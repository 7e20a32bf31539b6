"""`Volume`: one patient at one time point, as everything above this layer sees it.

Knows nothing about files; `nifti.py` and `layout.py` make volumes.

Axes are canonical **LPS**: index x grows towards the patient's Left, y towards Posterior, z towards Superior.
A plane `array[:, :, :, z]` transposed to `[C, Y, X]` is therefore an axial image as radiologists hang it: anterior
at the top, the patient's right on the left of the screen. `affine` maps voxel indices to millimetres in NIfTI's
RAS+ world, so its first two diagonal entries are negative.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from diptych.description import CHANNELS as CHANNELS
from diptych.description import GLIOMA, Description
from diptych.errors import MissingChannelError

LESION_LABELS = {0: "background", **GLIOMA.lesion_names}
"""Of gliomas: necrotic / non-enhancing core, oedema, enhancing tumour."""

ANATOMY_LABELS = {0: "background", **GLIOMA.anatomy_names}

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
    """Lesion classes per voxel, as `description` names them, `[X, Y, Z]`."""
    anatomy: NDArray[np.uint8] | None = None
    """`ANATOMY_LABELS` per voxel, `[X, Y, Z]`."""
    twin: NDArray[np.float32] | None = None
    """A phantom's true healthy twin: the same brain without the lesion, `[C, X, Y, Z]`."""
    warnings: tuple[str, ...] = ()
    """What the reader noticed and did not refuse, one plain sentence each."""
    sources: tuple[str, ...] = field(default=(), repr=False)
    """Files this volume was read from."""
    description: Description = GLIOMA
    """What the classes mean; its channels need not be those of this volume."""

    def only(self, channels: tuple[str, ...]) -> Volume:
        """The same patient with these channels, and no others; a missing one is refused by its name."""
        if channels == self.channels:
            return self
        if missing := [name for name in channels if name not in self.channels]:
            raise MissingChannelError(
                f"{self.patient_key}: has {', '.join(self.channels)}, but not {' and '.join(missing)}, which the model "
                f"reads; add {'it' if len(missing) == 1 else 'them'}, or use a model trained without"
            )
        places = [self.channels.index(name) for name in channels]
        twin = None if self.twin is None else self.twin[places]
        return replace(self, channels=channels, array=self.array[places], twin=twin)

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
