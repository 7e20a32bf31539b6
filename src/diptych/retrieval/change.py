"""What has changed between two studies of one patient: lesion volumes by kind, and the cells whose code changed.

    change = compare_studies(old, new, archive.encoder, archive.network)
    print(change.words)                            # "whole lesion 22.4 → 31.0 ml (+38 %)"

The old study is brought onto the new one, both are cut to the brain that they share and encoded. A cell has changed
when its code is another one *and* what the code stands for differs: for the abnormal panel the share of its pixels
whose decoded label changed, for the normal panel how far the healthy twins differ, in z-scores. A code that flickers
between neighbours in the codebook, as noise makes it do, is no change. Knows volumes, encoders, decoders; no archive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.archive.encoding import Encoder, cut_slices
from diptych.errors import UsageError, VolumeError
from diptych.model import FeatureDecomposingNetwork
from diptych.progress import Progress, silent
from diptych.retrieval.explanation import Decoded, decode
from diptych.slices import FILL, SliceStack
from diptych.volumes import LESION_LABELS, Volume
from diptych.volumes.alignment import align

CELL_SHARE = 0.3
"""Share of a cell's pixels whose decoded lesion label must have changed."""
TWIN_CHANGE = 0.6
"""Mean difference of the healthy twins in a cell, in z-scores, from which on the anatomy has changed."""
CHANGED_SHARE = 0.25
"""Of the lesion (mean of both studies): more than this much in changed cells means that the lesion has changed."""
GROWN, SHRUNK = 0.40, -0.65
"""RANO's thresholds for volumes: progression, and partial response."""
SMALLEST_ML = 0.1
BATCH = 8


@dataclass(frozen=True)
class ClassChange:
    """One kind of lesion in both studies, predicted from the codes."""

    name: str
    old_ml: float
    new_ml: float

    @property
    def percent(self) -> float | None:
        """Change in % of the old volume; None where there was nothing."""
        return None if self.old_ml < SMALLEST_ML else 100.0 * (self.new_ml - self.old_ml) / self.old_ml

    @property
    def rano(self) -> str:
        """What RANO calls such a change of volume; a word, not a diagnosis."""
        if self.old_ml < SMALLEST_ML:
            return "none" if self.new_ml < SMALLEST_ML else "new"
        share = (self.new_ml - self.old_ml) / self.old_ml
        if self.new_ml < SMALLEST_ML:
            return "gone"
        return "increased" if share >= GROWN else "decreased" if share <= SHRUNK else "stable"

    def to_json(self) -> dict[str, Any]:
        percent = None if self.percent is None else round(self.percent, 1)
        return {
            "name": self.name,
            "old_ml": round(self.old_ml, 2),
            "new_ml": round(self.new_ml, 2),
            "percent": percent,
            "rano": self.rano,
        }


