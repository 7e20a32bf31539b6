"""3x3 convolutions with a quarter of the products (Winograd, 1980; Lavin & Gray, 2016), on the CPU.

A tile of 4x4 output pixels comes from 6x6 input pixels. Both, and the filter, are polynomials whose product is taken
at 36 points instead of coefficient by coefficient:

    input tiles ── spread ── [36, tiles, C] ─┐
                                             ├─ 36 matrix products ── [36, tiles, K] ── unite ── output tiles
    filters ────── spread ── [36, C, K] ─────┘

36 products per tile and pair of channels, instead of 144. Exact but for rounding, which is some four times that of
the plain sum. The gradient for the input is the same convolution with filters turned by half a turn; the gradient
for the filters is the adjoint of the picture above. Work goes through the batch in rows of tiles, few enough at a time
to stay in the cache. What does not fit (`fits`) goes to torch. Knows nothing about networks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from diptych.model.winograd_kernels import (
    LANES,
    SIDE,
    filter_gradients,
    spread_filters,
    spread_gradients,
    spread_images,
    unite_tiles,
)

__all__ = ["Conv3x3", "fits"]

WORTH = 24
"""Channels, in and out, from which on the transforms cost less than they save."""
CACHED = 2**13
"""Numbers in one of the 36 planes of a chunk: all of them and the products then fit the cache of one core."""
PAD = 16
"""Numbers between two of the 36 planes: at a power of two they would compete for the same lines of the cache."""


class Conv3x3(nn.Conv2d):
    """`nn.Conv2d(width_in, width_out, 3, padding=1)`, by Winograd's algorithm where that is faster."""

    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__(width_in, width_out, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        if self.bias is None or not fits(x, self.weight):
            return super().forward(x)
        out: Tensor = _Winograd.apply(x, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return out


def fits(x: Tensor, weight: Tensor) -> bool:
    """Whether the algorithm is made for this input `[B, C, H, W]` and these filters `[K, C, 3, 3]`."""
    if x.device.type != "cpu" or x.dtype != torch.float32 or torch.compiler.is_compiling():
        return False
    widths = weight.shape[:2]
    return (
        min(widths) >= WORTH
        and not any(width % LANES for width in widths)
        and not any(side % SIDE for side in x.shape[-2:])
        and len(x) > 0
        and not torch.is_autocast_enabled("cpu")
    )


class _Winograd(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return convolve(x, weight, bias)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        for_x, for_weight, for_bias = ctx.needs_input_grad
        return (
            convolve_back(gradient, weight) if for_x else None,
            weight_gradient(x, gradient) if for_weight else None,
            gradient.sum(dim=(0, 2, 3)) if for_bias else None,
        )


def convolve(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """`F.conv2d(x, weight, bias, padding=1)`."""
    return _convolve(x, _spread_filters(weight, turned=False).transpose(1, 2), bias)


def convolve_back(gradient: Tensor, weight: Tensor) -> Tensor:
    """The gradient for the input, `[B, C, H, W]`, from that of the output, `[B, K, H, W]`."""
    return _convolve(gradient, _spread_filters(weight, turned=True), gradient.new_zeros(weight.shape[1]))


def weight_gradient(x: Tensor, gradient: Tensor) -> Tensor:
    """The gradient for the filters, `[K, C, 3, 3]`."""
    images, gradients = _images(x), _images(gradient)  # [B, H, W, C], [B, H, W, K]
    (B, H, W, C), K = images.shape, gradients.shape[-1]
    total = x.new_zeros(36, K, C)
    for source, target, first, rows in _chunks(B * H // SIDE, W // SIDE, C, K):
        spread_images(images, source.array, source.step, first, rows)
        spread_gradients(gradients.reshape(-1), W, K, target.array, target.step, first, rows)
        total.baddbmm_(target.planes.transpose(1, 2), source.planes)
    out = torch.empty((K, C, 3, 3), memory_format=torch.channels_last)
    filter_gradients(total.numpy().reshape(-1), C, _images(out).reshape(-1))
    return out


def _convolve(x: Tensor, filters: Tensor, bias: Tensor) -> Tensor:
    """Images `[B, C, H, W]` with spread filters `[36, C, K]`."""
    images = _images(x)
    (B, H, W, C), K = images.shape, filters.shape[-1]
    out = torch.empty((B, K, H, W), memory_format=torch.channels_last)
    flat, shift = _images(out).reshape(-1), bias.detach().numpy()
    for source, target, first, rows in _chunks(B * H // SIDE, W // SIDE, C, K):
        spread_images(images, source.array, source.step, first, rows)
        torch.bmm(source.planes, filters, out=target.planes)
        unite_tiles(target.array, target.step, shift, flat, W, first, rows)
    return out


class _Room:
    """Room for 36 planes of `tiles` rows of channels."""

    def __init__(self, tiles: int, channels: int) -> None:
        self.step = tiles * channels + PAD
        room = torch.empty(36 * self.step)
        self.array = room.numpy()
        self.planes = room.as_strided((36, tiles, channels), (self.step, channels, 1))


def _chunks(rows: int, tiles: int, width_in: int, width_out: int) -> Iterator[tuple[_Room, _Room, int, int]]:
    """Cut `rows` of so many `tiles` into parts that fit the cache: room for both sides, first row, number of rows."""
    part = max(1, CACHED // (tiles * max(width_in, width_out)))
    count = 0
    for first in range(0, rows, part):
        if count != min(part, rows - first):
            count = min(part, rows - first)
            rooms = _Room(count * tiles, width_in), _Room(count * tiles, width_out)
        yield *rooms, first, count


def _images(x: Tensor) -> np.ndarray:
    """`[B, C, H, W]` as a contiguous array `[B, H, W, C]`, copied only if it is none."""
    return x.detach().permute(0, 2, 3, 1).contiguous().numpy()


def _spread_filters(weight: Tensor, *, turned: bool) -> Tensor:
    """Filters `[K, C, 3, 3]` at 36 points, `[36, K, C]`."""
    K, C = weight.shape[:2]
    spread = weight.new_empty(36, K, C)
    spread_filters(_images(weight).reshape(-1), C, turned, spread.detach().numpy().reshape(-1))
    return spread
