"""Gliomas: where they start, how they push the brain, and how core, rim and oedema grow through its tissue.

`plan_lesion` draws the biology, `push_field` the mass effect, `grow_lesion` the tissue. Growth is a travel time: a
front that runs fast in white matter, slowly in cortex and hardly at all through fluid, so that oedema follows white
matter, spares the cortex and crosses the midline only where the corpus callosum does. Knows nothing about signals.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from diptych.phantom.atlas import Atlas
from diptych.phantom.brain import COARSE_MM, Head, Tissue, frame_points, to_atlas
from diptych.phantom.fields import Field, as_field, exponentiate, gradient, sample, sigmoid, smooth_noise, travel_time
from diptych.phantom.phantom_config import PhantomConfig

NET, ED, ET = 1, 2, 3
REACH_MM = 70.0
"""How far from a focus growth is followed."""
SMALLEST_CORE_ML, LARGEST_CORE_ML = 0.6, 110.0
SQUEEZE = 32.0
"""Narrowing of a near ventricle per millimetre of push; without it a push would stretch the ventricle it starts in."""
DEEP_SITES = 0.12
"""Chance of a site in brain stem or cerebellum, against 0.3 to 1.3 in the cerebrum (most in white matter)."""


@dataclass(frozen=True)
class Focus:
    """One centre of growth."""

    centre: tuple[float, float, float]
    """Frame millimetres."""
    volume_ml: float
    """Core: necrosis and enhancing tumour together."""


@dataclass(frozen=True)
class LesionPlan:
    """The biology of one glioma, drawn before it grows."""

    foci: tuple[Focus, ...]
    low_grade: bool
    oedema_ml: float
    rim_mm: float
    """Mean thickness of the enhancing rim; large values give solid tumours."""
    irregularity: float
    """0 is a ball, 1 is deeply lobulated."""
    strands: float
    """Enhancing strands and nodes inside the core, 0–1."""
    necrosis: float
    """0 is solid tissue, 1 is fluid."""
    seed: int
    """Of the noise that shapes the lesion."""


@dataclass(frozen=True, eq=False)
class Lesion:
    """What the tumour put into each voxel, as fractions of it, `[X, Y, Z]`."""

    core: Field
    """Necrotic or non-enhancing tumour."""
    rim: Field
    """Enhancing tumour."""
    oedema: Field
    """Strength of the oedema, 0–1."""
    mottle: Field
    """Texture of the core, zero mean."""
    necrosis: float
    low_grade: bool
    labels: NDArray[np.uint8]
    cavity: bool = False
    """Whether the core is a cavity full of fluid, as an old stroke leaves it, and `oedema` its scar."""


def plan_lesion(rng: np.random.Generator, head: Head, atlas: Atlas, config: PhantomConfig) -> LesionPlan:
    """Draw site, size and kind."""
    low_grade = bool(rng.random() < config.low_grade)
    count = 1 if rng.random() >= config.multifocal else int(rng.integers(2, 4))
    median = 30.0 if low_grade else 23.0
    core_ml = float(np.clip(median * np.exp(1.0 * rng.standard_normal()), SMALLEST_CORE_ML, LARGEST_CORE_ML))
    shares = rng.dirichlet(np.full(count, 1.5))
    centres = _sites(rng, head, atlas, count)
    foci = tuple(
        Focus(centre, max(core_ml * float(share), SMALLEST_CORE_ML))
        for centre, share in zip(centres, shares, strict=True)
    )
    oedema = core_ml**0.35 * 17.0 * np.exp(0.7 * rng.standard_normal())
    return LesionPlan(
        foci=foci,
        low_grade=low_grade,
        oedema_ml=float(min(oedema * (0.35 if low_grade else 1.0), 170.0)),
        rim_mm=float(np.exp(rng.normal(1.75, 0.5))),
        irregularity=float(rng.uniform(0.35, 1.0)),
        strands=float(rng.beta(1.0, 1.2)),
        necrosis=float(rng.beta(1.6, 1.4)),
        seed=int(rng.integers(2**62)),
    )


def _sites(rng: np.random.Generator, head: Head, atlas: Atlas, count: int) -> list[tuple[float, float, float]]:
    """Places under the cortex or in deep white matter; further foci lie in the neighbourhood of the first."""
    points = frame_points()
    at = to_atlas(head, atlas, points)
    white, depth = sample(atlas.white, at), sample(atlas.depth, at, outside=-99.0)
    territory = sample(atlas.territory, at, order=0)
    cerebrum = (territory == 1) | (territory == 2)
    chance = np.where(cerebrum, white + 0.3, DEEP_SITES) * (depth > 10.0)
    sites: list[tuple[float, float, float]] = []
    for _ in range(count):
        weights = chance.ravel().astype(np.float64)
        chosen = int(np.searchsorted(np.cumsum(weights), rng.random() * weights.sum()))
        x, y, z = points.reshape(3, -1)[:, min(chosen, weights.size - 1)]
        sites.append((float(x), float(y), float(z)))
        away = np.sqrt(sum((axis - centre) ** 2 for axis, centre in zip(points, sites[0], strict=True)))
        chance = chance * np.exp(-(((away - 32.0) / 14.0) ** 2))
    return sites


def push_field(plan: LesionPlan, head: Head, atlas: Atlas, config: PhantomConfig) -> Field:
    """Pull-back displacement of the mass effect in frame millimetres, `[3, …]` on the coarse lattice.

    Each focus pushes outwards, most at its own surface, and squeezes the ventricle beside it; the skull stands
    still and so, nearly, does what is far away.
    """
    points = frame_points()
    at = to_atlas(head, atlas, points)
    depth = sample(atlas.depth, at, outside=-99.0)
    towards_ventricle = gradient(sample(atlas.ventricle, at), COARSE_MM)
    velocity = np.zeros_like(points)
    for focus in plan.foci:
        radius = (focus.volume_ml * 1000.0 * 0.75 / np.pi) ** (1 / 3)
        away = points - np.array(focus.centre, dtype=np.float32).reshape(3, 1, 1, 1)
        distance = np.maximum(np.sqrt((away**2).sum(axis=0)), 1e-3)
        profile = np.where(distance < radius, distance / radius, np.exp(-(distance - radius) / 30.0))
        strength = config.mass_effect * (0.48 if not plan.low_grade else 0.30) * radius
        velocity -= as_field(away / distance * profile * strength)
        velocity -= as_field(
            towards_ventricle * np.exp(-np.maximum(distance - radius, 0.0) / 16.0) * strength * SQUEEZE
        )
    velocity *= np.clip(depth / 18.0, 0.0, 1.0) ** 0.7
    velocity = np.stack([ndimage.gaussian_filter(axis, 1.0) for axis in velocity])
    pitch = np.float32(COARSE_MM)
    return exponentiate(velocity / pitch) * pitch


def grow_lesion(plan: LesionPlan, tissue: Tissue, config: PhantomConfig) -> Lesion:
    """Let the planned glioma grow in the (already pushed) tissue."""
    box = _reach(plan, tissue, config)
    rng = np.random.default_rng(plan.seed)
    white, grey, fluid = tissue.white[box], tissue.grey[box], tissue.fluid[box]
    shape = white.shape
    tumour_time = _core_time(plan, rng, white, grey, fluid, box, config)
    edge = _threshold(tumour_time, sum(focus.volume_ml for focus in plan.foci), config)
    solid = sigmoid((edge - tumour_time) / _steepness(tumour_time, config), 0.45 * config.voxel_mm)
    solid *= np.clip(tissue.brain[box] * 1.5, 0.0, 1.0) * np.clip(1.25 - fluid, 0.0, 1.0)
    rim = _rim(plan, rng, edge - tumour_time, solid, config)
    oedema = _oedema(plan, rng, white, grey, fluid, solid, config)
    coarse, fine = (smooth_noise(rng, shape, mm / config.voxel_mm) for mm in (9.0, 4.5))
    mottle = as_field(0.7 * coarse + 0.7 * fine)
    parts = {"core": solid - rim, "rim": rim, "oedema": oedema * (1.0 - solid), "mottle": mottle}
    labels = _labels(parts, tissue, box)
    whole = {name: _into(values, box, config.shape) for name, values in parts.items()}
    return Lesion(
        core=whole["core"],
        rim=whole["rim"],
        oedema=whole["oedema"],
        mottle=whole["mottle"],
        necrosis=plan.necrosis,
        low_grade=plan.low_grade,
        labels=_into(labels, box, config.shape).astype(np.uint8),
    )


def _reach(plan: LesionPlan, tissue: Tissue, config: PhantomConfig) -> tuple[slice, ...]:
    """The part of the brain that growth can reach."""
    centres = np.array([focus.centre for focus in plan.foci]) / config.voxel_mm
    margin = REACH_MM / config.voxel_mm
    low, high = centres.min(axis=0) - margin, centres.max(axis=0) + margin
    return tuple(
        slice(max(int(a), part.start), min(int(b) + 1, part.stop))
        for a, b, part in zip(low, high, tissue.box, strict=True)
    )


def _into(values: Field, box: tuple[slice, ...], shape: tuple[int, ...]) -> Field:
    whole = np.zeros(shape, dtype=values.dtype)
    whole[box] = values
    return whole


def _core_time(
    plan: LesionPlan,
    rng: np.random.Generator,
    white: Field,
    grey: Field,
    fluid: Field,
    box: tuple[slice, ...],
    config: PhantomConfig,
) -> Field:
    """Millimetres of growth until the tumour's own front arrives, roughened into lobes."""
    speed = 1.0 * white + 0.5 * grey + 0.10 * fluid + 0.02
    axes = [np.arange(part.start, part.stop, dtype=np.float32) + 0.5 for part in box]
    start = np.full(white.shape, np.inf, dtype=np.float32)
    largest = max(focus.volume_ml for focus in plan.foci)
    for focus in plan.foci:
        x, y, z = (axis * config.voxel_mm - at for axis, at in zip(axes, focus.centre, strict=True))
        distance = np.sqrt(x[:, None, None] ** 2 + y[None, :, None] ** 2 + z[None, None, :] ** 2)
        # a smaller focus starts later, so that one threshold on time gives every focus its own size
        late = (largest ** (1 / 3) - focus.volume_ml ** (1 / 3)) * 6.2
        start = np.where(distance < 1.5 * config.voxel_mm, np.minimum(start, distance + late), start)
    radius = 6.2 * largest ** (1 / 3)
    time = travel_time(speed, start, config.voxel_mm, limit=2.6 * radius + 12.0)
    lobes = smooth_noise(rng, white.shape, max(0.8 * radius, 5.0) / config.voxel_mm)
    bumps = smooth_noise(rng, white.shape, max(0.35 * radius, 4.0) / config.voxel_mm)
    rough = plan.irregularity * radius * (0.26 * lobes + 0.12 * bumps)
    return as_field(time + rough)


