"""Made-up archives of id grids that behave like real ones, for benchmarks and tests of search alone.

Knows no image and no network. Settings were fitted to ids of real brains at 1 mm (patches quantised by k-means): a
code stays the same from one slice to the next in 85 % of cells with 165 codes and in 79 % with 512; the commonest
code of a position covers 46 % of it, the first 32 cover 92 % and 84 %; corners see five codes, the centre hundreds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diptych.compiling import compiled

__all__ = ["SyntheticArchive", "synthetic_archive"]

SLICES_PER_VOLUME = 155
LEVELS = 31


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
    stay = 0.71 if codes <= 256 else 0.60
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
    """Vectors in loose families, as a learned codebook has them; variance falls from one axis to the next."""
    spread = 1.0 / np.sqrt(1.0 + np.arange(width))
    families = rng.standard_normal((24, width)) * spread
    members = families[rng.integers(24, size=codes)] + 0.6 * rng.standard_normal((codes, width)) * spread
    return np.asarray(members, dtype=np.float32)


def ranked_codes(rng: np.random.Generator, codebook: NDArray[np.float32], grid: tuple[int, int]) -> NDArray[np.uint16]:
    """For each level of the head and grid position, all codes from the likeliest down, `[level, P, K]`.

    Likely codes are alike, and neighbouring levels and positions like much the same codes.
    """
    h, w = grid
    level, row, column = np.meshgrid(
        np.linspace(0, 1, LEVELS), np.linspace(-1, 1, h), np.linspace(-1, 1, w), indexing="ij"
    )
    place = np.stack([level, row, column], axis=-1).reshape(LEVELS, h * w, 3)
    waves = np.sin(place @ rng.normal(0, 2.5, (3, codebook.shape[1])) + rng.uniform(0, 6.28, codebook.shape[1]))
    anchors = waves * 1.2 / np.sqrt(1.0 + np.arange(codebook.shape[1]))
    affinity = 2 * anchors @ codebook.T - np.square(codebook).sum(axis=1)
    noise = rng.normal(0, 0.8, (h * w, len(codebook)))
    return np.argsort(-(affinity + noise), axis=-1).astype(np.uint16)


@compiled
def draw_anatomy(
    volumes: int, grid: tuple[int, int], ranked: NDArray[np.uint16], stay: float, rng: np.random.Generator
) -> NDArray[np.uint16]:
    """Ids of heads of varying size and place; outside the head there is one code."""
    levels, cells, codes = ranked.shape
    h, w = grid
    weights = 1.0 / np.arange(1, codes + 1) ** 1.3
    cumulative = np.cumsum(weights) / weights.sum()
    ids = np.empty((volumes * SLICES_PER_VOLUME, cells), dtype=np.uint16)
    outside = ranked[0, 0, 0]
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
