"""The feature decomposing network, its losses and its files.

Start with `network.py`. Training lives in `diptych.training`. Names that need torch are loaded when first used, so that
what only reads a model's files (`stored_model.py`) never waits for it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diptych.model.critic import Critic
    from diptych.model.model_folder import load_model, save_model
    from diptych.model.network import CodeIds, Decoding, Decomposition, FeatureDecomposingNetwork, ForwardResult
    from diptych.model.quantizer import Quantized, VectorQuantizer

__all__ = [
    "CodeIds",
    "Critic",
    "Decoding",
    "Decomposition",
    "FeatureDecomposingNetwork",
    "ForwardResult",
    "Quantized",
    "VectorQuantizer",
    "load_model",
    "save_model",
]

_HOME = {
    "CodeIds": "network",
    "Critic": "critic",
    "Decoding": "network",
    "Decomposition": "network",
    "FeatureDecomposingNetwork": "network",
    "ForwardResult": "network",
    "Quantized": "quantizer",
    "VectorQuantizer": "quantizer",
    "load_model": "model_folder",
    "save_model": "model_folder",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
