"""Follow-up examinations of phantoms: the same head in the same scanner later, its lesion changed by a known amount.

What is known can be measured: `diptych compare` is judged on these. Knows how phantoms are made, nothing about files.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy import ndimage

from diptych.errors import UsageError
from diptych.phantom.atlas import load_atlas
from diptych.phantom.brain import render_tissue
from diptych.phantom.glioma import Focus, LesionPlan, grow_lesion, push_field
from diptych.phantom.phantom_patient import Phantom
from diptych.phantom.sequences import acquire
from diptych.volumes.volume import Volume


@dataclass(frozen=True)
class Later:
    """What happened between two examinations."""

    growth: float = 1.0
    """The lesion's volume, as a multiple of what it was."""
    shift_mm: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """How far every focus has moved."""
    rotation_deg: float = 0.0
    """How much the head lies otherwise in the scanner, about its long axis."""
    rescan: int = 1
    """Number of the examination; each has noise of its own."""


def follow_up(phantom: Phantom, later: Later = Later()) -> Volume:
    """The phantom examined again; its key ends in the number of the examination."""
    config, atlas = phantom.config, load_atlas()
    if phantom.plan is not None and not isinstance(phantom.plan, LesionPlan):
        raise UsageError(f"{phantom.volume.patient_key}: only gliomas are followed up; make phantoms of glioma")
    plan = None if phantom.plan is None else _changed(phantom.plan, later)
    push = push_field(plan, phantom.head, atlas, config) if plan else None
    tissue = render_tissue(phantom.head, atlas, push, config)
    lesion = grow_lesion(plan, tissue, config) if plan else None
    scanner = replace(phantom.scanner, rescan=later.rescan)
    volume = replace(
        phantom.volume,
        patient_key=f"{phantom.volume.patient_key}-{later.rescan:03d}",
        array=acquire(tissue, lesion, scanner, config),
        lesion=np.zeros(config.shape, dtype=np.uint8) if lesion is None else lesion.labels,
        anatomy=tissue.anatomy,
        twin=acquire(tissue, None, scanner, config),
    )
    return _turned(volume, later.rotation_deg) if later.rotation_deg else volume


def _changed(plan: LesionPlan, later: Later) -> LesionPlan:
    foci = tuple(
        Focus(
            tuple(at + by for at, by in zip(focus.centre, later.shift_mm, strict=True)),  # type: ignore[arg-type]
            focus.volume_ml * later.growth,
        )
        for focus in plan.foci
    )
    return replace(plan, foci=foci, oedema_ml=plan.oedema_ml * later.growth)


def _turned(volume: Volume, degrees: float) -> Volume:
    """The head turned in the axial plane about the middle of the frame."""

    def turn(values: np.ndarray, order: Literal[0, 1]) -> np.ndarray:
        turned = ndimage.rotate(values, degrees, axes=(0, 1), reshape=False, order=order, mode="constant")
        return np.asarray(turned.astype(values.dtype))

    assert volume.lesion is not None
    assert volume.anatomy is not None
    assert volume.twin is not None
    brain = turn((volume.array[0] > 0).astype(np.float32), 1) > 0.5

    def images(array: np.ndarray) -> np.ndarray:
        return np.stack([np.where(brain, np.maximum(turn(one, 1), 1.0), 0.0).astype(np.float32) for one in array])

    return replace(
        volume,
        array=images(volume.array),
        twin=images(volume.twin),
        lesion=turn(volume.lesion, 0),
        anatomy=turn(volume.anatomy, 0),
    )
