"""Where the models lie that come with the package. Loads nothing and imports nothing heavy."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

from diptych.errors import ModelError

DEFAULT_MODEL = "cpu-16x16-any"
"""What every command takes that is not told otherwise."""


def shipped_models() -> dict[str, Path]:
    """Folders of the models inside the package, by name."""
    folder = Path(str(files("diptych") / "weights"))
    return {path.parent.name: path.parent for path in sorted(folder.glob("*/model.safetensors"))}


def shipped_model(name: str = DEFAULT_MODEL) -> Path:
    """The folder of one shipped model."""
    models = shipped_models()
    if name not in models:
        known = ", ".join(models) or "none"
        raise ModelError(f"model {name!r}: not shipped with this installation (there is: {known}); give a model folder")
    return models[name]


def named_model(model: Path | str) -> Path:
    """A model's folder from its path, or from the name of a shipped one where there is no such path."""
    folder, models = Path(model), shipped_models()
    return models[str(model)] if not folder.exists() and str(model) in models else folder


def shipped_model_for(channels: Iterable[str], disease: str) -> str | None:
    """The name of a shipped model for this disease to which a patient with these channels is enough."""
    from diptych.config import ModelConfig

    there = tuple(channels)
    for name, folder in shipped_models().items():
        stored = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        about = ModelConfig.from_dict(stored["model"]).about
        if about.disease == disease and not about.needed(there):
            return name
    return None


def shipped_model_of(fingerprint: str) -> Path | None:
    """The folder of the shipped model with this fingerprint, if there is one."""
    for folder in shipped_models().values():
        if json.loads((folder / "config.json").read_text(encoding="utf-8"))["fingerprint"] == fingerprint:
            return folder
    return None
