"""The network: MONAI's SegResNet, after Myronenko's winner of BraTS 2018, channels in and classes out as a
description names them.

Knows tensors only. MONAI takes seconds to import and belongs to the extra `annotation`, so it is imported on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from diptych.description import GLIOMA, Description
from diptych.errors import MissingExtraError, UsageError

MISSING = "diptych annotate lesions needs MONAI: pip install 'diptych[annotation]'"


def build_network(preset: LesionPreset, *, fold: int = 0) -> nn.Module:
    """A fresh network, its weights drawn from seed and fold, in the memory layout that runs fastest."""
    try:
        from monai.networks.nets import SegResNet
    except ImportError as error:
        raise MissingExtraError(MISSING) from error
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1000 * preset.seed + fold)
        network = SegResNet(
            init_filters=preset.filters,
            in_channels=len(preset.about.channels),
            out_channels=len(preset.about.lesion) + 1,
            blocks_down=preset.blocks_down,
            blocks_up=preset.blocks_up,
            dropout_prob=preset.dropout or None,
        )
    module: nn.Module = network.to(memory_format=torch.channels_last_3d)
    return module


def best_device() -> torch.device:
    """The first GPU, or the CPU where there is none."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def dice_focal_loss(classes: int) -> Callable[[Tensor, Tensor], Tensor]:
    """Dice over the lesion classes plus focal loss (γ = 2, summed over classes, mean over voxels).

    `classes` counts the background, too. Dice sums over the batch first, so a class that one crop lacks does not count
    as a miss.
    """
    try:
        from monai.losses.dice import DiceLoss
        from monai.losses.focal_loss import FocalLoss
    except ImportError as error:
        raise MissingExtraError(MISSING) from error
    dice = DiceLoss(include_background=False, to_onehot_y=True, softmax=True, batch=True)
    focal = FocalLoss(to_onehot_y=True, use_softmax=True, gamma=2.0)

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        total: Tensor = dice(logits, labels) + classes * focal(logits, labels)
        return total

    return loss


@torch.inference_mode()
def probabilities(network: nn.Module, image: NDArray[np.float32], *, multiple: int) -> NDArray[np.float32]:
    """Class probabilities `[S, x, y, z]` of a whole working image `[C, x, y, z]`.

    The image and its left-right mirror go through together and are averaged: steadier, and on a CPU a batch of two
    costs less than twice one.
    """
    device = next(network.parameters()).device
    _, *shape = image.shape
    padding = [(0, -side % multiple) for side in shape]
    whole = torch.from_numpy(np.pad(image, [(0, 0), *padding]))
    pair = torch.stack([whole, whole.flip(1)]).to(device, memory_format=torch.channels_last_3d)  # [2, C, x, y, z]
    straight, mirrored = torch.softmax(network.eval()(pair).float(), dim=1)
    mean = (straight + mirrored.flip(1)) / 2
    result: NDArray[np.float32] = mean[:, : shape[0], : shape[1], : shape[2]].cpu().numpy()
    return result


def mean_probabilities(maps: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """The ensemble's answer: the mean of the models' probabilities, voxel by voxel."""
    mean: NDArray[np.float32] = np.mean(np.stack(maps), axis=0, dtype=np.float32)
    return mean


PAPER_DICE = {"ET": 0.68, "ED": 0.74, "TC": 0.79}
"""Held-out Dice of the paper's five folds (appendix B): 355 patients of BraTS 2019 at 1 mm, 300 epochs."""


@dataclass(frozen=True)
class LesionPreset:
    """A named, complete choice."""

    name: str
    spacing_mm: float
    """Voxel size of the working grid, the same along all axes."""
    crop: tuple[int, int, int]
    """Voxels of a training crop along x, y, z; multiples of what the network halves."""
    filters: int
    """Channels at full resolution; each halving doubles them."""
    blocks_down: tuple[int, ...] = (1, 2, 2, 4)
    """Residual blocks at each resolution of the encoder."""
    blocks_up: tuple[int, ...] = (1, 1, 1)
    """Residual blocks at each resolution of the decoder."""
    dropout: float = 0.0
    """Share of channels dropped before the encoder's first block."""
    batch_size: int = 2
    """Crops per update. Two, because one makes torch take a far slower convolution on CPUs."""
    epochs: float = 60.0
    """Crops per training patient, when no other length is asked for."""
    learning_rate: float = 2e-3
    """AdamW's step size at its peak."""
    weight_decay: float = 1e-4
    """AdamW's weight decay."""
    warmup_steps: int = 40
    """Updates over which the step size rises from zero."""
    final_fraction: float = 0.01
    """Share of the peak step size left at the end of the cosine."""
    clip_norm: float = 5.0
    """Largest norm of the gradient."""
    lesion_share: float = 0.5
    """Share of crops that are centred on a lesion voxel; the others lie anywhere in the brain's box."""
    seed: int = 0
    """Start of every random draw."""
    description: Description | None = None
    """Channels and classes by name; None for gliomas in four channels."""

    @property
    def about(self) -> Description:
        return self.description or GLIOMA

    @property
    def multiple(self) -> int:
        """Image sides must be multiples of this."""
        halvings: int = 2 ** (len(self.blocks_down) - 1)
        return halvings

    def __post_init__(self) -> None:
        if any(side < self.multiple or side % self.multiple for side in self.crop):
            raise UsageError(f"crop {self.crop}: each side must be a multiple of {self.multiple}")

    def to_dict(self) -> dict[str, Any]:
        """Plain values that survive JSON; `from_dict` reads them back."""
        values = asdict(self)
        del values["description"]  # ensembles of gliomas keep the fingerprint they had before there were others
        return values if self.description is None else {**values, "description": self.description.to_json()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> LesionPreset:
        """Read what `to_dict` wrote."""
        tuples = {name: tuple(values[name]) for name in ("crop", "blocks_down", "blocks_up")}
        named = values.get("description")
        return cls(**{**values, **tuples, "description": named and Description.from_json(named)})


PRESETS = {
    preset.name: preset
    for preset in (
        LesionPreset(name="2mm-cpu", spacing_mm=2.0, crop=(40, 40, 40), filters=8),
        LesionPreset(
            name="1mm-gpu",
            spacing_mm=1.0,
            crop=(128, 160, 128),
            filters=32,
            dropout=0.2,
            epochs=300.0,
            learning_rate=2e-4,
            weight_decay=1e-5,
            warmup_steps=200,
        ),
    )
}


def get_preset(name: str, *, seed: int | None = None, description: Description | None = None) -> LesionPreset:
    """The preset of that name, with another seed and for other channels and classes if they are given."""
    if name not in PRESETS:
        raise UsageError(f"--preset {name}: not known; presets are {', '.join(PRESETS)}")
    preset = replace(PRESETS[name], description=None if description == GLIOMA else description)
    return preset if seed is None else replace(preset, seed=seed)
