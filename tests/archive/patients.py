"""Tiny patients as NIfTI files, and an encoder that needs no network: for tests of indexing and of being killed."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from diptych.archive.records import CodeIdArray, ModelIdentity
from diptych.description import GLIOMA
from diptych.slices import SliceGeometry
from diptych.volumes import write_nifti

CHANNEL_FILES = ("t1n", "t1c", "t2w", "t2f")


def write_patient(folder: Path, key: str, *, seed: int = 0, lesion: bool = True) -> Path:
    """A ball of noise in a box of 20 × 26 × 9 voxels, with a lesion in its middle."""
    rng = np.random.default_rng(seed)
    x, y, z = np.meshgrid(*(np.linspace(-1, 1, n) for n in (20, 26, 9)), indexing="ij")
    brain = x**2 + y**2 + z**2 < 0.9
    affine = np.diag([-4.0, -4.0, 5.0, 1.0])
    (folder / key).mkdir(parents=True)
    for name in CHANNEL_FILES:
        signal = (brain * rng.integers(50, 500, brain.shape)).astype(np.int16)
        write_nifti(folder / key / f"{key}-{name}.nii.gz", signal, affine)
    if lesion:
        labels = (2 * (x**2 + y**2 + (z - 0.3) ** 2 < 0.1)).astype(np.uint8)
        write_nifti(folder / key / f"{key}-seg.nii.gz", labels, affine)
    return folder / key


class FakeEncoder:
    """Ids from mean intensities of cells; the same for any batch size, and quick."""

    identity = ModelIdentity("f" * 64, (2, 4), 300, 300)
    geometry = SliceGeometry(size=(16, 32), field=(120.0, 100.0))
    description = GLIOMA

    def encode(self, images: NDArray[np.float32]) -> tuple[CodeIdArray, CodeIdArray]:
        B, C, _, _ = images.shape
        cells = images.reshape(B, C, 2, 8, 4, 8).mean(axis=(3, 5))  # [B, C, h, w]
        ids = ((cells + 3) * 1000).astype(np.int64) % 300
        return ids[:, 0].astype(np.uint16), ids[:, 1].astype(np.uint16)

    def lesion_pixels(self, abnormal_ids: CodeIdArray) -> NDArray[np.int64]:
        return np.asarray(np.count_nonzero(abnormal_ids > 150, axis=(1, 2)), dtype=np.int64)


def index_aloud(folder: Path, archive: Path, out: TextIO) -> None:
    """Index FOLDER into ARCHIVE, telling each key once it is acknowledged."""
    from diptych.archive import ArchiveWriter
    from diptych.archive.indexing import index_patients
    from diptych.volumes.sources import find_sources

    print("ready", file=out, flush=True)
    encoder = FakeEncoder()
    with ArchiveWriter.open(archive, model=encoder.identity) as writer:
        sources = find_sources([folder])
        index_patients(writer, encoder, sources, acknowledge=lambda key: print(f"stored {key}", file=out, flush=True))
    print("done", file=out, flush=True)