def _threshold(time: Field, volume_ml: float, config: PhantomConfig) -> float:
    """The time at which the front has covered a volume."""
    count = min(round(volume_ml * 1000.0 / config.voxel_mm**3), time.size - 1)
    reached = np.partition(time.ravel(), count)[count]
    return float(min(reached, time[np.isfinite(time)].max()))


def _steepness(time: Field, config: PhantomConfig) -> Field:
    """Slope of the front, so that distances to it are in millimetres whatever the speed was."""
    finite = np.where(np.isfinite(time), time, time[np.isfinite(time)].max())
    slope = np.sqrt((gradient(finite, config.voxel_mm) ** 2).sum(axis=0))
    return as_field(np.clip(ndimage.gaussian_filter(slope, 1.0), 0.4, 4.0))


def _rim(plan: LesionPlan, rng: np.random.Generator, inside: Field, solid: Field, config: PhantomConfig) -> Field:
    """The enhancing part of the core: a rim of uneven thickness, with gaps, nodes and sometimes strands."""
    thick, fine, bumps = (smooth_noise(rng, solid.shape, mm / config.voxel_mm) for mm in (12.0, 6.0, 4.0))
    if plan.low_grade:
        return np.zeros_like(solid)
    thickness = as_field(plan.rim_mm * (1.0 + 0.5 * thick + 0.25 * fine))
    depth = as_field(np.where(np.isfinite(inside), inside, -99.0) / 1.1)
    rim = sigmoid(thickness - depth, 0.5 * config.voxel_mm)
    strands = plan.strands * np.exp(-((fine / 0.45) ** 2)) * sigmoid(as_field(thick + 0.6), 0.3)
    return as_field(solid * np.maximum(rim, strands) * np.clip(1.05 - 0.25 * np.abs(bumps), 0.0, 1.0))