@dataclass(frozen=True, eq=False)
class StudyChange:
    """Two studies of one patient in one frame, slice by slice from the bottom."""

    old_key: str
    new_key: str
    classes: tuple[ClassChange, ...]
    """The whole lesion first, then each kind."""
    changed_share: float
    """Lesion in changed cells, as a share of the lesion (mean of both studies)."""
    rotation_deg: float
    shift_mm: float
    """How far the old study had to be moved."""
    moved: Volume
    """The old study on the grid of the new one."""
    old: SliceStack
    new: SliceStack
    old_lesion: NDArray[np.uint8]
    """Predicted, `[S, H, W]`, as the next one."""
    new_lesion: NDArray[np.uint8]
    abnormal: NDArray[np.float32]
    """Share of each cell's pixels whose decoded label changed, 0 where the code is the same, `[S, h, w]`."""
    normal: NDArray[np.float32]
    """Difference of the healthy twins in each cell in z-scores, 0 where the code is the same, `[S, h, w]`."""

    @property
    def has_changed(self) -> bool:
        return self.changed_share > CHANGED_SHARE

    @property
    def words(self) -> str:
        """The whole lesion in one line."""
        whole = self.classes[0]
        change = "" if whole.percent is None else f" ({whole.percent:+.0f} %)"
        verdict = "changed" if self.has_changed else "no change beyond what a second scan would show"
        return f"whole lesion {whole.old_ml:.1f} → {whole.new_ml:.1f} ml{change}: {verdict}"

    def changed_cells(self, panel: str) -> NDArray[np.bool_]:
        """Cells that have changed in a panel, `[S, h, w]`."""
        return self.abnormal >= CELL_SHARE if panel == "abnormal" else self.normal >= TWIN_CHANGE

    def to_json(self) -> dict[str, Any]:
        slices = zip(self.new.z_index.tolist(), self._areas(self.old_lesion), self._areas(self.new_lesion), strict=True)
        return {
            "old": self.old_key,
            "new": self.new_key,
            "words": self.words,
            "has_changed": self.has_changed,
            "changed_share": round(self.changed_share, 4),
            "classes": [one.to_json() for one in self.classes],
            "rotation_deg": round(self.rotation_deg, 2),
            "shift_mm": round(self.shift_mm, 2),
            "changed_cells": {panel: int(self.changed_cells(panel).sum()) for panel in ("abnormal", "normal")},
            "slices": [{"z": z, "old_mm2": round(old, 1), "new_mm2": round(new, 1)} for z, old, new in slices],
            "source": "predicted",
            "notice": "Research use only, not a medical device.",
        }

    def _areas(self, labels: NDArray[np.uint8]) -> list[float]:
        row, column = self.new.pixel_spacing
        return [float(count) * row * column for count in np.count_nonzero(labels, axis=(1, 2))]


def compare_studies(
    old: Volume,
    new: Volume,
    encoder: Encoder,
    network: FeatureDecomposingNetwork,
    *,
    register: bool = True,
    classes: Mapping[int, str] = LESION_LABELS,
    progress: Progress = silent,
) -> StudyChange:
    """Compare two studies of one patient in the frame of the new one."""
    progress(0, 4, "bringing the studies together")
    moved = align(old, new) if register else None
    if moved is None and (old.shape != new.shape or not np.allclose(old.affine, new.affine, atol=0.5)):
        raise UsageError(f"{old.patient_key}, {new.patient_key}: lie on different grids; let them be registered")
    first = old if moved is None else moved.volume
    progress(1, 4, "encoding both")
    stacks = [cut_slices(one, encoder) for one in _shared(first, new)]
    stacks = _same_slices(*stacks)
    ids = [encoder.encode(stack.images) for stack in stacks]
    progress(2, 4, "decoding both")
    decoded = [_decode(network, *pair) for pair in ids]
    progress(3, 4, "comparing cells")
    abnormal = _abnormal_change(ids[0][1], ids[1][1], decoded[0].lesion, decoded[1].lesion)
    normal = _normal_change(ids[0][0], ids[1][0], decoded[0], decoded[1], stacks)
    lesions = decoded[0].lesion, decoded[1].lesion
    return StudyChange(
        old_key=old.patient_key,
        new_key=new.patient_key,
        classes=_class_changes(*lesions, stacks[1], classes),
        changed_share=_changed_share(abnormal, *lesions),
        rotation_deg=0.0 if moved is None else moved.rotation_deg,
        shift_mm=0.0 if moved is None else moved.shift_mm,
        moved=first,
        old=stacks[0],
        new=stacks[1],
        old_lesion=lesions[0],
        new_lesion=lesions[1],
        abnormal=abnormal,
        normal=normal,
    )


