"""GroupNorm and LeakyReLU in one go: y = leaky(γ · (x − μ) / σ + β), with μ and σ of each group of an image.

On the CPU, channels-last, this takes two passes over the image where torch takes many; and the way back needs only x
and the statistics, so that nothing between norm and activation is kept. Without gradients and elsewhere torch does it.
Knows nothing about networks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from diptych.compiling import compiled


def normalise(norm: nn.GroupNorm, x: Tensor, *, slope: float = 1.0) -> Tensor:
    """`norm` of `[B, C, H, W]`, then LeakyReLU with a slope; a slope of 1 is none."""
    # Without gradients torch's own is as quick; in training this saves a tenth to a sixth of the time, and memory.
    plain = not torch.is_grad_enabled() or x.device.type != "cpu" or x.dtype != torch.float32
    if plain or torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling():
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


LINE = 64
"""Pixels summed in single precision before the sum goes on in double precision."""


@compiled
def normalise_images(
    images: np.ndarray,
    affine: np.ndarray,
    groups: int,
    epsilon: float,
    slope: np.float32,
    statistics: np.ndarray,
    out: np.ndarray,
    first: int,
    last: int,
) -> None:
    """Normalise images `first` to `last`.

    Args:
        images: `[B, P, C]`.
        affine: scale and shift of each channel, `[2, C]`.
        groups: channels are normalised in so many groups of neighbours.
        epsilon: added to the variance.
        slope: of what comes out below zero; 1 for no LeakyReLU.
        statistics: mean and 1 / standard deviation of each channel's group, `[B, 2, C]`, filled here.
        out: `[B, P, C]`, filled here.
        first: first image.
        last: the image after the last.
    """
    _, P, C = images.shape
    width = C // groups
    scale, shift = np.empty(C, np.float32), np.empty(C, np.float32)
    for b in range(first, last):
        sums, squares = _sums(images[b])
        for group in range(0, C, width):
            mean = sums[group : group + width].sum() / (P * width)
            variance = max(squares[group : group + width].sum() / (P * width) - mean * mean, 0.0)
            statistics[b, 0, group : group + width] = mean
            statistics[b, 1, group : group + width] = 1 / np.sqrt(variance + epsilon)
        for c in range(C):
            scale[c] = statistics[b, 1, c] * affine[0, c]
            shift[c] = affine[1, c] - statistics[b, 0, c] * scale[c]
        for p in range(P):
            for c in range(C):
                value = images[b, p, c] * scale[c] + shift[c]
                out[b, p, c] = value if value > 0 else slope * value


@compiled
def _sums(image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums and sums of squares of each channel of an image `[P, C]`."""
    P, C = image.shape
    sums, squares = np.zeros(C), np.zeros(C)
    for start in range(0, P, LINE):
        line_sums, line_squares = np.zeros(C, np.float32), np.zeros(C, np.float32)
        for p in range(start, min(start + LINE, P)):
            for c in range(C):
                line_sums[c] += image[p, c]
                line_squares[c] += image[p, c] * image[p, c]
        sums += line_sums
        squares += line_squares
    return sums, squares


@compiled
def normalise_images_back(
    images: np.ndarray,
    affine: np.ndarray,
    groups: int,
    slope: np.float32,
    statistics: np.ndarray,
    gradients: np.ndarray,
    affine_gradients: np.ndarray,
    out: np.ndarray,
    first: int,
    last: int,
) -> None:
    """The way back of `normalise_images`.

    Args:
        images: as there, and so are `affine`, `groups`, `slope`, `first` and `last`.
        statistics: as filled there.
        gradients: of what came out, `[B, P, C]`.
        affine_gradients: of scale and shift by each image, `[B, 2, C]`, filled here.
        out: gradients of the images, `[B, P, C]`, filled here.
    """
    _, P, C = images.shape
    width = C // groups
    scale, shift = np.empty(C, np.float32), np.empty(C, np.float32)
    slant, level = np.empty(C, np.float32), np.empty(C, np.float32)
    for b in range(first, last):
        for c in range(C):
            scale[c] = statistics[b, 1, c] * affine[0, c]
            shift[c] = affine[1, c] - statistics[b, 0, c] * scale[c]
        sums, products = _sums_back(images[b], gradients[b], scale, shift, slope)
        for c in range(C):
            affine_gradients[b, 0, c] = (products[c] - statistics[b, 0, c] * sums[c]) * statistics[b, 1, c]
            affine_gradients[b, 1, c] = sums[c]
        for group in range(0, C, width):
            members = slice(group, group + width)
            by_mean = (affine[0, members] * affine_gradients[b, 1, members]).sum() / (P * width)
            by_spread = (affine[0, members] * affine_gradients[b, 0, members]).sum() / (P * width)
            mean, inverse = statistics[b, 0, group], statistics[b, 1, group]
            slant[members] = -inverse * inverse * by_spread
            level[members] = -inverse * by_mean + mean * inverse * inverse * by_spread
        for p in range(P):
            for c in range(C):
                value = images[b, p, c] * scale[c] + shift[c]
                gradient = gradients[b, p, c] if value > 0 else slope * gradients[b, p, c]
                out[b, p, c] = gradient * scale[c] + images[b, p, c] * slant[c] + level[c]


@compiled
def _sums_back(
    image: np.ndarray, gradients: np.ndarray, scale: np.ndarray, shift: np.ndarray, slope: np.float32
) -> tuple[np.ndarray, np.ndarray]:
    """For each channel, sums of gradients before LeakyReLU and of their products with the image `[P, C]`."""
    P, C = image.shape
    sums, products = np.zeros(C), np.zeros(C)
    for start in range(0, P, LINE):
        line_sums, line_products = np.zeros(C, np.float32), np.zeros(C, np.float32)
        for p in range(start, min(start + LINE, P)):
            for c in range(C):
                value = image[p, c] * scale[c] + shift[c]
                gradient = gradients[p, c] if value > 0 else slope * gradients[p, c]
                line_sums[c] += gradient
                line_products[c] += gradient * image[p, c]
        sums += line_sums
        products += line_products
    return sums, products


def shares(count: int) -> list[tuple[int, int]]:
    """Cut `count` pieces into even shares, from and to, one for each of torch's threads."""
    threads = max(1, min(torch.get_num_threads(), count))
    return list(pairwise(count * part // threads for part in range(threads + 1)))


def in_threads(work: Callable[..., None], *arguments: Iterable[Any]) -> None:
    """Call `work` for each share, as `map` would: the first one here, the others in threads."""
    first, *others = zip(*arguments, strict=True)
    waiting = [_helpers(torch.get_num_threads() - 1).submit(work, *share) for share in others]
    work(*first)
    for helper in waiting:
        helper.result()


@lru_cache(maxsize=1)
def _helpers(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="share")


os.register_at_fork(after_in_child=_helpers.cache_clear)  # threads do not survive a fork
