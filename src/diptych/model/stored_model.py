"""`StoredModel`: a model on disk as plain arrays, checked, whose network is made only when somebody needs it.

    model = StoredModel.open("model")
    model.fingerprint, model.codebooks["normal"]     # enough to search an archive: torch is not even imported
    model.network                                    # what encodes and decodes

The fingerprint is a model's identity: archives made with one model are never searched with another. Knows files, arrays
and config; what the arrays do is `network.py`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from diptych.config import ModelConfig
from diptych.description import Description
from diptych.errors import DiptychError, ModelError
from diptych.files import parse_json, read_regular, require_regular
from diptych.model.shipped import named_model, shipped_model

if TYPE_CHECKING:
    from diptych.model.network import FeatureDecomposingNetwork

FORMAT = "diptych-model"
VERSION = 1
MAX_CONFIG = 1 << 20
WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "README.md"
PANELS = ("normal", "abnormal")

Arrays = Mapping[str, NDArray[Any]]


class Identified(Protocol):
    """What a search needs of a model: a `StoredModel`, or a network."""

    @property
    def config(self) -> ModelConfig: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def codebooks(self) -> Mapping[str, NDArray[np.float32]]:
        """By panel, `[K, D]`."""


@dataclass(frozen=True, eq=False)
class StoredModel:
    """What a model's folder holds; make one with `open` or `read`."""

    folder: Path
    config: ModelConfig
    recorded: str
    """The fingerprint that its config gives."""
    arrays: Arrays
    """Weights by name."""

    @classmethod
    def open(cls, folder: Path | str | None = None) -> StoredModel:
        """Read a folder that `save_model` wrote, or a shipped model by name, and refuse it unless it is whole."""
        model = cls.read(folder)
        model.require_whole()
        missing = [name for name in map(_codebook, PANELS) if name not in model.arrays]
        if missing:
            raise ModelError(f"{model.folder / WEIGHTS}: {missing[0]} is missing; export the model again")
        return model

    @classmethod
    def read(cls, folder: Path | str | None = None) -> StoredModel:
        """The same without comparing weights and config with the fingerprint."""
        folder = named_model(shipped_model() if folder is None else folder)
        description = _read_description(folder / CONFIG)
        config = _read_config(folder / CONFIG, description)
        return cls(folder, config, str(description["fingerprint"]), _read_weights(folder / WEIGHTS))

    def require_whole(self) -> None:
        """Refuse files that were changed or mixed up."""
        if self.fingerprint != self.recorded:
            raise ModelError(
                f"{self.folder}: weights and config have fingerprint {self.fingerprint[:12]}, not {self.recorded[:12]} "
                "as recorded; the files were changed or mixed up: export the model again"
            )

    @cached_property
    def fingerprint(self) -> str:
        """The identity of these weights and this config."""
        return fingerprint(self.config, self.arrays)

    @property
    def description(self) -> Description:
        """Channels, classes and slice geometry, by name."""
        return self.config.about

    @property
    def codebooks(self) -> dict[str, NDArray[np.float32]]:
        """By panel, `[K, D]`."""
        return {panel: self.arrays[_codebook(panel)] for panel in PANELS}

    @cached_property
    def network(self) -> FeatureDecomposingNetwork:
        """The network with these weights, in evaluation mode."""
        from diptych.model.model_folder import network_of

        return network_of(self)


class Describable(Protocol):
    """A config that plain values can stand for."""

    def to_dict(self) -> dict[str, Any]: ...


def fingerprint(config: Describable, *states: Arrays) -> str:
    """SHA-256, in hexadecimal, over the canonical config and the weights of each network in order of their names."""
    digest = hashlib.sha256(json.dumps(config.to_dict(), sort_keys=True).encode())
    for state in states:
        for name in sorted(state):
            array = state[name]
            digest.update(f"{name} torch.{array.dtype.name} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def first_line(error: Exception) -> str:
    """What an error says, in one line."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def _codebook(panel: str) -> str:
    return f"{panel}_quantizer.codebook"


def _read_description(path: Path) -> dict[str, Any]:
    try:
        description = parse_json(read_regular(path, limit=MAX_CONFIG))
    except FileNotFoundError:
        raise ModelError(
            f"{path}: not there; a model is a folder that `diptych train` wrote, or a name that `diptych models` lists"
        ) from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: cannot be read as JSON ({first_line(error)}); export the model again") from None
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise ModelError(f"{path}: not the config of a Diptych model; give the folder that `diptych train` wrote")
    if description.get("version") != VERSION:
        raise ModelError(
            f"{path}: model format {description.get('version')!r}, but this Diptych reads {VERSION}; "
            "use the Diptych that wrote it, or export again"
        )
    if not isinstance(description.get("fingerprint"), str) or not isinstance(description.get("model"), dict):
        raise ModelError(f"{path}: fingerprint or network description is missing; export the model again")
    return description


def _read_config(path: Path, description: dict[str, Any]) -> ModelConfig:
    try:
        return ModelConfig.from_dict(description["model"])
    except (DiptychError, TypeError, ValueError) as error:
        raise ModelError(f"{path}: {first_line(error)}") from None


def _read_weights(path: Path) -> dict[str, NDArray[Any]]:
    if not path.is_file():
        raise ModelError(f"{path}: not there; only safetensors weights are read, never pickles")
    try:
        require_regular(path)
        return dict(load_file(path))
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path}: not a safetensors file ({first_line(error)}); export the model again") from None