def _shared(old: Volume, new: Volume) -> tuple[Volume, Volume]:
    """Both cut to the brain that both show, so that they are cut into the same frames."""
    brain = old.brain & new.brain
    if not brain.any():
        raise VolumeError(f"{old.patient_key}, {new.patient_key}: share no brain; are they of one patient?")
    return (
        replace(old, array=np.where(brain, old.array, 0.0).astype(np.float32)),
        replace(new, array=np.where(brain, new.array, 0.0).astype(np.float32)),
    )


def _same_slices(old: SliceStack, new: SliceStack) -> list[SliceStack]:
    if not np.array_equal(old.z_index, new.z_index):
        raise VolumeError(f"{old.patient_key}, {new.patient_key}: show different slices; register them")
    return [old, new]


def _decode(network: FeatureDecomposingNetwork, normal: NDArray[Any], abnormal: NDArray[Any]) -> Decoded:
    """What the ids stand for, some slices at a time."""
    parts = [
        decode(network, normal[start : start + BATCH], abnormal[start : start + BATCH])
        for start in range(0, len(normal), BATCH)
    ]
    return Decoded(
        reconstruction=np.concatenate([part.reconstruction for part in parts]),
        healthy_twin=np.concatenate([part.healthy_twin for part in parts]),
        lesion=np.concatenate([part.lesion for part in parts]),
        anatomy=None,
    )


def _by_cell(values: NDArray[Any], grid: tuple[int, int]) -> NDArray[np.float32]:
    """The mean of `[S, H, W]` in each cell, `[S, h, w]`."""
    (S, H, W), (h, w) = values.shape, grid
    return np.asarray(values.reshape(S, h, H // h, w, W // w).mean(axis=(2, 4)), dtype=np.float32)


def _abnormal_change(
    old_ids: NDArray[Any], new_ids: NDArray[Any], old: NDArray[np.uint8], new: NDArray[np.uint8]
) -> NDArray[np.float32]:
    grid = old_ids.shape[1], old_ids.shape[2]
    return np.where(old_ids != new_ids, _by_cell((old > 0) != (new > 0), grid), 0.0).astype(np.float32)


def _normal_change(
    old_ids: NDArray[Any], new_ids: NDArray[Any], old: Decoded, new: Decoded, stacks: list[SliceStack]
) -> NDArray[np.float32]:
    grid = old_ids.shape[1], old_ids.shape[2]
    apart = np.abs(old.healthy_twin - new.healthy_twin).mean(axis=1)
    brain = (stacks[0].images[:, 0] > FILL) & (stacks[1].images[:, 0] > FILL)
    return np.where(old_ids != new_ids, _by_cell(np.where(brain, apart, 0.0), grid), 0.0).astype(np.float32)


def _changed_share(abnormal: NDArray[np.float32], old: NDArray[np.uint8], new: NDArray[np.uint8]) -> float:
    """Pixels that turned into lesion or out of it, in cells that changed, against the lesion's size."""
    (_, h, w), (_, H, W) = abnormal.shape, old.shape
    changed = np.repeat(np.repeat(abnormal >= CELL_SHARE, H // h, axis=1), W // w, axis=2)
    pixels = np.count_nonzero(((old > 0) != (new > 0)) & changed)
    size = (np.count_nonzero(old) + np.count_nonzero(new)) / 2
    return float(pixels / size) if size else 0.0


def _class_changes(
    old: NDArray[np.uint8], new: NDArray[np.uint8], stack: SliceStack, classes: Mapping[int, str]
) -> tuple[ClassChange, ...]:
    row, column = stack.pixel_spacing
    height = abs(float(np.median(np.diff(stack.z_mm)))) if len(stack.z_mm) > 1 else 1.0
    ml = row * column * height / 1000.0
    changes = [ClassChange("whole lesion", np.count_nonzero(old) * ml, np.count_nonzero(new) * ml)]
    for value, name in classes.items():
        if value:
            counts = np.count_nonzero(old == value), np.count_nonzero(new == value)
            changes.append(ClassChange(name, counts[0] * ml, counts[1] * ml))
    return tuple(changes)
