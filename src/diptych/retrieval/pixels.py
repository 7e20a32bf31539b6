"""The images behind archived slices, cut and normalised as the network sees them, with their labels.

Knows the archive's copies and references; nothing about search. Every file is checked against its digest first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from diptych.archive import Archive, VolumeInfo
from diptych.archive.copies import patient_files
from diptych.archive.encoding import Encoder, cut_slices
from diptych.errors import ArchiveError
from diptych.volumes import read_patient

__all__ = ["SlicePixels", "stored_pixels"]


@dataclass(frozen=True, eq=False)
class SlicePixels:
    """One slice as it was scanned and labelled."""

    image: NDArray[np.float32]
    """Z-scores `[C, H, W]`."""
    lesion: NDArray[np.uint8] | None
    """`[H, W]`; None where the volume has no label map."""
    anatomy: NDArray[np.uint8] | None
    """`[H, W]`; None where the volume has no label map."""


def stored_pixels(store: Archive, info: VolumeInfo, z_index: int, encoder: Encoder) -> SlicePixels | None:
    """Read a slice of an archived volume; None when the archive keeps no images of it."""
    if not info.files:
        return None
    files = patient_files(store.path, info)
    labels = {file.role: store.path / file.path for file in info.files if file.role in ("lesion", "anatomy")}
    files = replace(files, lesion=labels.get("lesion"), anatomy=labels.get("anatomy"))
    stack = cut_slices(read_patient(files), encoder)
    found = np.flatnonzero(stack.z_index == z_index)
    if not len(found):
        raise ArchiveError(f"{info.volume_key}: its images show no brain in slice {z_index}; index this volume again")
    place = int(found[0])
    return SlicePixels(
        stack.images[place],
        None if stack.lesion is None else stack.lesion[place],
        None if stack.anatomy is None else stack.anatomy[place],
    )
