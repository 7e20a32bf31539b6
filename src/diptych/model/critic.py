"""The critic g: how healthy does a normal code look? (table C.3, section 3.1.4)

Strided 4x4 convolutions down to about one position, two 1x1 convolutions, one number per sample. No normalisation:
the gradient penalty is per sample, and a norm over the batch would tie samples together.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from diptych.config import ModelConfig
from diptych.model.blocks import LEAK, he_init_


class Critic(nn.Module):
    """Normal codes `[B, D, h, w]` to one score each, `[B]`; higher looks healthier."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width = config.code_width
        halvings = min(config.latent_size).bit_length() - 1
        self.convs = nn.ModuleList(
            [nn.Conv2d(width, width, 4, stride=2, padding=1) for _ in range(halvings)] + [nn.Conv2d(width, width, 1)]
        )
        self.out = nn.Conv2d(width, 1, 1)
        self.apply(he_init_)

    def forward(self, normal_code: Tensor) -> Tensor:
        x = normal_code
        for conv in self.convs:
            x = F.leaky_relu(conv(x), LEAK)
        score: Tensor = self.out(x).mean(dim=(1, 2, 3))
        return score
