"""Small hand-made volumes, stacks and stores for the tests of this folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from diptych.slices import SliceGeometry, SliceStore, slice_volume
from diptych.volumes import CHANNELS, Volume, write_nifti

SMALL = SliceGeometry(size=(24, 16), field=(48.0, 40.0))
"""Neither the pixels nor the frame are square."""


def make_volume(
    key: str = "patient",
    *,
    seed: int = 0,
    shape: tuple[int, int, int] = (20, 26, 12),
    spacing: tuple[float, float, float] = (2.0, 2.0, 3.0),
    lesion_at: tuple[int, ...] = (4, 5, 6),
    channels: tuple[str, ...] = CHANNELS,
) -> Volume:
    """An egg-shaped brain between z = 1 and the last but one plane, with a lesion on the patient's left."""
    rng = np.random.default_rng(seed)
    X, Y, Z = shape
    x, y, z = np.meshgrid(*(np.linspace(-1.1, 1.1, n) for n in shape), indexing="ij")
    brain = (x**2 + y**2 + 0.3 * z**2 < 1) & (np.arange(Z) >= 1) & (np.arange(Z) < Z - 1)
    signal = rng.uniform(50, 150, (len(channels), X, Y, Z)).astype(np.float32) + 40 * x.astype(np.float32)
    lesion = np.zeros(shape, dtype=np.uint8)
    lesion[X * 5 // 8 : X * 7 // 8, Y // 3 : Y // 2, list(lesion_at)] = 2
    lesion[X * 6 // 8, Y // 3 : Y // 2, list(lesion_at)] = 3
    anatomy = np.where(x > 0, 1, 2).astype(np.uint8) * brain
    affine = np.diag([-spacing[0], -spacing[1], spacing[2], 1.0])
    affine[:3, 3] = (30.0, 40.0, -50.0)
    twin = (signal * brain).astype(np.float32)
    return Volume(
        patient_key=key,
        channels=channels,
        array=np.where(lesion > 0, twin + 100, twin).astype(np.float32),
        affine=affine,
        lesion=lesion * brain,
        anatomy=anatomy,
        twin=twin,
    )


def make_store(
    path: Path, volumes: list[Volume], geometry: SliceGeometry = SMALL, *, blank: bool = False
) -> SliceStore:
    """A finished store of `volumes`; each one's hash is `hash of KEY`."""
    store = SliceStore.create(path, geometry, volumes[0].channels, blank=blank)
    for volume in volumes:
        stack = slice_volume(volume, geometry)
        store.add(stack, voxel_hash=f"hash of {volume.patient_key}", sources={})
    store.finish(sources=["somewhere"], failed={})
    return SliceStore.open(path)


def write_patient(folder: Path, volume: Volume, *, lesion: bool = True) -> Path:
    """Write a volume as a BraTS 2023 folder, which is returned."""
    patient = folder / volume.patient_key
    patient.mkdir(parents=True)
    names = dict(zip(CHANNELS, ("t1n", "t1c", "t2w", "t2f"), strict=True))
    for channel, signal in zip(volume.channels, volume.array, strict=True):
        write_nifti(patient / f"{volume.patient_key}-{names[channel]}.nii.gz", signal, volume.affine)
    if lesion and volume.lesion is not None:
        write_nifti(patient / f"{volume.patient_key}-seg.nii.gz", volume.lesion, volume.affine)
    return patient
