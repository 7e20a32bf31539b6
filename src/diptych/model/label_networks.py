"""Two small networks beside a finished model: code ids to label maps, and a painted lesion to code ids.

The label decoder reads out of one panel's ids what they stand for, as shares of each label on a coarse grid. The label
encoder goes the other way: from a painted lesion to the abnormal ids that the network would have found.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from diptych.config import LABEL_GRID, ModelConfig
from diptych.model.blocks import NormConv, ResBlock, he_init_

GRID = LABEL_GRID
"""Rows and columns of the maps."""
WIDTH = 96
FINE_WIDTH = 32
SMALLEST_SIDE = 4
"""The grid is halved, for a view of the whole slice, until a side would fall below this."""
MOST_HALVINGS = 2


class LabelDecoder(nn.Module):
    """Ids `[B, h, w]` to logits of the labels, background first, `[B, classes + 1, 32, 32]`.

    A small U-Net over the cells: anatomy is a matter of the whole slice, not of one cell.
    """

    def __init__(self, config: ModelConfig, *, classes: int) -> None:
        super().__init__()
        rows, columns = config.latent_size
        self.enter = nn.Conv2d(config.code_width, WIDTH, 1)
        self.place = nn.Parameter(torch.zeros(WIDTH, rows, columns))
        self.descend = nn.ModuleList(ResBlock(WIDTH, WIDTH) for _ in range(_halvings(rows, columns) + 1))
        self.ascend = nn.ModuleList(ResBlock(2 * WIDTH, WIDTH) for _ in range(_halvings(rows, columns)))
        widths = _fine_widths(rows, columns)
        self.refine = nn.ModuleList(NormConv(width, 4 * finer) for width, finer in pairwise(widths))
        self.fine = ResBlock(widths[-1], FINE_WIDTH)
        self.out = nn.Conv2d(FINE_WIDTH, classes + 1, 1)
        self.apply(he_init_)
        with torch.no_grad():
            self.out.weight *= config.output_gain

    def forward(self, ids: Tensor, codebook: Tensor) -> Tensor:
        mean, spread = _scale(codebook)
        return self._climb(F.embedding(ids, (codebook - mean) / spread).permute(0, 3, 1, 2))  # channels last in memory

    def read(self, code: Tensor, codebook: Tensor) -> Tensor:
        """The same from code vectors `[B, D, h, w]`, through which gradients reach whatever made them."""
        mean, spread = _scale(codebook)
        return self._climb((code - mean.view(1, -1, 1, 1)) / spread)

    def _climb(self, vectors: Tensor) -> Tensor:
        x = self.enter(vectors) + self.place
        seen = []
        for depth, block in enumerate(self.descend):
            x = block(x if depth == 0 else F.avg_pool2d(x, 2))
            seen.append(x)
        for block in self.ascend:
            seen.pop()
            x = block(torch.cat([seen[-1], F.interpolate(x, scale_factor=2.0)], dim=1))
        for conv in self.refine:
            x = F.pixel_shuffle(conv(x), 2)
        if x.shape[2:] != GRID:
            x = F.adaptive_avg_pool2d(x, GRID)
        logits: Tensor = self.out(self.fine(x))
        return logits


def label_shares(labels: Tensor, *, classes: int) -> Tensor:
    """What the decoder is to find: the share of each label, background first, `[B, classes + 1, 32, 32]`.

    >>> label_shares(torch.ones(1, 64, 64, dtype=torch.long), classes=1)[0, :, 0, 0].tolist()
    [0.0, 1.0]
    """
    one_hot = F.one_hot(labels.long(), classes + 1).movedim(-1, 1).float()
    return F.adaptive_avg_pool2d(one_hot, GRID)


def _scale(codebook: Tensor) -> tuple[Tensor, Tensor]:
    """Mean `[D]` and standard deviation of a codebook `[K, D]`, in whose units codes are read."""
    return codebook.mean(dim=0), codebook.std().clamp_min(1e-6)


def _fine_widths(rows: int, columns: int) -> list[int]:
    """Channels before the cells are doubled and after each doubling, until they are as fine as the maps.

    >>> _fine_widths(8, 8)
    [96, 48, 32]
    """
    doublings = max(0, math.ceil(math.log2(max(GRID) / min(rows, columns))))
    return [WIDTH, *[WIDTH // 2] * (doublings - 1), *[FINE_WIDTH] * (doublings > 0)]


def _halvings(rows: int, columns: int) -> int:
    """How often a grid can be halved.

    >>> [_halvings(*grid) for grid in ((16, 16), (8, 16), (4, 4), (32, 32), (10, 12))]
    [2, 1, 0, 2, 1]
    """
    count = 0
    while count < MOST_HALVINGS and rows % 2 == columns % 2 == 0 and min(rows, columns) // 2 >= SMALLEST_SIDE:
        rows, columns, count = rows // 2, columns // 2, count + 1
    return count


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
