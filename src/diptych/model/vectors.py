"""Vector instructions that compilers do not find by themselves, for compiled loops over channels-last images.

`sandwich` is a transform M·X·Mᵀ of a small square X whose entries are rows of channels; `product` is a small matrix
product in registers. Both work on flat float32 arrays, `LANES` channels at a time. Machine code of the loops that use
them is kept by the age of *their* file: touch it after a change here. Knows nothing about convolutions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numba
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["LANES", "PANEL", "Matrix", "product", "sandwich"]

LANES = 8
"""Channels that a transform works on at a time."""
PANEL = 2 * LANES
"""Columns of a small matrix product."""
Matrix = Sequence[Sequence[float]]
VECTOR = ir.VectorType(ir.FloatType(), LANES)
FUSED = ("contract",)
"""Lets a product and a sum become one instruction."""


def sandwich(matrix: Matrix) -> Callable[..., None]:
    """`f(source, start, row_step, column_step, target, start, row_step, column_step)` for compiled loops: M·X·Mᵀ.

    X is read from a flat array, `LANES` channels for each entry, and the result is written in the same way.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        arrays = {at: context.make_array(signature.args[at])(context, builder, arguments[at]).data for at in (0, 4)}

        def place(first: int, row: int, column: int) -> Any:
            """Pointer to an entry of the square that the four arguments from `first` on describe."""
            start, row_step, column_step = arguments[first + 1 : first + 4]
            steps = (builder.mul(row_step, row_step.type(row)), builder.mul(column_step, column_step.type(column)))
            address = builder.gep(arrays[first], [builder.add(start, builder.add(*steps))])
            return builder.bitcast(address, VECTOR.as_pointer())

        size = range(len(matrix[0]))
        columns = [[builder.load(place(0, row, column), align=4) for row in size] for column in size]
        halfway = [[_weighted_sum(builder, weights, column) for weights in matrix] for column in columns]
        for row in range(len(matrix)):
            for column, weights in enumerate(matrix):
                entry = _weighted_sum(builder, weights, [parts[row] for parts in halfway])
                builder.store(entry, place(4, row, column), align=4)
        return context.get_dummy_value()

    def declare(_: Any, source: Any, s0: Any, s1: Any, s2: Any, target: Any, t0: Any, t1: Any, t2: Any) -> Any:
        step = numba.int64
        return numba.void(source, step, step, step, target, step, step, step), generate

    made: Callable[..., None] = intrinsic(declare)
    return made


def _weighted_sum(builder: Any, weights: Sequence[float], vectors: list[Any]) -> Any:
    """Instructions for Σ weight · vector: none for a weight of 0, no product for ±1."""
    total = None
    for weight, part in sorted(zip(weights, vectors, strict=True), key=lambda pair: abs(pair[0]) != 1):
        if weight == 0:
            continue
        factor = ir.Constant(VECTOR, [float(weight)] * LANES)
        term = part if weight in (1, -1) else builder.fmul(part, factor, flags=FUSED)
        if total is None:
            total = builder.fneg(term) if weight == -1 else term
        else:
            total = (builder.fsub if weight == -1 else builder.fadd)(total, term, flags=FUSED)
    return total


def product(rows: int, *, onto: bool) -> Callable[..., None]:
    """`f(left, start, row_step, depth_step, right, start, depth_step, depth, out, start, row_step)`: `rows` x `PANEL`.

    The product of `rows` x depth by depth x `PANEL`, held in registers; added `onto` what `out` holds, or in its place.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        left_start, left_row, left_depth = arguments[1:4]
        right_start, right_depth, depth = arguments[5:8]
        out_start, out_row = arguments[9:]

        arrays = {at: context.make_array(signature.args[at])(context, builder, arguments[at]).data for at in (0, 4, 8)}

        def pointer(array: int, *offsets: Any) -> Any:
            address = arrays[array]
            for offset in offsets:
                address = builder.gep(address, [offset])
            return address

        index = depth.type
        halves = [(row, half) for row in range(rows) for half in range(PANEL // LANES)]
        places = {
            (row, half): _lanes(builder, pointer(8, out_start, builder.mul(out_row, index(row)), index(half * LANES)))
            for row, half in halves
        }
        sums = {key: cgutils.alloca_once(builder, VECTOR) for key in halves}
        for key in halves:
            start = builder.load(places[key], align=4) if onto else ir.Constant(VECTOR, [0.0] * LANES)
            builder.store(start, sums[key])
        with cgutils.for_range(builder, depth) as loop:
            panel = pointer(4, right_start, builder.mul(loop.index, right_depth))
            columns = [
                builder.load(_lanes(builder, builder.gep(panel, [index(half * LANES)])), align=4) for half in range(2)
            ]
            for row in range(rows):
                step = builder.add(builder.mul(loop.index, left_depth), builder.mul(left_row, index(row)))
                factor = builder.load(pointer(0, left_start, step))
                spread = _everywhere(builder, factor)
                for half in range(2):
                    term = builder.fmul(spread, columns[half], flags=FUSED)
                    total = builder.fadd(builder.load(sums[row, half]), term, flags=FUSED)
                    builder.store(total, sums[row, half])
        for key in halves:
            builder.store(builder.load(sums[key]), places[key], align=4)
        return context.get_dummy_value()

    def declare(
        _: Any,
        left: Any,
        l0: Any,
        l1: Any,
        l2: Any,
        right: Any,
        r0: Any,
        r1: Any,
        depth: Any,
        out: Any,
        o0: Any,
        o1: Any,
    ) -> Any:
        step = numba.int64
        return numba.void(left, step, step, step, right, step, step, step, out, step, step), generate

    made: Callable[..., None] = intrinsic(declare)
    return made


def _lanes(builder: Any, address: Any) -> Any:
    return builder.bitcast(address, VECTOR.as_pointer())


def _everywhere(builder: Any, number: Any) -> Any:
    """A vector of one number."""
    first = builder.insert_element(ir.Constant(VECTOR, ir.Undefined), number, ir.IntType(32)(0))
    return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES))
