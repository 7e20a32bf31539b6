"""One person's healthy anatomy: draw a head, then render its tissues on the image grid.

A head is a position and size in the frame, an invertible warp of the atlas (with wider or narrower ventricles), an
amount of cortical atrophy and its own fine folding. Rendering takes the push of a tumour into account, so one head
gives the brain before and after. Knows nothing about lesions or signals.

Three spaces: voxel indices of the image (LPS), frame millimetres `(index + ½) · voxel_mm`, and atlas indices
(MNI, RAS+, 1 mm). Maps are pulled back: each voxel looks up where in the atlas it comes from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from diptych.phantom.atlas import OTHER, Atlas
from diptych.phantom.fields import (
    Field,
    as_field,
    block_mean,
    exponentiate,
    gradient,
    identity_points,
    sample,
    smooth_noise,
    upsample,
)
from diptych.phantom.phantom_config import FRAME_MM, PhantomConfig

COARSE_MM = 4.0
"""Pitch of the lattices on which deformations live."""
FRAME_CENTRE = (119.8, 135.0, 74.0)
"""Where the brain's centroid lies in the frame, in millimetres (mean over real patients)."""
ATLAS_SCALE = 0.905
"""Real adult brains in this frame are smaller than the MNI template."""
WARP_SCALES = ((14.0, 3.4), (7.0, 2.2), (3.5, 0.9))
"""Bumps of the warp: distance in lattice steps, spread in millimetres."""
SHARPNESS = 2.4
FLUID_SHARPNESS = 3.5
"""Powers that turn the average brain's blurred maps into one person's: grey against white, fluid against both."""
Scalar = TypeVar("Scalar", bound=np.generic)

MIRROR = np.array([-1.0, -1.0, 1.0])
"""MNI is RAS+, the image LPS."""


@dataclass(frozen=True, eq=False)
class Head:
    """Geometry of one person, free of any tumour."""

    to_mni: NDArray[np.float64]
    """Linear part of frame millimetres → atlas millimetres, `[3, 3]`."""
    centre: NDArray[np.float64]
    """Brain centroid in frame millimetres."""
    warp: Field
    """Displacement in atlas indices on a lattice of `COARSE_MM`, `[3, …]`."""
    folding: Field
    """Person's own deviation of the cortex from the average brain, on a 2-mm lattice."""
    grain: Field
    """Fine structure of the tissue, on a 2-mm lattice."""
    atrophy: float
    """Weight of fluid against tissue: 1 is a tight young brain, 4 a shrunken one."""
    margin_mm: float
    """Fluid that the skull stripping left outside the cortex."""


@dataclass(frozen=True, eq=False)
class Tissue:
    """What fills each voxel, `[X, Y, Z]`; white + grey + fluid = brain (the part of the voxel inside the mask)."""

    brain: Field
    white: Field
    grey: Field
    fluid: Field
    texture: Field
    grain: Field
    veins: Field
    arteries: Field
    choroid: Field
    iron: Field
    periventricular: Field
    depth: Field
    """Millimetres below the brain's surface."""
    anatomy: NDArray[np.uint8]
    box: tuple[slice, slice, slice]
    """The part of the frame that holds the brain."""


