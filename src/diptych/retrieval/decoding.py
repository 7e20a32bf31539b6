"""From ids back to pictures: what two id grids mean to the model.

Knows the network and arrays; nothing about archives or search.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from diptych.model import FeatureDecomposingNetwork
from diptych.model.decoders import semantic_map

__all__ = ["Decoded", "decode", "decode_lesion"]


@dataclass(frozen=True, eq=False)
class Decoded:
    """Everything that can be decoded from the two codes of B slices."""

    reconstruction: NDArray[np.float32]
    """x̂⁺ `[B, C, H, W]`, from both codes."""
    healthy_twin: NDArray[np.float32]
    """x̂⁻ `[B, C, H, W]`, from the normal code alone."""
    lesion: NDArray[np.uint8]
    """Lesion labels `[B, H, W]`, from the abnormal code alone."""
    anatomy: NDArray[np.uint8] | None
    """Anatomy labels `[B, H, W]`, from the normal code alone; None without an anatomy head."""


@torch.no_grad()
def decode(
    network: FeatureDecomposingNetwork, normal_ids: NDArray[np.integer], abnormal_ids: NDArray[np.integer]
) -> Decoded:
    """Decode grids `[B, h, w]` of both panels; they need not stem from the same image."""
    decoder = network.image_decoder
    logits = network.segmentation_decoder(network.abnormal_quantizer.lookup(_tensor(network, abnormal_ids)))
    semantics = semantic_map(logits, with_background=network.config.condition_on_background)
    stem = decoder.stem(network.normal_quantizer.lookup(_tensor(network, normal_ids)))
    painted = decoder.paint(torch.cat([stem, stem]), semantics)
    lesioned, healthy = decoder.out(painted).chunk(2)
    anatomy = None if network.anatomy_head is None else _labels(network.anatomy_head(painted[len(stem) :]))
    return Decoded(lesioned.cpu().numpy(), healthy.cpu().numpy(), _labels(logits), anatomy)


@torch.no_grad()
def decode_lesion(network: FeatureDecomposingNetwork, abnormal_ids: NDArray[np.integer]) -> NDArray[np.uint8]:
    """Lesion labels `[B, H, W]` that abnormal ids `[B, h, w]` stand for."""
    return _labels(network.segmentation_decoder(network.abnormal_quantizer.lookup(_tensor(network, abnormal_ids))))


def _tensor(network: FeatureDecomposingNetwork, ids: NDArray[np.integer]) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(ids, dtype=np.int64)).to(network.normal_quantizer.codebook.device)


def _labels(logits: torch.Tensor) -> NDArray[np.uint8]:
    return np.asarray(logits.argmax(dim=1).cpu().numpy(), dtype=np.uint8)
