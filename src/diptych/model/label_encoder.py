"""The label encoder: from a painted lesion to the abnormal ids that the network would have found.

Knows label maps and ids, nothing about images or files. It stands beside a feature decomposing network, is trained
when that one is finished (`diptych.retrieval.sketch_fitting`) and never changes it.

A lesion does not determine its ids: the image says more than the label map. So the encoder gives each cell a
probability over all codes, and `ids` answers with the code whose expected squared distance to the true one is least.
"""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from diptych.config import ModelConfig
from diptych.model.blocks import NormConv, ResBlock, he_init_

__all__ = ["LabelEncoder"]

UNSEEN = 0.5
"""How often a code that was never seen in a cell counts as seen there."""


class LabelEncoder(nn.Module):
    """Label maps `[B, H, W]` to a logit per code and cell, `[B, K, h, w]`.

    The map is halved before the first convolution: what matters in a cell is how much of each label lies where.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        widths = config.widths[1:]
        layers: list[nn.Module] = [nn.AvgPool2d(2), nn.Conv2d(config.lesion_classes, widths[0], 3, padding=1)]
        layers += [NormConv(width, next_width, stride=2) for width, next_width in pairwise(widths)]
        layers += [ResBlock(widths[-1], widths[-1]), ResBlock(widths[-1], widths[-1])]
        self.descend = nn.Sequential(*layers)
        self.out = nn.Conv2d(widths[-1], config.codebook_size, 1)
        self.habit = nn.Parameter(torch.zeros(config.codebook_size, *config.latent_size))
        self.apply(he_init_)
        with torch.no_grad():
            self.out.weight *= config.output_gain

    def forward(self, labels: Tensor) -> Tensor:
        one_hot = F.one_hot(labels.long(), self.config.lesion_classes).movedim(-1, 1).float()  # [B, S, H, W]
        logits: Tensor = self.out(self.descend(one_hot)) + self.habit
        return logits

    @torch.no_grad()
    def start(self, ids: Tensor) -> None:
        """Begin with what stands in each cell of any slice, as seen in some ids `[B, h, w]`."""
        counts = F.one_hot(ids, self.config.codebook_size).sum(dim=0).movedim(-1, 0) + UNSEEN  # [K, h, w]
        self.habit.copy_(torch.log(counts / counts.sum(dim=0)))

    @torch.no_grad()
    def ids(self, labels: Tensor, codebook: Tensor) -> Tensor:
        """The ids `[B, h, w]` that are nearest to the truth on average, by the abnormal codebook `[K, D]`.

        E|e_k − e|² = |e_k|² − 2 e_k·E[e] + constant, so it is the code nearest to the expected vector.
        """
        probabilities = self(labels).softmax(dim=1)  # [B, K, h, w]
        expected = torch.einsum("bkhw,kd->bhwd", probabilities, codebook)
        distances = codebook.square().sum(dim=1) - 2 * expected @ codebook.T  # [B, h, w, K], less |E[e]|²
        return distances.argmin(dim=-1)
