"""The identity of a model: archives made with one model are never searched with another."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Protocol

from torch import Tensor

__all__ = ["fingerprint"]


class Describable(Protocol):
    """A config that plain values can stand for."""

    def to_dict(self) -> dict[str, Any]: ...


def fingerprint(config: Describable, *states: Mapping[str, Tensor]) -> str:
    """SHA-256, in hexadecimal, over the canonical config and the weights of each network in order of their names."""
    digest = hashlib.sha256(json.dumps(config.to_dict(), sort_keys=True).encode())
    for state in states:
        for name in sorted(state):
            tensor = state[name].detach().cpu().contiguous()
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()
