"""What a user may choose about phantoms. Knows nothing about how they are made."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from diptych.errors import UsageError

FRAME_MM = (240.0, 240.0, 155.0)
"""Millimetres that the image covers along x, y, z: the frame of BraTS volumes (SRI24 space)."""

SMALLEST_VOXEL_MM = 1.0
LARGEST_VOXEL_MM = 8.0


Disease = Literal["glioma", "stroke"]


@dataclass(frozen=True)
class PhantomConfig:
    """How phantoms are drawn; the defaults follow a large set of adult glioma patients."""

    voxel_mm: float = 2.0
    """Edge of a voxel in millimetres, 1 to 8; the frame is always 240 x 240 x 155 mm."""
    samples: int = 2
    """Tissue samples per voxel edge; their mean gives partial volume as a scanner does."""
    disease: Disease = "glioma"
    """What the patients have: a glioma, or a chronic stroke."""
    healthy: float = 0.0
    """Share of patients without a lesion."""
    low_grade: float = 0.15
    """Share of lesions that do not enhance."""
    multifocal: float = 0.2
    """Share of lesions with two or three foci."""
    mass_effect: float = 1.0
    """Strength of the push on ventricles and midline; 0 turns it off."""
    noise: float = 1.0
    """Strength of the scanner's noise; 0 turns it off."""
    variation: float = 1.0
    """Spread of anatomy and of contrast between patients; 0 makes all patients alike."""

    def __post_init__(self) -> None:
        if not SMALLEST_VOXEL_MM <= self.voxel_mm <= LARGEST_VOXEL_MM:
            raise UsageError(f"voxel_mm is {self.voxel_mm}: choose {SMALLEST_VOXEL_MM:g} to {LARGEST_VOXEL_MM:g}")
        if not 1 <= self.samples <= 4:
            raise UsageError(f"samples is {self.samples}: choose 1 to 4 per voxel edge")
        if self.disease not in get_args(Disease):
            raise UsageError(f"disease {self.disease!r}: choose one of {', '.join(get_args(Disease))}")
        for name in ("healthy", "low_grade", "multifocal"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise UsageError(f"{name} is {getattr(self, name)}: a share lies between 0 and 1")
        for name in ("mass_effect", "noise", "variation"):
            if not 0.0 <= getattr(self, name) <= 2.0:
                raise UsageError(f"{name} is {getattr(self, name)}: a strength lies between 0 and 2")

    @property
    def shape(self) -> tuple[int, int, int]:
        """Voxels along x, y, z.

        >>> PhantomConfig().shape
        (120, 120, 78)
        """
        x, y, z = (math.ceil(edge / self.voxel_mm) for edge in FRAME_MM)
        return x, y, z
