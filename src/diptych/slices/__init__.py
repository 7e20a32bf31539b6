"""Axial slices: normalised, resized, kept in a store, divided into training and test patients, served in batches.

Names that need torch are imported when first asked for, so that preparing a store never waits for it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from diptych.slices.preprocess import CLIP, DATA_RANGE, FILL, SliceGeometry, SliceStack, slice_volume
from diptych.slices.slice_store import SliceStore
from diptych.slices.store_record import PatientRecord

if TYPE_CHECKING:
    from diptych.slices.augment import PAPER_AUGMENTATION, ROBUST_AUGMENTATION, Augmentation
    from diptych.slices.dataset import SliceDataset
    from diptych.slices.sampling import Draw, MatchedSampler, load_batches
    from diptych.slices.slice_batch import Batch

__all__ = [
    "CLIP",
    "DATA_RANGE",
    "FILL",
    "PAPER_AUGMENTATION",
    "ROBUST_AUGMENTATION",
    "Augmentation",
    "Batch",
    "Draw",
    "MatchedSampler",
    "PatientRecord",
    "SliceDataset",
    "SliceGeometry",
    "SliceStack",
    "SliceStore",
    "load_batches",
    "slice_volume",
]

_WITH_TORCH = {
    "PAPER_AUGMENTATION": "augment",
    "ROBUST_AUGMENTATION": "augment",
    "Augmentation": "augment",
    "Batch": "slice_batch",
    "Draw": "sampling",
    "MatchedSampler": "sampling",
    "SliceDataset": "dataset",
    "load_batches": "sampling",
}


def __getattr__(name: str) -> Any:
    if name not in _WITH_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WITH_TORCH[name]}"), name)
