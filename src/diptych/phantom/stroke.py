"""Chronic strokes: tissue that an artery fed and that died, in the shape of the artery's territory.

`plan_stroke` draws side, artery and size, `grow_stroke` the tissue: a cavity of fluid with a border of scar. Death
spreads alike through cortex and white matter but hardly past the border of the territory, so that large strokes are
wedges and small ones are rounded. There is no mass effect: the twin is the same brain before the artery closed. Knows
nothing about signals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from diptych.phantom.brain import Tissue
from diptych.phantom.fields import Field, as_field, sigmoid, smooth_noise, travel_time
from diptych.phantom.glioma import Lesion
from diptych.phantom.phantom_config import PhantomConfig

Artery = Literal["middle, upper", "middle, lower", "anterior", "posterior"]
SHARES: dict[Artery, float] = {"middle, upper": 0.45, "middle, lower": 0.3, "anterior": 0.1, "posterior": 0.15}
"""How often an artery closes."""
SMALLEST_ML, LARGEST_ML = 2.0, 220.0
OUTSIDE = 0.06
"""Speed of the front beyond the territory, against 1 within."""
SCAR_MM = 3.0
WANDER = 0.06
"""How far borders of territories wander, as a share of the hemisphere: no two people have the same."""


@dataclass(frozen=True)
class StrokePlan:
    """One closed artery, drawn before the tissue dies."""

    side: Literal["left", "right"]
    artery: Artery
    volume_ml: float
    cavity: float
    """Share of the dead tissue that has become fluid; the rest is scar."""
    seed: int
    """Of the noise that shapes the lesion."""


def plan_stroke(rng: np.random.Generator) -> StrokePlan:
    """Draw side, artery and size."""
    arteries = list(SHARES)
    return StrokePlan(
        side="left" if rng.random() < 0.5 else "right",
        artery=arteries[int(rng.choice(len(arteries), p=list(SHARES.values())))],
        volume_ml=float(np.clip(45.0 * np.exp(0.9 * rng.standard_normal()), SMALLEST_ML, LARGEST_ML)),
        cavity=float(rng.uniform(0.6, 0.95)),
        seed=int(rng.integers(2**62)),
    )


def grow_stroke(plan: StrokePlan, tissue: Tissue, config: PhantomConfig) -> Lesion:
    """Let the planned stroke kill tissue."""
    box, voxel = tissue.box, config.voxel_mm
    rng = np.random.default_rng(plan.seed)
    cerebrum = tissue.anatomy[box] == (1 if plan.side == "left" else 2)
    shape = cerebrum.shape
    wander = [WANDER * smooth_noise(rng, shape, 22.0 / voxel) for _ in range(3)]
    territory = _territory(plan.artery, cerebrum, plan.side, wander)
    rough = smooth_noise(rng, shape, 14.0 / voxel)
    speed = np.where(cerebrum, np.where(territory, 1.0, OUTSIDE), 1e-3) * np.exp(0.35 * rough)
    start = np.full(shape, np.inf, dtype=np.float32)
    start[_origin(territory & cerebrum, rng)] = 0.0
    time = travel_time(as_field(speed), start, voxel, limit=160.0)
    time = as_field(np.where(np.isfinite(time), time, 999.0))
    edge = _edge(time, plan.volume_ml, cerebrum, voxel)
    dead = sigmoid(as_field(edge - time), 0.6 * voxel) * np.clip(tissue.brain[box] * 1.5, 0.0, 1.0) * cerebrum
    cavity = dead * sigmoid(as_field(edge - SCAR_MM * (2.0 - plan.cavity) + 2.0 * rough - time), 0.8 * voxel)
    parts = {
        "core": as_field(cavity),
        "rim": np.zeros(shape, dtype=np.float32),
        "oedema": as_field(dead - cavity),
        "mottle": as_field(smooth_noise(rng, shape, 6.0 / voxel)),
        "labels": as_field(dead > 0.5),
    }
    whole = {name: _into(values, box, config.shape) for name, values in parts.items()}
    return Lesion(
        core=whole["core"],
        rim=whole["rim"],
        oedema=whole["oedema"],
        mottle=whole["mottle"],
        necrosis=1.0,
        low_grade=False,
        labels=whole["labels"].astype(np.uint8),
        cavity=True,
    )


def _territory(artery: Artery, cerebrum: NDArray[np.bool_], side: str, wander: Sequence[Field]) -> NDArray[np.bool_]:
    """The part of a hemisphere that an artery feeds, by place in the hemisphere's own box, `[X, Y, Z]`."""
    x, y, z = (_within(cerebrum, axis) + wander[axis] for axis in range(3))
    lateral = x if side == "left" else 1.0 - x  # x grows towards the patient's left
    anterior = (lateral < 0.34) & (y < 0.68) & (z > 0.3)
    posterior = (y > 0.74) | ((lateral < 0.42) & (y > 0.6) & (z < 0.45))
    middle = ~anterior & ~posterior
    if artery == "anterior":
        return anterior
    if artery == "posterior":
        return posterior
    return middle & ((y + 0.6 * (z < 0.45)) < 0.62) if artery == "middle, upper" else middle & (y > 0.38)


def _within(cerebrum: NDArray[np.bool_], axis: int) -> Field:
    """Where a voxel is along an axis: 0 at one end of the hemisphere, 1 at the other; shaped to be combined."""
    others = tuple(one for one in range(3) if one != axis)
    there = np.flatnonzero(cerebrum.any(axis=others))
    low, high = (int(there[0]), int(there[-1])) if there.size else (0, 1)
    place = (np.arange(cerebrum.shape[axis], dtype=np.float32) - low) / max(high - low, 1)
    return as_field(place).reshape([-1 if one == axis else 1 for one in range(3)])


def _origin(allowed: NDArray[np.bool_], rng: np.random.Generator) -> tuple[int, int, int]:
    """A place well inside the territory."""
    inner = ndimage.distance_transform_edt(allowed)
    deep = np.argwhere(inner >= 0.6 * inner.max())
    x, y, z = deep[int(rng.integers(len(deep)))]
    return int(x), int(y), int(z)


def _edge(time: Field, volume_ml: float, cerebrum: NDArray[np.bool_], voxel_mm: float) -> float:
    """The time at which the front has covered a volume of the hemisphere, half of it at most."""
    times = np.sort(time[cerebrum])
    count = min(round(volume_ml * 1000.0 / voxel_mm**3), len(times) // 2)
    return float(times[max(count, 1)])


def _into(values: Field, box: tuple[slice, ...], shape: tuple[int, ...]) -> Field:
    whole = np.zeros(shape, dtype=values.dtype)
    whole[box] = values
    return whole
