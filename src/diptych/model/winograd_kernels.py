"""The inner loops of Winograd's convolution: tiles of images and filters, transformed eight channels at a time.

A transform is a sandwich, M·X·Mᵀ, of a small square X whose entries are rows of channels. `sandwich` writes it out as
vector instructions for one matrix M, because compilers do not find them by themselves. Arrays are channels-last
(`[B, H, W, C]`), passed flat where a transform reads or writes them. Knows nothing about torch; the algorithm from
the top, and what the matrices do, is in `winograd.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.extending import intrinsic

from diptych.compiling import compiled

__all__ = [
    "LANES",
    "SIDE",
    "filter_gradients",
    "spread_filters",
    "spread_gradients",
    "spread_images",
    "unite_tiles",
]

LANES = 8
"""Channels that a transform works on at a time."""
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

Matrix = Sequence[Sequence[float]]


def sandwich(matrix: Matrix) -> Callable[..., None]:
    """`f(source, start, row_step, column_step, target, start, row_step, column_step)` for compiled loops: M·X·Mᵀ.

    X is read from a flat array, `LANES` channels for each entry, and the result is written in the same way.
    """
    vector = ir.VectorType(ir.FloatType(), LANES)

    def combine(builder: Any, weights: Sequence[float], parts: list[Any]) -> Any:
        total = None
        for weight, part in sorted(zip(weights, parts, strict=True), key=lambda pair: abs(pair[0]) != 1):
            if weight == 0:
                continue
            factor = ir.Constant(vector, [float(weight)] * LANES)
            term = part if weight in (1, -1) else builder.fmul(part, factor, flags=("contract",))
            if total is None:
                total = builder.fneg(term) if weight == -1 else term
            else:
                total = (builder.fsub if weight == -1 else builder.fadd)(total, term, flags=("contract",))
        return total

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def place(first: int, row: int, column: int) -> Any:
            """Pointer to an entry of the square that the four arguments from `first` on describe."""
            _, start, row_step, column_step = arguments[first : first + 4]
            data = context.make_array(signature.args[first])(context, builder, arguments[first]).data
            steps = (builder.mul(row_step, row_step.type(row)), builder.mul(column_step, column_step.type(column)))
            offset = builder.add(start, builder.add(*steps))
            return builder.bitcast(builder.gep(data, [offset]), vector.as_pointer())

        size = range(len(matrix[0]))
        columns = [[builder.load(place(0, row, column), align=4) for row in size] for column in size]
        halfway = [[combine(builder, weights, column) for weights in matrix] for column in columns]
        for row in range(len(matrix)):
            for column, weights in enumerate(matrix):
                entry = combine(builder, weights, [parts[row] for parts in halfway])
                builder.store(entry, place(4, row, column), align=4)
        return context.get_dummy_value()

    def declare(_: Any, source: Any, s0: Any, s1: Any, s2: Any, target: Any, t0: Any, t1: Any, t2: Any) -> Any:
        step = numba.int64
        return numba.void(source, step, step, step, target, step, step, step), generate

    made: Callable[..., None] = intrinsic(declare)
    return made


def _transposed(matrix: Matrix) -> Matrix:
    return tuple(zip(*matrix, strict=True))


_input_tile = sandwich(INPUT)
_output_tile = sandwich(OUTPUT)
_gradient_tile = sandwich(_transposed(OUTPUT))
_filter = sandwich(FILTER)
_filter_gradient = sandwich(_transposed(FILTER))


@compiled
def spread_images(images: np.ndarray, spread: np.ndarray, step: int, first: int, rows: int) -> None:
    """Transform the input tiles of some rows of tiles, with zeros around each image.

    Args:
        images: `[B, H, W, C]`.
        spread: flat room for `[36, rows · W / 4, C]`, `step` apart in the first axis.
        step: distance between two of the 36 planes of `spread`.
        first: first row of tiles, counted through the batch.
        rows: how many.
    """
    _, H, W, C = images.shape
    tiles = W // SIDE
    strip = np.zeros((SIDE + 2, W + 2, C), np.float32)
    flat = strip.reshape(-1)
    for row in range(rows):
        image, top = divmod(SIDE * (first + row), H)
        for line in range(SIDE + 2):
            if 0 <= top + line - 1 < H:
                strip[line, 1 : W + 1] = images[image, top + line - 1]
            else:
                strip[line, 1 : W + 1] = 0
        for tile in range(tiles):
            for c in range(0, C, LANES):
                place = (row * tiles + tile) * C + c
                _input_tile(flat, SIDE * tile * C + c, (W + 2) * C, C, spread, place, 6 * step, step)


@compiled
def unite_tiles(
    spread: np.ndarray, step: int, bias: np.ndarray, images: np.ndarray, width: int, first: int, rows: int
) -> None:
    """Transform products `[36, rows · W / 4, K]` back into rows of tiles of flat images `[B, H, W, K]`."""
    K = len(bias)
    tiles = width // SIDE
    for row in range(rows):
        top = SIDE * (first + row) * width * K
        for tile in range(tiles):
            for k in range(0, K, LANES):
                place = (row * tiles + tile) * K + k
                start = top + SIDE * tile * K + k
                _output_tile(spread, place, 6 * step, step, images, start, width * K, K)
        for pixel in range(top, top + SIDE * width * K, K):
            for k in range(K):
                images[pixel + k] += bias[k]


@compiled
def spread_gradients(
    gradients: np.ndarray, width: int, channels: int, spread: np.ndarray, step: int, first: int, rows: int
) -> None:
    """The adjoint of `unite_tiles`: flat gradients `[B, H, W, K]` to `[36, rows · W / 4, K]`."""
    K, tiles = channels, width // SIDE
    for row in range(rows):
        top = SIDE * (first + row) * width * K
        for tile in range(tiles):
            for k in range(0, K, LANES):
                place = (row * tiles + tile) * K + k
                start = top + SIDE * tile * K + k
                _gradient_tile(gradients, start, width * K, K, spread, place, 6 * step, step)


@compiled
def spread_filters(filters: np.ndarray, channels: int, turned: bool, spread: np.ndarray) -> None:
    """Flat filters `[K, 3, 3, C]` to `[36, K, C]`, both contiguous; `turned` by half a turn for gradients of images."""
    C = channels
    plane = len(spread) // 36
    for k in range(plane // C):
        for c in range(0, C, LANES):
            start = 9 * k * C + c
            if turned:
                _filter(filters, start + 8 * C, -3 * C, -C, spread, k * C + c, 6 * plane, plane)
            else:
                _filter(filters, start, 3 * C, C, spread, k * C + c, 6 * plane, plane)


@compiled
def filter_gradients(spread: np.ndarray, channels: int, filters: np.ndarray) -> None:
    """The adjoint of `spread_filters`, not turned: `[36, K, C]` to flat `[K, 3, 3, C]`."""
    C = channels
    plane = len(spread) // 36
    for k in range(plane // C):
        for c in range(0, C, LANES):
            _filter_gradient(spread, k * C + c, 6 * plane, plane, filters, 9 * k * C + c, 3 * C, C)
