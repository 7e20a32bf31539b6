"""The feature decomposing network, its losses and its files.

Start with `network.py`. Training lives in `diptych.training`.
"""

from __future__ import annotations

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
