"""A moving average of a network's weights: steadier than the last weights, and what a run judges and exports.

Knows one network; nothing about optimisers or files.
"""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor

from diptych.model import FeatureDecomposingNetwork

__all__ = ["AveragedNetwork"]


class AveragedNetwork:
    """Follows `network` at a distance.

    Weights and codebooks are averaged; everything else (code counts, running statistics) is copied. The decay grows
    from nothing to `decay` over the first updates, so that the start is soon forgotten.
    """

    def __init__(self, network: FeatureDecomposingNetwork, decay: float) -> None:
        self.network = deepcopy(network).requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def follow(self, network: FeatureDecomposingNetwork, step: int) -> None:
        """Take in the weights after update number `step`, from 1."""
        decay = min(self.decay, step / (step + 10))
        averaged: dict[str, Tensor] = dict(self.network.named_parameters())
        for name, buffer in self.network.named_buffers():
            if name.endswith(".codebook"):
                averaged[name] = buffer
        for name, value in network.state_dict().items():
            if name in averaged:
                averaged[name].lerp_(value, 1 - decay)
            else:
                self.network.get_buffer(name).copy_(value)
