"""A slice store made of an archive's own images and labels, so that an archive can be evaluated without its sources.

Knows archives and stores; nothing about what is measured. Volumes of which the archive keeps no images, or no lesion
labels, are left out. What an earlier run has cut is not cut again.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from diptych.archive.copies import patient_files
from diptych.archive.encoding import NetworkEncoder
from diptych.archive.records import VolumeInfo
from diptych.archive.store import Archive
from diptych.errors import ArchiveError
from diptych.model import load_model
from diptych.progress import Progress, silent
from diptych.slices import SliceStore, slice_volume
from diptych.volumes import CHANNELS, PatientFiles, read_patient, voxel_hash

__all__ = ["store_of_archive"]


def store_of_archive(archive: Path, model: Path, out: Path, *, progress: Progress = silent) -> SliceStore:
    """Cut the archive's labelled volumes into a store in the folder `out`, for the archive's own model."""
    encoder = NetworkEncoder(load_model(model))
    opened = Archive.open(archive, model=encoder.identity)
    labelled = [info for info in opened.listing().volumes if any(file.role == "lesion" for file in info.files)]
    if not labelled:
        raise ArchiveError(f"{archive}: keeps no volume with lesion labels; give a slice store with --store instead")
    out.parent.mkdir(parents=True, exist_ok=True)
    store = SliceStore.create(out, encoder.geometry, CHANNELS)
    for done, info in enumerate(labelled, start=1):
        volume = read_patient(_files(opened.path, info))
        known = store.patients.get(info.volume_key)
        if known is None or known.voxel_hash != voxel_hash(volume):
            store.add(slice_volume(volume, encoder.geometry), voxel_hash=voxel_hash(volume), sources={})
        progress(done, len(labelled), info.volume_key)
    store.finish(sources=[str(archive)], failed={})
    return SliceStore.open(out)


def _files(archive: Path, info: VolumeInfo) -> PatientFiles:
    labels = {file.role: archive / file.path for file in info.files if file.role in ("lesion", "anatomy")}
    return replace(patient_files(archive, info), lesion=labels["lesion"], anatomy=labels.get("anatomy"))
