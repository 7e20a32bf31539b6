"""Checkpoints: everything a run needs to go on as if it had never stopped, written so that a kill cannot hurt.

Knows tensors, JSON and files; nothing about networks or schedules. A checkpoint is a folder

    RUN/checkpoints/step-00001240/
        tensors.safetensors   weights, codebooks, critic, both optimisers
        state.json            step, plan, best score, and the SHA-256 of the tensors

It is written beside its place under a name nobody reads, flushed to the disk, and renamed; only then is an older
one removed. Whatever moment a kill chooses, one complete checkpoint remains. Random numbers need no place in it:
every step draws from generators seeded by (seed, step).
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.optim import Optimizer

from diptych.errors import InputError
from diptych.files import file_sha256, remove_unfinished, replacing_folder, write_json

KEPT = 2
"""Complete checkpoints that stay: the newest, and the one before it should the disk have lied."""


@dataclass(frozen=True)
class Checkpoint:
    """All tensors of a run at one step, by flat name, and the plain values beside them."""

    step: int
    tensors: dict[str, Tensor]
    state: dict[str, Any]
    damaged: tuple[str, ...] = ()
    """Names of newer checkpoints that could not be read."""


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write `checkpoint` under `folder`, then drop those older than the last `KEPT`."""
    final = folder / f"step-{checkpoint.step:08d}"
    if _is_whole(final):  # saved a moment ago, or reached again after a resume: the weights are the same
        return final
    with replacing_folder(final) as part:
        tensors = part / "tensors.safetensors"
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.tensors.items()}, tensors)
        write_json(part / "state.json", {"step": checkpoint.step, "sha256": file_sha256(tensors), **checkpoint.state})
    for old in _complete(folder)[KEPT:]:
        shutil.rmtree(old)
    remove_unfinished(folder)
    return final


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """Read the newest checkpoint that is whole, or None where none was ever finished.

    Raises:
        InputError: there are checkpoints, and every one of them is damaged.
    """
    damaged: list[str] = []
    for path in _complete(folder):
        try:
            return replace(_read(path), damaged=tuple(damaged))
        except (OSError, ValueError, KeyError, SafetensorError):
            damaged.append(path.name)
    if damaged:
        raise InputError(f"{folder}: all {len(damaged)} checkpoints are damaged; start again with another --out")
    return None


def optimizer_tensors(optimizer: Optimizer) -> dict[str, Tensor]:
    """Moments and step counts of an optimiser by flat name; the settings come from the config instead."""
    state = optimizer.state_dict()["state"]
    return {f"{index}.{name}": value for index, values in state.items() for name, value in values.items()}


def restore_optimizer(optimizer: Optimizer, tensors: dict[str, Tensor]) -> None:
    """Put tensors from `optimizer_tensors` back, each in the memory layout of its parameter.

    The layout matters: vectorised and scalar loops may round differently, and a resumed run must not.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for flat_name, value in tensors.items():
        index, name = flat_name.split(".", 1)
        parameter = parameters[int(index)]
        same_layout = value.shape == parameter.shape
        placed = torch.empty_like(parameter).copy_(value) if same_layout else value
        state.setdefault(int(index), {})[name] = placed.detach()
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def with_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Names of `tensors` behind `prefix` and a slash."""
    return {f"{prefix}/{name}": tensor for name, tensor in tensors.items()}


def without_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors that `with_prefix(prefix, …)` put there, under their own names."""
    start = f"{prefix}/"
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}


def _complete(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*"), reverse=True)


def _read(path: Path) -> Checkpoint:
    if not _is_whole(path):
        raise ValueError("the tensors are not those that were written")
    state = json.loads((path / "state.json").read_text(encoding="utf-8"))
    del state["sha256"]
    return Checkpoint(step=state.pop("step"), tensors=load_file(path / "tensors.safetensors"), state=state)


def _is_whole(path: Path) -> bool:
    try:
        state = json.loads((path / "state.json").read_text(encoding="utf-8"))
        return bool(state["sha256"] == file_sha256(path / "tensors.safetensors"))
    except (OSError, ValueError, KeyError):
        return False
