"""GroupNorm and LeakyReLU in one go: y = leaky(γ · (x − μ) / σ + β), with μ and σ of each group of an image.

On the CPU, channels-last, this takes two passes over the image where torch takes many; and the way back needs only x
and the statistics, so that nothing between norm and activation is kept. Elsewhere torch does it. Knows nothing about
networks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from diptych.model.norm_kernels import normalise_images, normalise_images_back
from diptych.model.sharing import in_threads, shares

__all__ = ["normalise"]


def normalise(norm: nn.GroupNorm, x: Tensor, *, slope: float = 1.0) -> Tensor:
    """`norm` of `[B, C, H, W]`, then LeakyReLU with a slope; a slope of 1 is none."""
    plain = x.device.type != "cpu" or x.dtype != torch.float32 or torch.is_autocast_enabled("cpu")
    if plain or torch.compiler.is_compiling():
        return F.leaky_relu(norm(x), slope)
    weight = x.new_ones(norm.num_channels) if norm.weight is None else norm.weight
    bias = x.new_zeros(norm.num_channels) if norm.bias is None else norm.bias
    out: Tensor = _Normalise.apply(x, weight, bias, norm.num_groups, norm.eps, slope)  # type: ignore[no-untyped-call]
    return out


class _Normalise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, groups: int, epsilon: float, slope: float) -> Tensor:
        images, affine = _images(x), torch.stack([weight, bias])
        out = torch.empty_like(x, memory_format=torch.channels_last)
        statistics = torch.empty(len(x), 2, len(weight))
        fixed = images, affine.numpy(), groups, epsilon, np.float32(slope), statistics.numpy(), _images(out)
        in_threads(lambda share: normalise_images(*fixed, *share), shares(len(x)))
        ctx.save_for_backward(x, affine, statistics)
        ctx.groups, ctx.slope = groups, np.float32(slope)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, affine, statistics = ctx.saved_tensors
        out = torch.empty_like(x, memory_format=torch.channels_last)
        by_image = torch.empty_like(statistics)
        fixed = _images(x), affine.numpy(), ctx.groups, ctx.slope, statistics.numpy(), _images(gradient)
        found = by_image.numpy(), _images(out)
        in_threads(lambda share: normalise_images_back(*fixed, *found, *share), shares(len(x)))
        for_weight, for_bias = by_image.sum(dim=0)
        return out, for_weight, for_bias, None, None, None


def _images(x: Tensor) -> np.ndarray:
    """`[B, C, H, W]` as a contiguous array `[B, H · W, C]`, copied only if it is none."""
    return x.detach().permute(0, 2, 3, 1).contiguous().flatten(1, 2).numpy()
