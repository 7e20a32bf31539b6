"""What an evaluation reads: patients from a store or an archive, their ids, and everything that their codes decode to.

What is worked out is kept in files that may be deleted at any time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from diptych.archive.archive_store import ArchiveStore
from diptych.archive.copies import patient_files
from diptych.archive.encoding import NetworkEncoder
from diptych.archive.records import VolumeInfo
from diptych.errors import ArchiveError, StoreError
from diptych.fitting.fit_data import LabelledSlices, encode_labelled
from diptych.model import FeatureDecomposingNetwork, load_model
from diptych.progress import Progress, silent
from diptych.search import load_arrays, save_arrays
from diptych.slices import PatientRecord, SliceStore, slice_volume
from diptych.volumes import PatientFiles, read_patient, voxel_hash


def store_of_archive(archive: Path, model: Path, out: Path, *, progress: Progress = silent) -> SliceStore:
    """Cut the archive's labelled volumes into a store in the folder `out`, for the archive's own model."""
    encoder = NetworkEncoder(load_model(model))
    about = encoder.description.as_stored
    opened = ArchiveStore.open(archive, model=encoder.identity)
    labelled = [info for info in opened.listing().volumes if any(file.role == "lesion" for file in info.files)]
    if not labelled:
        raise ArchiveError(f"{archive}: keeps no volume with lesion labels; give a slice store with --store instead")
    out.parent.mkdir(parents=True, exist_ok=True)
    store = SliceStore.create(out, encoder.geometry, about.channels, description=about)
    for done, info in enumerate(labelled, start=1):
        volume = read_patient(_files(opened.path, info), description=about)
        known = store.patients.get(info.volume_key)
        if known is None or known.voxel_hash != voxel_hash(volume):
            store.add(
                slice_volume(volume, encoder.geometry, channels=about.channels, fill_missing=True),
                voxel_hash=voxel_hash(volume),
                sources={},
            )
        progress(done, len(labelled), info.volume_key)
    store.finish(sources=[str(archive)], failed={})
    return SliceStore.open(out)


def _files(archive: Path, info: VolumeInfo) -> PatientFiles:
    labels = {file.role: archive / file.path for file in info.files if file.role in ("lesion", "anatomy")}
    return replace(patient_files(archive, info), lesion=labels["lesion"], anatomy=labels.get("anatomy"))


CACHE_VERSION = 1


def encode_once(
    network: FeatureDecomposingNetwork,
    stores: Sequence[SliceStore],
    keys: Sequence[str],
    path: Path,
    *,
    progress: Progress = silent,
) -> LabelledSlices:
    """What `encode_labelled` gives, with the ids from the file `path` where they are those of this model and data."""
    homes = {key: store for store in stores for key in store.patients}
    content = [network.fingerprint, *(homes[key].patients[key].files["images"].sha256 for key in keys)]
    key = f"ids {CACHE_VERSION} of {sha256(repr(content).encode()).hexdigest()}"
    counts = [homes[key].patients[key].slices for key in keys]
    rows, columns = network.config.latent_size
    kept = load_arrays(path, key=key)
    if kept is None or any(kept[panel].shape != (sum(counts), rows * columns) for panel in ("normal", "abnormal")):
        slices = encode_labelled(network, stores, keys, progress=progress)
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            save_arrays(path, {panel: ids.astype(np.int32) for panel, ids in slices.ids.items()}, key=key)
        return slices
    labels = {"abnormal": np.concatenate([np.asarray(homes[key].lesion(key)) for key in keys])}
    anatomy = [homes[key].anatomy(key) for key in keys]
    if all(part is not None for part in anatomy):
        labels["normal"] = np.concatenate([np.asarray(part) for part in anatomy])
    return LabelledSlices(
        grid=network.config.latent_size,
        ids={panel: kept[panel].astype(np.int64) for panel in ("normal", "abnormal")},
        labels=labels,
        volume=np.repeat(np.arange(len(keys)), counts),
        keys=tuple(keys),
        classes=network.description.panel_classes,
    )


BATCH = 16


@dataclass(frozen=True, eq=False)
class DecomposedPatient:
    """Z slices from bottom to top. Images are half precision, labels whole numbers with 0 for background."""

    key: str
    record: PatientRecord
    images: NDArray[np.float16]
    """Input x, `[Z, C, H, W]`."""
    lesion: NDArray[np.uint8]
    """True labels y, `[Z, H, W]`."""
    anatomy: NDArray[np.uint8] | None
    """True anatomy labels, `[Z, H, W]`."""
    twin: NDArray[np.float16] | None
    """A phantom's true healthy twin, `[Z, C, H, W]`."""
    reconstruction: NDArray[np.float16]
    """x̂⁺, `[Z, C, H, W]`."""
    healthy_twin: NDArray[np.float16]
    """x̂⁻, `[Z, C, H, W]`."""
    predicted_lesion: NDArray[np.uint8]
    """ŷ, `[Z, H, W]`."""
    predicted_anatomy: NDArray[np.uint8] | None
    """`[Z, H, W]`; None without an anatomy head."""
    normal_ids: NDArray[np.int64]
    """`[Z, h, w]`."""
    abnormal_ids: NDArray[np.int64]
    """`[Z, h, w]`."""


