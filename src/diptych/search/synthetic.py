"""Made-up archives of id grids that behave like real ones, for benchmarks and tests of search alone.

Knows no image and no network. Settings were fitted to ids of 80 real brains (patches quantised by k-means); in
brackets what these archives show, every second slice taken for 2 mm, with 165 and with 512 codes:

    cells that keep their code in the next slice, 1 mm    .85 (.85) and .79 (.80);  2 mm .75 (.74) and .69 (.67)
    covered by a position's 1, 7, 32 commonest codes      .47 .70 .92 (.44 .72 .93) and .45 .63 .84 (.44 .67 .89)
    nearest other patient, in median distances            .30 (.22) and .31 (.19)
    runs of 4, 8, 16 slices that pruning must look into   .05 .12 .25 (.10 .16 .27) and .07 .14 .27 (.10 .15 .26)

so pruning has it a little harder here than on real brains.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diptych.compiling import compiled

SLICES_PER_VOLUME = 155
LEVELS = 31

AXIS_FALL = 1.5
"""How quickly code vectors' variance falls from one axis to the next."""


@dataclass(frozen=True, eq=False)
class SyntheticArchive:
    """Ids of both panels with the codebooks they index; one volume per patient."""

    grid: tuple[int, int]
    normal_codebook: NDArray[np.float32]
    abnormal_codebook: NDArray[np.float32]
    normal: NDArray[np.uint16]
    """`[N, h*w]`."""
    abnormal: NDArray[np.uint16]
    """`[N, h*w]`; code 0 stands for "nothing abnormal here"."""
    volume_of_slice: NDArray[np.int64]
    lesion_free: NDArray[np.bool_]


def synthetic_archive(
    slices: int, *, codes: int = 512, abnormal_codes: int = 165, grid: tuple[int, int] = (8, 8), seed: int = 0
) -> SyntheticArchive:
    """Make `slices` slices, 155 per volume (the last volume may be shorter)."""
    rng = np.random.default_rng(seed)
    volumes = -(-slices // SLICES_PER_VOLUME)
    normal_codebook = make_codebook(rng, codes)
    abnormal_codebook = make_codebook(rng, abnormal_codes)
    stay = 0.69 if codes <= 256 else 0.58
    normal = draw_anatomy(volumes, grid, ranked_codes(rng, normal_codebook, grid), stay, rng)
    abnormal = draw_lesions(volumes, grid, abnormal_codes, rng)[:slices]
    return SyntheticArchive(
        grid,
        normal_codebook,
        abnormal_codebook,
        normal[:slices],
        abnormal,
        np.arange(slices, dtype=np.int64) // SLICES_PER_VOLUME,
        ~np.any(abnormal > 5, axis=1),
    )


def make_codebook(rng: np.random.Generator, codes: int, *, width: int = 64) -> NDArray[np.float32]:
    """Vectors whose variance falls quickly from one axis to the next, as a learned codebook has it.

    Code 0 lies apart: in one panel it stands for air, in the other for "nothing abnormal here".
    """
    vectors = rng.standard_normal((codes, width)) * axis_spread(width)
    vectors[0] = 0.0
    vectors[0, 0] = -3.0
    return np.asarray(vectors, dtype=np.float32)


def axis_spread(width: int) -> NDArray[np.float64]:
    """Standard deviation along each axis of code space."""
    return np.asarray((1.0 + np.arange(width)) ** -AXIS_FALL, dtype=np.float64)


def ranked_codes(rng: np.random.Generator, codebook: NDArray[np.float32], grid: tuple[int, int]) -> NDArray[np.uint16]:
    """For each level of the head and grid position, all codes from the likeliest down, `[level, P, K]`.

    Likely codes are alike, and neighbouring levels and positions like much the same codes.
    """
    h, w = grid
    axes = np.linspace(0, 1, LEVELS), np.linspace(-1, 1, h), np.linspace(-1, 1, w)
    place = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(LEVELS, h * w, 3)
    width = codebook.shape[1]
    waves = np.sin(place @ rng.normal(0, 3.5, (3, width)) + rng.uniform(0, 6.28, width))
    anchors = 1.5 * waves * axis_spread(width)
    affinity = 2 * anchors @ codebook.T - np.square(codebook).sum(axis=1)
    affinity[:, :, 0] = -np.inf
    return np.argsort(-affinity, axis=-1).astype(np.uint16)


@compiled
def draw_anatomy(
    volumes: int, grid: tuple[int, int], ranked: NDArray[np.uint16], stay: float, rng: np.random.Generator
) -> NDArray[np.uint16]:
    """Ids of heads of varying size and place; outside the head there is one code."""
    levels, cells, codes = ranked.shape
    h, w = grid
    weights = 1.0 / np.arange(1, codes + 1) ** 1.6
    cumulative = np.cumsum(weights) / weights.sum()
    ids = np.empty((volumes * SLICES_PER_VOLUME, cells), dtype=np.uint16)
    outside = 0
    for volume in range(volumes):
        size, shift = rng.normal(1.0, 0.05), rng.normal(0.0, 0.03)
        first = volume * SLICES_PER_VOLUME
        for z in range(SLICES_PER_VOLUME):
            height = min(max(z / (SLICES_PER_VOLUME - 1.0) + shift, 0.0), 1.0)
            for cell in range(cells):
                y, x = (cell // w + 0.5) / h * 2 - 1, (cell % w + 0.5) / w * 2 - 1
                if (x / 0.95) ** 2 + (y / 1.05) ** 2 + ((height - 0.45) / 0.6) ** 2 > size:
                    ids[first + z, cell] = outside
                elif z > 0 and ids[first + z - 1, cell] != outside and rng.random() < stay:
                    ids[first + z, cell] = ids[first + z - 1, cell]
                else:
                    rank = np.searchsorted(cumulative, rng.random())
                    level = int(height * (levels - 1) + 0.5)
                    ids[first + z, cell] = ranked[level, cell, min(rank, codes - 1)]
    return ids


@compiled
def draw_lesions(volumes: int, grid: tuple[int, int], codes: int, rng: np.random.Generator) -> NDArray[np.uint16]:
    """Sparse ids: one blob per volume over a third of its slices, a few stray codes, and nothing else."""
    h, w = grid
    ids = np.zeros((volumes * SLICES_PER_VOLUME, h * w), dtype=np.uint16)
    for volume in range(volumes):
        z0, y0, x0 = rng.uniform(30, 120), rng.uniform(0.2, 0.8) * h, rng.uniform(0.2, 0.8) * w
        depth, radius = rng.uniform(12, 35), rng.uniform(0.12, 0.3) * min(h, w)
        first = volume * SLICES_PER_VOLUME
        for z in range(SLICES_PER_VOLUME):
            for cell in range(h * w):
                y, x = cell // w + 0.5, cell % w + 0.5
                distance = ((y - y0) / radius) ** 2 + ((x - x0) / radius) ** 2 + ((z - z0) / depth) ** 2
                if distance < 1.0:
                    if z > 0 and ids[first + z - 1, cell] > 5 and rng.random() < 0.7:
                        ids[first + z, cell] = ids[first + z - 1, cell]
                    else:
                        ids[first + z, cell] = 6 + int((codes - 6) * rng.random() ** 2.5)
                elif rng.random() < 0.02:
                    ids[first + z, cell] = 1 + int(5 * rng.random())
    return ids
