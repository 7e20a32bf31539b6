"""3x3 convolutions with a quarter of the products (Winograd, 1980; Lavin & Gray, 2016), on the CPU.

A tile of 4x4 output pixels comes from 6x6 input pixels. Both, and the filter, are polynomials whose product is taken
at 36 points instead of coefficient by coefficient:

    input tiles ── spread ── [36, tiles, C] ─┐
                                             ├─ 36 matrix products ── [36, tiles, K] ── unite ── output tiles
    filters ────── spread ── [36, C, K] ─────┘

36 products per tile and pair of channels, instead of 144. Exact but for rounding, which is some four times that of
the plain sum. The gradient for the input is the same convolution with filters turned by half a turn; the gradient
for the filters is the adjoint of the picture above. Each of torch's threads takes its share of the batch. What does
not fit (`fits`) goes to torch. Knows nothing about networks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from diptych.model.sharing import in_threads, scratch, shares
from diptych.model.vectors import LANES, PANEL
from diptych.model.winograd_kernels import (
    PAD,
    SIDE,
    chunk,
    convolve_rows,
    filter_gradients,
    gradient_rows,
    spread_filters,
)

__all__ = ["Conv3x3", "fits"]

WORTH = 24
"""Channels, in and out, from which on the transforms cost less than they save."""


class Conv3x3(nn.Conv2d):
    """`nn.Conv2d(width_in, width_out, 3, padding=1)`, by Winograd's algorithm where that is faster.

    Without gradients, spread filters are kept from call to call, for as long as the weights stay as they are.
    """

    bias: Tensor

    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__(width_in, width_out, 3, padding=1)
        self._kept: tuple[tuple[int, int], np.ndarray] | None = None

    def forward(self, x: Tensor) -> Tensor:
        if not fits(x, self.weight):
            return super().forward(x)
        if torch.is_grad_enabled():
            out: Tensor = _Winograd.apply(x, self.weight, self.bias)  # type: ignore[no-untyped-call]
            return out
        return _convolve(x, self._filters(), self.bias)

    def _filters(self) -> np.ndarray:
        state = self.weight.data_ptr(), self.weight._version
        if self._kept is None or self._kept[0] != state:
            filters = _spread_filters(self.weight.permute(1, 2, 3, 0))
            self._kept = state, filters.copy()
        return self._kept[1]


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
    return _convolve(x, _spread_filters(weight.permute(1, 2, 3, 0)), bias)


def convolve_back(gradient: Tensor, weight: Tensor) -> Tensor:
    """The gradient for the input, `[B, C, H, W]`, from that of the output, `[B, K, H, W]`."""
    filters = _spread_filters(weight.permute(0, 2, 3, 1), turned=True)
    return _convolve(gradient, filters, gradient.new_zeros(weight.shape[1]))


def weight_gradient(x: Tensor, gradient: Tensor) -> Tensor:
    """The gradient for the filters, `[K, C, 3, 3]`."""
    images, gradients = _images(x), _images(gradient)  # [B, H, W, C], [B, H, W, K]
    (B, H, W, C), K = images.shape, gradients.shape[-1]
    parts = shares(B * H // SIDE)
    totals = scratch("totals", len(parts) * 36 * K * -(-C // PANEL) * PANEL).reshape(len(parts), -1)
    totals.fill(0)

    def work(share: tuple[int, int], total: np.ndarray) -> None:
        gradient_rows(images, gradients, total, *_rooms(W, C, K), *share)

    in_threads(work, parts, totals)
    out = torch.empty((K, C, 3, 3), memory_format=torch.channels_last)
    filter_gradients(totals.sum(axis=0), _images(out))
    return out


def _convolve(x: Tensor, filters: np.ndarray, bias: Tensor) -> Tensor:
    """Images `[B, C, H, W]` with spread filters."""
    images = _images(x)
    B, H, W, C = images.shape
    out = torch.empty((B, len(bias), H, W), memory_format=torch.channels_last)
    flat, shift = _images(out).reshape(-1), bias.detach().numpy()

    def work(share: tuple[int, int]) -> None:
        convolve_rows(images, filters, shift, flat, *_rooms(W, C, len(bias)), *share)

    in_threads(work, shares(B * H // SIDE))
    return out


def _rooms(width: int, channels_in: int, channels_out: int) -> tuple[np.ndarray, np.ndarray]:
    """Scratch room of the calling thread for tiles on both sides of a convolution."""
    _, tiles = chunk(width // SIDE, max(channels_in, channels_out))
    spread, products = (tiles * -(-channels // PANEL) * PANEL + PAD for channels in (channels_in, channels_out))
    return scratch("spread", 36 * spread), scratch("products", 36 * products)


def _spread_filters(filters: Tensor, *, turned: bool = False) -> np.ndarray:
    """Filters `[C, 3, 3, K]` at 36 points, as the kernels want them, in scratch room."""
    C, _, _, K = filters.shape
    whole = -K % PANEL
    padded = F.pad(filters.detach(), (0, whole)).contiguous().numpy()
    spread = scratch("filters", 36 * C * (K + whole))
    spread_filters(padded, turned, spread)
    return spread


def _images(x: Tensor) -> np.ndarray:
    """`[B, C, H, W]` as a contiguous array `[B, H, W, C]`, copied only if it is none."""
    return x.detach().permute(0, 2, 3, 1).contiguous().numpy()
