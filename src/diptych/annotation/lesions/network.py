"""The network: MONAI's SegResNet, after Myronenko's winner of BraTS 2018, four channels in and four classes out.

Knows tensors only. MONAI takes seconds to import and belongs to the extra `annotation`, so it is imported on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from diptych.annotation.lesions.presets import LesionPreset
from diptych.errors import MissingExtraError
from diptych.volumes import CHANNELS, LESION_LABELS

__all__ = ["best_device", "build_network", "dice_focal_loss", "mean_probabilities", "probabilities"]

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
            in_channels=len(CHANNELS),
            out_channels=len(LESION_LABELS),
            blocks_down=preset.blocks_down,
            blocks_up=preset.blocks_up,
            dropout_prob=preset.dropout or None,
        )
    module: nn.Module = network.to(memory_format=torch.channels_last_3d)
    return module


def best_device() -> torch.device:
    """The first GPU, or the CPU where there is none."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def dice_focal_loss() -> Callable[[Tensor, Tensor], Tensor]:
    """Dice over the lesion classes plus focal loss (γ = 2, summed over classes, mean over voxels).

    Dice sums over the batch first, so a class that one crop lacks does not count as a miss.
    """
    try:
        from monai.losses.dice import DiceLoss
        from monai.losses.focal_loss import FocalLoss
    except ImportError as error:
        raise MissingExtraError(MISSING) from error
    dice = DiceLoss(include_background=False, to_onehot_y=True, softmax=True, batch=True)
    focal = FocalLoss(to_onehot_y=True, use_softmax=True, gamma=2.0)

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        total: Tensor = dice(logits, labels) + len(LESION_LABELS) * focal(logits, labels)
        return total

    return loss


@torch.inference_mode()
def probabilities(network: nn.Module, image: NDArray[np.float32], *, multiple: int) -> NDArray[np.float32]:
    """Class probabilities `[4, x, y, z]` of a whole working image `[4, x, y, z]`.

    The image and its left-right mirror go through together and are averaged: steadier, and on a CPU a batch of two
    costs less than twice one.
    """
    device = next(network.parameters()).device
    _, *shape = image.shape
    padding = [(0, -side % multiple) for side in shape]
    whole = torch.from_numpy(np.pad(image, [(0, 0), *padding]))
    pair = torch.stack([whole, whole.flip(1)]).to(device, memory_format=torch.channels_last_3d)  # [2, 4, x, y, z]
    straight, mirrored = torch.softmax(network.eval()(pair).float(), dim=1)
    mean = (straight + mirrored.flip(1)) / 2
    result: NDArray[np.float32] = mean[:, : shape[0], : shape[1], : shape[2]].cpu().numpy()
    return result


def mean_probabilities(maps: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """The ensemble's answer: the mean of the models' probabilities, voxel by voxel."""
    mean: NDArray[np.float32] = np.mean(np.stack(maps), axis=0, dtype=np.float32)
    return mean
