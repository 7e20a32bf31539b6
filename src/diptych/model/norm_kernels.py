"""The inner loops of GroupNorm with LeakyReLU over channels-last images `[B, H · W, C]`.

All loops run over channels innermost, so that a compiler sees vectors, and over one image at a time, so that no image
feels the company it keeps. Knows nothing about torch; `norm.py` says what is computed.
"""

from __future__ import annotations

import numpy as np

from diptych.compiling import compiled

__all__ = ["normalise_images", "normalise_images_back"]

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
