"""A trained ensemble as a folder: one file of weights per fold, config, fingerprint and a card for people.

    model/
      fold-1.safetensors …   weights of the model that never saw fold 1
      config.json            format, fingerprint, network, training patients, held-out Dice
      README.md              model card

The fingerprint is a SHA-256 over the network's description and all weights. Whatever is not exactly such a folder is
refused; nothing is ever unpickled. Knows nothing about training.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from diptych.annotation.lesions.lesion_network import LesionPreset, build_network
from diptych.errors import ModelError
from diptych.files import replacing_folder, write_json, write_text
from diptych.model.network import fingerprint

FORMAT = "diptych-lesions"
VERSION = 1
CONFIG, CARD = "config.json", "README.md"


@dataclass(frozen=True, eq=False)
class Ensemble:
    """All models of one cross-validation, ready to predict."""

    preset: LesionPreset
    networks: tuple[nn.Module, ...]
    fingerprint: str
    folds: tuple[tuple[str, ...], ...]
    """Patients that each model did not see in training, while all the others did."""


def save_ensemble(
    folder: Path,
    preset: LesionPreset,
    weights: Sequence[dict[str, Tensor]],
    *,
    folds: Sequence[Sequence[str]],
    figures: dict[str, Any],
    card: str,
) -> str:
    """Write the ensemble to `folder` in one move; returns the fingerprint."""
    identity = fingerprint(preset, *weights)
    description = {
        "format": FORMAT,
        "version": VERSION,
        "fingerprint": identity,
        "preset": preset.to_dict(),
        "folds": [list(keys) for keys in folds],
        "held_out": figures,
        "note": "Research use only, not a medical device.",
    }
    with replacing_folder(folder) as part:
        for number, state in enumerate(weights, start=1):
            tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
            save_file(tensors, part / _name(number))
        write_json(part / CONFIG, description)
        write_text(part / CARD, f"# Lesion ensemble {identity[:12]}\n\n{card.strip()}\n")
    return identity


def load_ensemble(folder: Path, *, device: torch.device | None = None) -> Ensemble:
    """Read what `save_ensemble` wrote, from its folder or the run's; anything else is a `ModelError`."""
    folder = folder / "model" if (folder / "model" / CONFIG).is_file() else folder
    description = _read_description(folder / CONFIG)
    try:
        preset = LesionPreset.from_dict(description["preset"])
        folds = tuple(tuple(map(str, keys)) for keys in description["folds"])
    except Exception as error:
        raise ModelError(
            f"{folder / CONFIG}: not the config of a lesion ensemble ({error!r}); export it again"
        ) from None
    networks = [build_network(preset) for _ in folds]
    weights = []
    for number, network in enumerate(networks, start=1):
        weights.append(_read_weights(folder / _name(number), network.state_dict()))
        network.load_state_dict(weights[-1])
        network.to(device or torch.device("cpu")).eval()
    if (found := fingerprint(preset, *weights)) != description["fingerprint"]:
        raise ModelError(
            f"{folder}: weights and config have fingerprint {found[:12]}, not {description['fingerprint'][:12]} "
            "as recorded; the files were changed or mixed up: export the models again"
        )
    return Ensemble(preset, tuple(networks), found, folds)


def _name(number: int) -> str:
    return f"fold-{number}.safetensors"


def _read_description(path: Path) -> dict[str, Any]:
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(
            f"{path}: not there; give the run of a finished 'diptych annotate lesions train', or its model folder"
        ) from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: cannot be read as JSON ({error}); export the models again") from None
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise ModelError(f"{path}: not the config of a lesion ensemble; give a run of 'diptych annotate lesions train'")
    if description.get("version") != VERSION:
        raise ModelError(
            f"{path}: format {description.get('version')!r}, but this Diptych reads {VERSION}; train again, or use the "
            "Diptych that wrote it"
        )
    if not isinstance(description.get("fingerprint"), str):
        raise ModelError(f"{path}: the fingerprint is missing; export the models again")
    return description


def _read_weights(path: Path, expected: dict[str, Tensor]) -> dict[str, Tensor]:
    if not path.is_file():
        raise ModelError(f"{path}: not there; only safetensors weights are read, never pickles")
    try:
        state = load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelError(f"{path}: not a safetensors file ({error}); export the models again") from None
    shapes = {name: (tensor.shape, tensor.dtype) for name, tensor in state.items()}
    if shapes != {name: (tensor.shape, tensor.dtype) for name, tensor in expected.items()}:
        raise ModelError(f"{path}: tensors are not those of the network in the config; export the models again")
    return state
