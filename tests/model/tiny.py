"""A network small enough to test in milliseconds, and not square, so that a transposed grid cannot pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from diptych.config import ModelConfig
from diptych.model import FeatureDecomposingNetwork

TINY = ModelConfig(
    image_size=(32, 48), latent_size=(4, 6), widths=(8, 8, 12, 16), code_width=8, codebook_size=16, anatomy_classes=0
)


def tiny_network(**changes: Any) -> FeatureDecomposingNetwork:
    """A seeded network of the `TINY` shape, with changes to its config."""
    torch.manual_seed(0)
    return FeatureDecomposingNetwork(replace(TINY, **changes))


def tiny_images(batch: int = 4) -> Tensor:
    return torch.randn(batch, 4, 32, 48, generator=torch.Generator().manual_seed(1))


def tiny_lesions(batch: int = 4) -> Tensor:
    """A lesion of all classes in every second image, `[B, 32, 48]`."""
    labels = torch.zeros(batch, 32, 48, dtype=torch.int64)
    labels[::2, 8:20, 10:30] = 2
    labels[::2, 10:16, 12:20] = 3
    labels[::2, 12:14, 14:16] = 1
    return labels