def draw_head(rng: np.random.Generator, atlas: Atlas, config: PhantomConfig) -> Head:
    """Draw one person's anatomy."""
    spread = config.variation
    size = ATLAS_SCALE * (1.0 + spread * (0.022 * rng.standard_normal() + 0.018 * rng.standard_normal(3)))
    rotation = _rotation(np.radians(spread * np.array([3.5, 2.0, 2.5]) * rng.standard_normal(3)))
    centre = np.array(FRAME_CENTRE) + spread * np.array([1.0, 3.0, 2.5]) * rng.standard_normal(3)
    ventricles = 34.0 + spread * (rng.gamma(2.0, 28.0) - 40.0)
    fine = tuple(edge // 2 + 1 for edge in atlas.grey.shape)
    return Head(
        to_mni=(MIRROR / size)[:, None] * rotation.T,
        centre=centre,
        warp=exponentiate(_velocity(rng, atlas, spread, ventricles)),
        folding=as_field(spread * (0.8 * smooth_noise(rng, fine, 3.0) + 0.6 * smooth_noise(rng, fine, 10.0))),
        grain=0.7 * smooth_noise(rng, fine, 1.5) + 0.7 * smooth_noise(rng, fine, 4.0),
        atrophy=float(2.2 * math.exp(spread * 0.35 * rng.standard_normal())),
        margin_mm=float(0.4 + spread * rng.uniform(-0.5, 0.8)),
    )


def _rotation(angles: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rotation about x, then y, then z, in radians."""
    matrix = np.eye(3)
    for axis, angle in enumerate(angles):
        i, j = (axis + 1) % 3, (axis + 2) % 3
        turn = np.eye(3)
        turn[[i, j], [i, j]] = math.cos(angle)
        turn[i, j], turn[j, i] = -math.sin(angle), math.sin(angle)
        matrix = np.einsum("ij,jk->ik", turn, matrix)
    return matrix


def _velocity(rng: np.random.Generator, atlas: Atlas, spread: float, ventricles: float) -> Field:
    """Velocity in lattice steps: random bumps of several sizes, plus a pull towards the ventricles that widens them."""
    step = int(COARSE_MM)
    indicator = atlas.ventricle[::step, ::step, ::step]
    shape = indicator.shape
    velocity = np.zeros((3, *shape), dtype=np.float32)
    for scale, millimetres in WARP_SCALES:
        velocity += np.stack([smooth_noise(rng, shape, scale) for _ in range(3)]) * (spread * millimetres)
    velocity = _keep_outline(velocity, atlas.depth[::step, ::step, ::step])
    widen = gradient(indicator, COARSE_MM) * ventricles
    return as_field((velocity + widen) / COARSE_MM)


def _keep_outline(velocity: Field, depth: Field) -> Field:
    """Let the cortex slide along the skull but hardly through it: brains differ in folds, skulls are smooth."""
    normal = gradient(ndimage.gaussian_filter(depth, 1.0), COARSE_MM)
    normal /= np.maximum(np.sqrt((normal**2).sum(axis=0)), 0.2)
    through = (velocity * normal).sum(axis=0) * np.exp(-np.maximum(depth, 0.0) / 12.0)
    return as_field(velocity - 0.6 * normal * through)


def coarse_shape() -> tuple[int, int, int]:
    """Nodes of the frame's deformation lattice; node k lies at `k · COARSE_MM`."""
    x, y, z = (math.ceil(edge / COARSE_MM) + 1 for edge in FRAME_MM)
    return x, y, z


def frame_points() -> Field:
    """Frame millimetres of every lattice node, `[3, …]`."""
    return identity_points(coarse_shape()) * np.float32(COARSE_MM)


def to_atlas(head: Head, atlas: Atlas, points: Field) -> Field:
    """Atlas indices that frame positions (millimetres, `[3, …]`) come from."""
    offset = points - head.centre.astype(np.float32).reshape(3, *(1,) * (points.ndim - 1))
    linear = np.einsum("ij,j...->i...", head.to_mni.astype(np.float32), offset)
    start = (atlas.centre - atlas.origin).reshape(3, *(1,) * (points.ndim - 1))
    index = linear + start
    lattice = index / np.float32(COARSE_MM)
    moved = [ndimage.map_coordinates(axis, lattice, order=1, mode="nearest") for axis in head.warp]
    return as_field(index + np.stack(moved) * np.float32(COARSE_MM))


def render_tissue(head: Head, atlas: Atlas, push: Field | None, config: PhantomConfig) -> Tissue:
    """Tissue fractions of a head on the image grid; `push` is the pull-back of a mass effect, frame mm, `[3, …]`."""
    points = frame_points()
    lattice = to_atlas(head, atlas, points if push is None else points + push)
    depth = sample(atlas.depth, _points_of_voxels(lattice, config), outside=-99.0)
    box = _brain_box(depth, head.margin_mm, config)
    fine = _fine_fractions(head, atlas, _points_of_voxels(lattice, config, box, config.samples), config.samples)
    return _assemble(head, atlas, _points_of_voxels(lattice, config, box), fine, box, config)


def _points_of_voxels(
    lattice: Field, config: PhantomConfig, box: tuple[slice, ...] | None = None, samples: int = 1
) -> Field:
    """Atlas indices of voxel centres, or of `samples` points per voxel edge, in the frame or in a box of it."""
    box = box or tuple(slice(0, edge) for edge in config.shape)
    shape = tuple((part.stop - part.start) * samples for part in box)
    pitch = config.voxel_mm / COARSE_MM
    offset = as_field([(part.start + 0.5 / samples) * pitch for part in box])
    return np.stack([upsample(axis, shape, samples / pitch, offset=offset) for axis in lattice])


def _brain_box(depth: Field, margin_mm: float, config: PhantomConfig) -> tuple[slice, slice, slice]:
    found = ndimage.find_objects((depth > -margin_mm - config.voxel_mm).astype(np.uint8))[0]
    pad = 2
    x, y, z = (
        slice(max(part.start - pad, 0), min(part.stop + pad, edge))
        for part, edge in zip(found, config.shape, strict=True)
    )
    return x, y, z


def _assemble(
    head: Head,
    atlas: Atlas,
    voxels: Field,
    fine: dict[str, Field],
    box: tuple[slice, slice, slice],
    config: PhantomConfig,
) -> Tissue:
    """Fractions from sub-voxel samples, smooth maps from voxel centres, all placed into the whole frame."""
    maps = {
        "grain": sample(head.grain, voxels / 2.0),
        "choroid": sample(atlas.choroid, voxels),
        "iron": sample(atlas.iron, voxels),
        "periventricular": sample(atlas.ventricle, voxels),
        "depth": sample(atlas.depth, voxels, outside=-99.0) + head.margin_mm,
    }
    territory = sample(atlas.territory, voxels, order=0).astype(np.uint8)
    labels = _anatomy_labels(fine, maps["periventricular"], territory)
    placed = {name: _place(values, box, config.shape) for name, values in (fine | maps).items()}
    placed["depth"] = np.where(placed["brain"] > 0, placed["depth"], -99.0)
    return Tissue(**placed, anatomy=_place(labels, box, config.shape), box=box)


def _place(values: NDArray[Scalar], box: tuple[slice, ...], shape: tuple[int, ...]) -> NDArray[Scalar]:
    whole = np.zeros(shape, dtype=values.dtype)
    whole[box] = values
    return whole


def _fine_fractions(head: Head, atlas: Atlas, points: Field, samples: int) -> dict[str, Field]:
    """Decide tissue at every sample point, then average those of each voxel."""
    depth = sample(atlas.depth, points, outside=-99.0) + head.margin_mm
    inside = depth > -0.5
    at = points[:, inside]
    values = _tissue_at(head, atlas, at)
    values["brain"] = np.clip(depth[inside] + 0.5, 0.0, 1.0)
    fractions = {}
    for name, value in values.items():
        grid = np.zeros(depth.shape, dtype=np.float32)
        grid[inside] = value if name == "brain" else value * values["brain"]
        fractions[name] = block_mean(grid, samples)
    return fractions


def _tissue_at(head: Head, atlas: Atlas, at: Field) -> dict[str, Field]:
    """White, grey, fluid and what goes with them at single points, `[3, N]` → `[N]` each."""
    grey, white = sample(atlas.grey, at), sample(atlas.white, at)
    deep, folding = sample(atlas.deep, at), sample(head.folding, at / np.float32(2.0))
    fluid = np.clip(1.0 - grey - white, 0.0, 1.0)
    sharp_fluid = _stronger(fluid * head.atrophy * np.exp(-0.5 * folding), grey + white, FLUID_SHARPNESS)
    sharp_white = _stronger(white * np.exp(0.12 * folding), grey, SHARPNESS) * (1.0 - sharp_fluid)
    fluid = fluid * deep + sharp_fluid * (1.0 - deep)
    white = np.minimum(white * deep + sharp_white * (1.0 - deep), 1.0 - fluid)
    grey = 1.0 - white - fluid
    return {
        "white": white,
        "grey": grey,
        "fluid": fluid,
        "texture": sample(atlas.texture, at),
        "veins": sample(atlas.veins, at),
        "arteries": sample(atlas.arteries, at),
    }


def _stronger(first: Field, second: Field, power: float) -> Field:
    """Share of the first of two weights once both are raised to a power."""
    first, second = first**power, second**power
    return as_field(first / np.maximum(first + second, 1e-9))


def _anatomy_labels(fine: dict[str, Field], periventricular: Field, territory: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The six labels: the atlas says which structure a voxel is nearest to, the patient's own tissue where it ends."""
    inside = fine["brain"] > 0.5
    wet = fine["fluid"] > 0.5 * fine["brain"]
    side = np.array([0, 1, 2, 0, 0, 1, 2, 0], dtype=np.uint8)[territory]
    ventricle = wet & (side > 0) & ((periventricular > 0.12) | (territory == 5) | (territory == 6))
    solid = np.where(side > 0, side, territory)
    labels = np.where(wet, 0, solid)
    labels = np.where(ventricle, side + 4, labels)
    return np.where(inside & (territory != OTHER), labels, 0).astype(np.uint8)