def decompose_patient(network: FeatureDecomposingNetwork, store: SliceStore, key: str) -> DecomposedPatient:
    """Pass all slices of a patient through the whole network."""
    images, lesion = store.images(key), store.lesion(key)
    if lesion is None:
        raise StoreError(f"patient {key}: has no lesion labels, which evaluation needs; take it off the list")
    parts = [network.decompose(torch.from_numpy(images[at : at + BATCH].astype(np.float32))) for at in _starts(images)]
    anatomy = [part.anatomy_probabilities for part in parts]
    return DecomposedPatient(
        key=key,
        record=store.patients[key],
        images=images,
        lesion=np.asarray(lesion),
        anatomy=store.anatomy(key),
        twin=store.twin(key),
        reconstruction=_half([part.reconstruction for part in parts]),
        healthy_twin=_half([part.healthy_twin for part in parts]),
        predicted_lesion=_labels([part.lesion_probabilities for part in parts]),
        predicted_anatomy=None if anatomy[0] is None else _labels([part for part in anatomy if part is not None]),
        normal_ids=torch.cat([part.normal_ids for part in parts]).numpy(),
        abnormal_ids=torch.cat([part.abnormal_ids for part in parts]).numpy(),
    )


def _starts(images: NDArray[np.float16]) -> range:
    return range(0, len(images), BATCH)


def _half(parts: list[torch.Tensor]) -> NDArray[np.float16]:
    return np.asarray(torch.cat(parts).to(torch.float16).contiguous().numpy())


def _labels(parts: list[torch.Tensor]) -> NDArray[np.uint8]:
    return np.asarray(torch.cat([part.argmax(dim=1) for part in parts]).to(torch.uint8).numpy())


def small_images(homes: Mapping[str, SliceStore], keys: Sequence[str], side: int) -> NDArray[np.float32]:
    """All slices of all patients, averaged down to `side` × `side` pixels, `[N, C, side, side]`."""
    return np.concatenate([shrink(homes[key].images(key), side) for key in keys])


def shrink(images: NDArray[np.float16], side: int) -> NDArray[np.float32]:
    """Average `[n, C, H, W]` down to `[n, C, side, side]`."""
    full = torch.from_numpy(np.asarray(images, dtype=np.float32))
    return np.asarray(F.adaptive_avg_pool2d(full, side).numpy())


def evenly(homes: Mapping[str, SliceStore], keys: Sequence[str], count: int, *, seed: int) -> NDArray[np.float16]:
    """About `count` slices, equally many of each patient, drawn at random, `[n, C, H, W]`."""
    rng = np.random.default_rng(seed)
    each = max(count // max(len(keys), 1), 1)
    chosen = []
    for key in keys:
        images = homes[key].images(key)
        rows = np.sort(rng.permutation(len(images))[:each])
        chosen.append(np.asarray(images[rows]))
    return np.concatenate(chosen)
