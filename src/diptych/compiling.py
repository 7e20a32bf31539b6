"""One way to compile a numerical loop: on first use, kept on disk, without Python's lock.

Knows nothing about what the loops do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from llvmlite import ir  # type: ignore[import-untyped]
from numba.extending import intrinsic

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """Compile `function` with numba on its first call; the machine code is kept beside the source."""
    return cast(Function, numba.njit(cache=True, nogil=True)(function))


def compiled_inline(function: Function) -> Function:
    """Paste `function` into the compiled loops that call it, so that its constants are theirs."""
    return cast(Function, numba.njit(inline="always")(function))


def _prefetch(_: Any, array: Any, index: Any) -> Any:
    """Ask for the cache line of `array[index]` and go on without waiting for it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        pointer = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", [pointer.type], kind)
        builder.call(function, [pointer, number(0), number(3), number(1)])  # to read, keep near, data
        return context.get_dummy_value()

    return numba.void(array, index), generate


prefetch: Callable[[Any, Any], None] = intrinsic(_prefetch)
"""`prefetch(array, index)` inside a compiled loop: have the cache line of a flat array on its way."""
