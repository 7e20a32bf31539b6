"""One way to compile a numerical loop: on first use, kept on disk, without Python's lock.

Knows nothing about what the loops do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba

__all__ = ["compiled", "compiled_inline"]

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """Compile `function` with numba on its first call; the machine code is kept beside the source."""
    return cast(Function, numba.njit(cache=True, nogil=True)(function))


def compiled_inline(function: Function) -> Function:
    """Paste `function` into the compiled loops that call it, so that its constants are theirs."""
    return cast(Function, numba.njit(inline="always")(function))
