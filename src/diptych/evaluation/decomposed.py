"""`DecomposedPatient`: all slices of a patient with everything that their codes decode to, as arrays.

Knows slice stores and the network; nothing about what is measured on them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from diptych.errors import StoreError
from diptych.model import FeatureDecomposingNetwork
from diptych.slices import PatientRecord, SliceStore

__all__ = ["DecomposedPatient", "decompose_patient"]

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