def _oedema(
    plan: LesionPlan,
    rng: np.random.Generator,
    white: Field,
    grey: Field,
    fluid: Field,
    solid: Field,
    config: PhantomConfig,
) -> Field:
    """Water that runs along white matter from the tumour's edge."""
    speed = 0.02 + 1.0 * white**1.5 + 0.10 * grey + 0.02 * fluid
    fingers = smooth_noise(rng, white.shape, 9.0 / config.voxel_mm)
    speed = speed * np.exp(0.45 * fingers)
    start = np.where(solid > 0.5, 0.0, np.inf).astype(np.float32)
    if not np.isfinite(start).any():
        return np.zeros_like(white)
    time = travel_time(speed, start, config.voxel_mm, limit=70.0)
    tumour_ml = float((solid > 0.5).sum()) * config.voxel_mm**3 / 1000.0
    front = _threshold(time, tumour_ml + plan.oedema_ml, config)
    time = as_field(np.where(np.isfinite(time), time, 999.0))
    spared = np.clip(1.0 - fluid * 1.3, 0.0, 1.0) * np.clip(0.3 + 1.2 * white, 0.0, 1.0)
    return as_field(sigmoid(front - time, 1.6) * spared)


def _labels(parts: dict[str, Field], tissue: Tissue, box: tuple[slice, ...]) -> Field:
    """Labels as annotators set them: a rim counts once it is seen, faint oedema stays background."""
    solid = parts["core"] + parts["rim"]
    inner = np.where(parts["rim"] > 0.4 * solid, ET, NET)
    labels = np.where(solid > 0.5, inner, np.where(parts["oedema"] > 0.45, ED, 0))
    return as_field(np.where(tissue.brain[box] > 0.3, labels, 0))
