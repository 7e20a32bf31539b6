"""The inner loops of Winograd's convolution.

Work goes through the batch in rows of tiles, few enough at a time to stay in the cache. Knows nothing about torch;
the algorithm from the top is in `winograd.py`, the instructions are in `vectors.py`.
"""

from __future__ import annotations

import numpy as np

from diptych.compiling import compiled
from diptych.model.vectors import LANES, PANEL, Matrix, product, sandwich

__all__ = [
    "PAD",
    "SIDE",
    "chunk",
    "convolve_rows",
    "filter_gradients",
    "gradient_rows",
    "spread_filters",
]

CACHED = 2**13
"""Numbers in one of the 36 planes of a chunk: all of them and the products then fit the cache of one core."""
PAD = 16
"""Numbers between two planes: at a power of two they would compete for the same lines of the cache."""
SIDE = 4
"""Rows and columns of an output tile; an input tile has two more, which its neighbours see too."""

# F(4x4, 3x3) with the points 0, ±1, ±2 and ∞ (Lavin & Gray, 2016)
INPUT = (
    (4, 0, -5, 0, 1, 0),
    (0, -4, -4, 1, 1, 0),
    (0, 4, -4, -1, 1, 0),
    (0, -2, -1, 2, 1, 0),
    (0, 2, -1, -2, 1, 0),
    (0, 4, 0, -5, 0, 1),
)
OUTPUT = ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1))
FILTER = (
    (1 / 4, 0, 0),
    (-1 / 6, -1 / 6, -1 / 6),
    (-1 / 6, 1 / 6, -1 / 6),
    (1 / 24, 1 / 12, 1 / 6),
    (1 / 24, -1 / 12, 1 / 6),
    (0, 0, 1),
)


def _transposed(matrix: Matrix) -> Matrix:
    return tuple(zip(*matrix, strict=True))


_input_tile = sandwich(INPUT)
_output_tile = sandwich(OUTPUT)
_gradient_tile = sandwich(_transposed(OUTPUT))
_filter = sandwich(FILTER)
_filter_gradient = sandwich(_transposed(FILTER))

TILES, FILTERS = 6, 4
"""Rows of the small matrix products: of tiles in a convolution, of filters in a gradient."""
_tiles_by_filters = product(TILES, onto=False)
_filters_by_tiles = product(FILTERS, onto=True)


