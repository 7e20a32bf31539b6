"""The identity of a model: archives made with one model are never searched with another."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from torch import Tensor

from diptych.config import ModelConfig

__all__ = ["fingerprint"]


def fingerprint(config: ModelConfig, state: Mapping[str, Tensor]) -> str:
    """SHA-256, in hexadecimal, over the canonical config and all weights in the order of their names."""
    digest = hashlib.sha256(json.dumps(config.to_dict(), sort_keys=True).encode())
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()
