"""The folder of a run: the exported model and the report.

    RUN/config.json       everything that decides what the run computes
    RUN/report.json       what happened: command, versions, machine, data, best figures
    RUN/log.csv           losses by step           RUN/validation.csv   figures on validation patients
    RUN/pictures/         picture grids            RUN/tensorboard/     when asked for
    RUN/checkpoints/      to resume from           RUN/model/           the network so far, for use: best or last

Knows files, not networks' insides.
"""

from __future__ import annotations

import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from diptych.files import program_versions, remove_unfinished, replacing_folder
from diptych.metrics.label_decoders import LabelDecoders
from diptych.model import FeatureDecomposingNetwork
from diptych.model.model_folder import save_model
from diptych.training.training_options import RunConfig
from diptych.training.validation import CRITERION


def begin_report(config: RunConfig) -> dict[str, Any]:
    """What is known about a run before its first step."""
    return {
        "command": sys.argv,
        "started": _now(),
        "versions": program_versions("torch", "numpy", "safetensors"),
        "machine": {
            "system": platform.platform(),
            "threads": torch.get_num_threads(),
            "gpus": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
            "processes": int(os.environ.get("WORLD_SIZE", 1)),
        },
        "preset": config.preset.name,
        "seed": config.preset.training.seed,
        "stores": config.stores,
        "train_patients": len(config.train_keys),
        "validation_patients": len(config.validation_keys),
        "criterion": CRITERION,
        "note": "Research use only, not a medical device.",
    }


def export_model(
    network: FeatureDecomposingNetwork, run: Path, *, notes: str, readers: LabelDecoders | None = None
) -> str:
    """Put the network, and label decoders trained with it, in RUN/model in one move; returns its fingerprint.

    After a kill in the middle of the move, the resumed run exports the same network again.
    """
    remove_unfinished(run)
    with replacing_folder(run / "model") as part:
        fingerprint = save_model(network, part, notes=notes)
        if readers is not None:
            readers.save(part)
        return fingerprint


def model_notes(config: RunConfig, step: int, figures: dict[str, float]) -> str:
    """Paragraphs for the model card: data, settings, results."""
    field = config.preset.model.field_mm
    chosen = f"Chosen as the best by {CRITERION}. On validation patients:"
    if config.preset.training.exported == "last":
        chosen = "The last weights of the run, not chosen by any figure. On validation patients:"
    lines = [
        f"Trained with preset `{config.preset.name}`, seed {config.preset.training.seed}, {step} steps of "
        f"{config.preset.training.batch_size} slices, on {len(config.train_keys)} patients of slice stores "
        + ", ".join(f"`{fingerprint[:12]}`" for fingerprint in config.stores.values())
        + f"; {len(config.validation_keys)} other patients judged it.",
        f"Slices show {'the whole frame' if field is None else f'{field[0]:g} x {field[1]:g} mm around the brain'}.",
        chosen,
        "| figure | value |\n|---|---|\n" + "\n".join(f"| {name} | {value:.3f} |" for name, value in figures.items()),
    ]
    return "\n\n".join(lines)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