@compiled
def chunk(tiles: int, channels: int) -> tuple[int, int]:
    """Rows of so many tiles to work on at a time, and the tiles to have room for: in the cache of one core.

    A room has 36 · (tiles · channels in whole panels + `PAD`) numbers.
    """
    rows = max(1, CACHED // (tiles * channels))
    return rows, -(-rows * tiles // TILES) * TILES


@compiled
def convolve_rows(
    images: np.ndarray,
    filters: np.ndarray,
    bias: np.ndarray,
    out: np.ndarray,
    spread: np.ndarray,
    products: np.ndarray,
    first: int,
    last: int,
) -> None:
    """Convolve some rows of tiles, with zeros around each image.

    Args:
        images: `[B, H, W, C]`.
        filters: what `spread_filters` made, flat.
        bias: `[K]`.
        out: flat `[B, H, W, K]`.
        spread: scratch room for input tiles, as large as `chunk` says.
        products: the same for output tiles.
        first: first row of tiles, counted through the batch.
        last: the row after the last.
    """
    W, C = images.shape[2:]
    K = len(bias)
    panels = -(-K // PANEL)
    wide = panels * PANEL
    tiles = W // SIDE
    part, room = chunk(tiles, max(C, K))
    step, wide_step = room * C + PAD, room * wide + PAD
    for row in range(first, last, part):
        rows = min(part, last - row)
        _spread_images(images, C, spread, step, row, rows)
        for point in range(36):
            for panel in range(panels):
                right = (point * panels + panel) * C * PANEL
                for tile in range(0, rows * tiles, TILES):
                    left, place = point * step + tile * C, point * wide_step + tile * wide + panel * PANEL
                    _tiles_by_filters(spread, left, C, 1, filters, right, PANEL, C, products, place, wide)
        _unite_tiles(products, wide, wide_step, bias, out, W, row, rows)


@compiled
def gradient_rows(
    images: np.ndarray,
    gradients: np.ndarray,
    total: np.ndarray,
    spread: np.ndarray,
    weights: np.ndarray,
    first: int,
    last: int,
) -> None:
    """Add what some rows of tiles give to the gradient of the filters.

    Args:
        images: `[B, H, W, C]`.
        gradients: of the convolution's output, `[B, H, W, K]`.
        total: flat `[36, K, C]`, C rounded up to whole panels.
        spread: scratch room for input tiles, as large as `chunk` says.
        weights: the same for tiles of gradients.
        first: first row of tiles, counted through the batch.
        last: the row after the last.
    """
    W, C = images.shape[2:]
    K = gradients.shape[3]
    wide = -(-C // PANEL) * PANEL
    tiles = W // SIDE
    part, room = chunk(tiles, max(C, K))
    wide_step, step = room * wide + PAD, room * K + PAD
    flat = gradients.reshape(-1)
    for row in range(first, last, part):
        rows = min(part, last - row)
        _spread_images(images, wide, spread, wide_step, row, rows)
        _spread_gradients(flat, W, K, weights, step, row, rows)
        for point in range(36):
            for c in range(0, wide, PANEL):
                for k in range(0, K, FILTERS):
                    left, right, place = point * step + k, point * wide_step + c, (point * K + k) * wide + c
                    _filters_by_tiles(weights, left, 1, K, spread, right, wide, rows * tiles, total, place, wide)


@compiled
def _spread_images(images: np.ndarray, wide: int, spread: np.ndarray, step: int, first: int, rows: int) -> None:
    """Transform the input tiles of some rows of tiles to planes of rows of channels, `wide` apart."""
    _, H, W, C = images.shape
    tiles = W // SIDE
    pixels, strip = images.reshape(-1), np.zeros((SIDE + 2) * (W + 2) * C, np.float32)
    for row in range(rows):
        image, top = divmod(SIDE * (first + row), H)
        for line in range(SIDE + 2):
            start, source = (line * (W + 2) + 1) * C, (image * H + top + line - 1) * W * C
            if 0 <= top + line - 1 < H:
                strip[start : start + W * C] = pixels[source : source + W * C]
            else:
                strip[start : start + W * C] = 0
        for tile in range(tiles):
            place, start = (row * tiles + tile) * wide, SIDE * tile * C
            for c in range(0, C, LANES):
                _input_tile(strip, start + c, (W + 2) * C, C, spread, place + c, 6 * step, step)


@compiled
def _unite_tiles(
    products: np.ndarray,
    wide: int,
    step: int,
    bias: np.ndarray,
    out: np.ndarray,
    width: int,
    first: int,
    rows: int,
) -> None:
    """Transform planes of products into rows of tiles of flat images, and add the bias."""
    K, tiles = len(bias), width // SIDE
    for row in range(rows):
        top = SIDE * (first + row) * width * K
        for tile in range(tiles):
            place, start = (row * tiles + tile) * wide, top + SIDE * tile * K
            for k in range(0, K, LANES):
                _output_tile(products, place + k, 6 * step, step, out, start + k, width * K, K)
        for pixel in range(top, top + SIDE * width * K, K):
            for k in range(K):
                out[pixel + k] += bias[k]


@compiled
def _spread_gradients(
    gradients: np.ndarray, width: int, channels: int, spread: np.ndarray, step: int, first: int, rows: int
) -> None:
    """The adjoint of `_unite_tiles`."""
    K, tiles = channels, width // SIDE
    for row in range(rows):
        top = SIDE * (first + row) * width * K
        for tile in range(tiles):
            place, start = (row * tiles + tile) * K, top + SIDE * tile * K
            for k in range(0, K, LANES):
                _gradient_tile(gradients, start + k, width * K, K, spread, place + k, 6 * step, step)


@compiled
def spread_filters(filters: np.ndarray, turned: bool, spread: np.ndarray) -> None:
    """Filters `[C, 3, 3, K]`, K in whole panels, to flat `[36, K / PANEL, C, PANEL]`; `turned` by half a turn."""
    C, K = filters.shape[0], filters.shape[3]
    flat = filters.reshape(-1)
    plane = C * K
    for c in range(C):
        for k in range(0, K, LANES):
            start = 9 * c * K + k
            place = (k // PANEL * C + c) * PANEL + k % PANEL
            if turned:
                _filter(flat, start + 8 * K, -3 * K, -K, spread, place, 6 * plane, plane)
            else:
                _filter(flat, start, 3 * K, K, spread, place, 6 * plane, plane)


@compiled
def filter_gradients(total: np.ndarray, filters: np.ndarray) -> None:
    """Gradients of spread filters, flat `[36, K, C]` with C in whole panels, to those of filters `[K, 3, 3, C]`."""
    K, C = filters.shape[0], filters.shape[3]
    flat = filters.reshape(-1)
    plane = len(total) // 36
    wide = plane // K
    for k in range(K):
        for c in range(0, C, LANES):
            _filter_gradient(total, k * wide + c, 6 * plane, plane, flat, 9 * k * C + c, 3 * C, C)
