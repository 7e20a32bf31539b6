"""`EncodedSlice`: what a question starts from, whether it comes from image files, from the archive or from two of each.

Knows volumes, slices and the encoder; nothing about search.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diptych.archive import VolumeRecord
from diptych.archive.encoding import BATCH_SIZE, Encoder, cut_slices
from diptych.errors import UsageError
from diptych.slices import SliceStack
from diptych.volumes import Volume, find_patients, names_of, read_patient

Grid = NDArray[np.integer]


@dataclass(frozen=True, eq=False)
class EncodedSlice:
    """One slice as two id grids, with what else is known of it."""

    name: str
    """For people to read: the volume's key and the slice's number."""
    normal_ids: Grid
    """`[h, w]`."""
    abnormal_ids: Grid
    """`[h, w]`."""
    patients: frozenset[str]
    """Patients it stems from, who are left out of answers unless asked for."""
    z_index: int | None = None
    """Index of the axial plane in its volume, from the bottom."""
    position: float | None = None
    """0 at the lowest slice of the brain, 1 at the highest."""
    z_mm: float | None = None
    volume_key: str | None = None
    """The archived volume that it is a slice of."""
    pixel_spacing: tuple[float, float] = (1.0, 1.0)
    """Millimetres between rows and between columns of the slice."""
    image: NDArray[np.float32] | None = None
    """Z-scores `[C, H, W]`, where the slice came as pixels."""
    lesion: NDArray[np.uint8] | None = None
    """True lesion labels `[H, W]`, where known."""
    anatomy: NDArray[np.uint8] | None = None
    """True anatomy labels `[H, W]`, where known."""
    warnings: tuple[str, ...] = ()
    """What the reader of the volume noticed."""


def read_one(folder: Path) -> Volume:
    """The only patient in a folder."""
    patients = find_patients(folder)
    if len(patients) > 1:
        keys = ", ".join(patient.patient_key for patient in patients[:3])
        raise UsageError(f"{folder}: holds {len(patients)} patients ({keys}, …); name the folder of one")
    return read_patient(replace(patients[0], twin={}))


LesionSizes = Callable[[Grid], NDArray[np.integer]]
"""How large the lesion is that abnormal ids `[n, h, w]` stand for, in whatever unit."""


def encode_slice(
    volume: Volume, encoder: Encoder, *, z_index: int | None = None, sizes: LesionSizes | None = None
) -> EncodedSlice:
    """Encode one axial plane of a volume; without `z_index`, the one with the largest predicted lesion.

    `sizes` tells how large it is; where that finds none, the encoder's own segmentation is asked.
    """
    stack = cut_slices(volume, encoder)
    if z_index is None:
        starts = range(0, len(stack.images), BATCH_SIZE)
        abnormal = [encoder.encode(stack.images[start : start + BATCH_SIZE])[1] for start in starts]
        found = None if sizes is None else sizes(np.concatenate(abnormal))
        if found is None or not found.any():
            found = np.concatenate([encoder.lesion_pixels(ids) for ids in abnormal])
        place = largest_lesion(found, volume.patient_key)
    else:
        place = _place_of(z_index, stack.z_index, volume.patient_key)
    normal_ids, abnormal_ids = encoder.encode(stack.images[place : place + 1])
    return _from_stack(stack, place, normal_ids[0], abnormal_ids[0])


def _from_stack(stack: SliceStack, place: int, normal_ids: Grid, abnormal_ids: Grid) -> EncodedSlice:
    return EncodedSlice(
        name=f"{stack.patient_key} slice {stack.z_index[place]}",
        normal_ids=normal_ids,
        abnormal_ids=abnormal_ids,
        patients=names_of(stack.patient_key),
        z_index=int(stack.z_index[place]),
        position=float(stack.position[place]),
        z_mm=float(stack.z_mm[place]),
        pixel_spacing=stack.pixel_spacing,
        image=stack.images[place],
        lesion=None if stack.lesion is None else stack.lesion[place],
        anatomy=None if stack.anatomy is None else stack.anatomy[place],
        warnings=stack.warnings,
    )


def stored_slice(record: VolumeRecord, encoder: Callable[[], Encoder], *, z_index: int | None = None) -> EncodedSlice:
    """A slice of an archived volume; without `z_index`, the one with the largest predicted lesion.

    `encoder` gives the model that predicts it, and is asked only where the archive does not know.
    """
    info = record.info
    if z_index is not None:
        place = _place_of(z_index, record.z_index, info.volume_key)
    elif info.lesion_source == "predicted":
        place = largest_lesion(record.lesion_area, info.volume_key)
    else:
        place = largest_lesion(encoder().lesion_pixels(record.abnormal_ids), info.volume_key)
    column, row, _ = np.linalg.norm(record.slice_affine[:3, :3], axis=0)
    return EncodedSlice(
        name=f"{info.volume_key} slice {record.z_index[place]}",
        normal_ids=record.normal_ids[place],
        abnormal_ids=record.abnormal_ids[place],
        patients=frozenset({info.patient_key}),
        z_index=int(record.z_index[place]),
        position=float(record.position[place]),
        z_mm=float(record.z_mm[place]),
        volume_key=info.volume_key,
        pixel_spacing=(float(row), float(column)),
    )


def compose(anatomy: EncodedSlice, lesion: EncodedSlice) -> EncodedSlice:
    """This lesion in this anatomy: the normal code of one slice with the abnormal code of another."""
    return replace(
        anatomy,
        name=f"anatomy of {anatomy.name} with lesion of {lesion.name}",
        abnormal_ids=lesion.abnormal_ids,
        patients=anatomy.patients | lesion.patients,
        volume_key=None,
        image=None,
        lesion=None,
        anatomy=None,
        warnings=(*anatomy.warnings, *lesion.warnings),
    )


def largest_lesion(areas: NDArray[np.integer] | NDArray[np.floating], key: str) -> int:
    """The place of the largest area; a patient without any lesion has no such slice."""
    if not np.nanmax(areas) > 0:
        raise UsageError(f"{key}: no lesion is predicted in any slice; choose a slice by its number")
    return int(np.nanargmax(areas))


def _place_of(z_index: int, z_indices: NDArray[np.integer], key: str) -> int:
    found = np.flatnonzero(z_indices == z_index)
    if not len(found):
        raise UsageError(f"slice {z_index}: {key} shows brain in slices {z_indices[0]}…{z_indices[-1]}; choose one")
    return int(found[0])
