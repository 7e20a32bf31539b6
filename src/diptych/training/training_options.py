"""From what the user asked for to everything that decides what a run computes.

`TrainingOptions` is the request, with None for what was not said; `RunConfig` is the answer, complete, and kept in
RUN/config.json. A resumed run takes from there what the user does not repeat, and refuses what contradicts it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from diptych.config import LossConfig, ModelConfig, Preset, TrainingConfig, get_preset
from diptych.errors import InputError, ModelError, UsageError
from diptych.runs.run_length import Length

PRECISIONS = ("float32", "bfloat16")
FORMAT = 2
FROM_DATA = ("channels", "lesion_classes", "description")
"""Parts of a network that the slice stores decide."""


@dataclass(frozen=True)
class TrainingOptions:
    """What the user asked for; None is "not said"."""

    out: Path
    """Folder of the run."""
    stores: tuple[Path, ...] = ()
    """Slice stores to train on."""
    preset: str | None = None
    """Name of the preset."""
    overrides: tuple[str, ...] = ()
    """Changes to the preset, each `name=value`."""
    length: Length | None = None
    """How long to train; the preset's epochs if not said."""
    train_list: Path | None = None
    """Text file of the patients to train on."""
    validation_list: Path | None = None
    """Text file of the patients to validate on; a seeded part of the training patients if not said."""
    start_from: Path | None = None
    """Model whose weights the network begins with, instead of random ones."""
    seed: int | None = None
    """Start of every random draw."""
    precision: str | None = None
    """Arithmetic of the network's passes, one of `PRECISIONS`."""
    compiled: bool | None = None
    """Whether encoder and segmentation decoder run through `torch.compile`."""
    resume: bool = False
    """Whether to continue the run that is in `out`, if there is one."""
    threads: int | None = None
    """CPU threads; all cores if not said."""
    tensorboard: bool = False
    """Whether to write TensorBoard events as well."""


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides what a run computes."""

    preset: Preset
    length: Length
    stores: dict[str, str]
    """Path of each store and the fingerprint of its data."""
    train_keys: tuple[str, ...]
    validation_keys: tuple[str, ...]
    precision: str = "float32"
    compiled: bool = False
    threads: int = 1
    """CPU threads; the same bits come out only of the same number."""
    started_from: str = ""
    """Fingerprint of the model that the network began with; empty for random weights."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values that survive JSON; `from_dict` reads them back."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> RunConfig:
        """Read what `to_dict` wrote."""
        preset = values["preset"]
        training: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in preset["training"].items()}
        return cls(
            preset=Preset(
                name=preset["name"],
                summary=preset["summary"],
                model=ModelConfig.from_dict(preset["model"]),
                losses=LossConfig(**preset["losses"]),
                training=TrainingConfig(**training),
            ),
            length=Length(**values["length"]),
            stores=dict(values["stores"]),
            train_keys=tuple(values["train_keys"]),
            validation_keys=tuple(values["validation_keys"]),
            precision=values["precision"],
            compiled=values["compiled"],
            threads=values["threads"],
            started_from=values["started_from"],
        )


def stored_config(options: TrainingOptions) -> RunConfig | None:
    """The config of the run to resume, or None for a new run; refuses a folder that is neither."""
    path = options.out / "config.json"
    if not options.resume:
        if options.out.exists() and (not options.out.is_dir() or any(options.out.iterdir())):
            raise UsageError(f"{options.out}: is there already; add --resume to go on with it, or give another --out")
        return None
    if not path.exists():
        if options.out.exists() and any(entry.name != ".lock" for entry in options.out.iterdir()):
            raise UsageError(f"{options.out}: holds other things than a run; give another --out")
        return None
    try:
        return RunConfig.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, ModelError) as error:
        raise InputError(
            f"{path}: not a run of this version of Diptych ({error!r}); start again with another --out"
        ) from error


def chosen_preset(options: TrainingOptions, stored: RunConfig | None) -> Preset:
    """The preset with its changes, or the stored one where the user says nothing about it."""
    if stored and options.preset is None and not options.overrides:
        preset = stored.preset
    elif options.preset is None and stored is None:
        raise UsageError("no preset; give one, such as --preset cpu-8x8")
    else:
        name = options.preset or (stored.preset.name if stored else "")
        preset = override(get_preset(name), options.overrides)
    if options.seed is not None:
        preset = replace(preset, training=replace(preset.training, seed=options.seed))
    elif stored:
        preset = replace(preset, training=replace(preset.training, seed=stored.preset.training.seed))
    return preset


def override(preset: Preset, changes: Sequence[str]) -> Preset:
    """The preset with `name=value` changes to its network, losses or training.

    >>> override(get_preset("cpu-8x8"), ["learning_rate=3e-4", "image_size=64x64", "widths=8,16,32,64"]).model.widths
    (8, 16, 32, 64)
    """
    sections: dict[str, Any] = {"model": preset.model, "losses": preset.losses, "training": preset.training}
    changed: dict[str, dict[str, Any]] = {name: {} for name in sections}
    for change in changes:
        name, _, text = change.partition("=")
        homes = [key for key, section in sections.items() if name in _settings(section)]
        if not homes:
            known = [name for section in sections.values() for name in _settings(section)]
            raise UsageError(f"--set {change}: no setting of that name; settings are {', '.join(sorted(known))}")
        changed[homes[0]][name] = _parse(change, text, get_type_hints(type(sections[homes[0]]))[name])
    return replace(
        preset,
        model=replace(preset.model, **changed["model"]),
        losses=replace(preset.losses, **changed["losses"]),
        training=replace(preset.training, **changed["training"]),
    )


def require_same(stored: RunConfig, asked: RunConfig) -> None:
    """Refuse to resume a run with other settings, naming the first one that differs.

    Stores may have moved, but their data may not have changed. The number of threads is free. A run whose step size
    does not depend on its end may be given a later one.
    """
    old, new = (_flat(config.to_dict()) for config in (stored, asked))
    free = ("stores.", "threads", "length.steps") if _only_longer(stored, asked) else ("stores.", "threads")
    for name in old:
        if old[name] != new.get(name) and not name.startswith(free):
            raise UsageError(
                f"--resume: {name} was {_shown(old[name])} and is now {_shown(new.get(name))}; "
                "leave the option out to go on with the run as it was, or start a new one with another --out"
            )
    if sorted(stored.stores.values()) != sorted(asked.stores.values()):
        raise UsageError(
            f"--resume: the data in {', '.join(asked.stores)} are not those the run began with; start a new run"
        )


def _only_longer(stored: RunConfig, asked: RunConfig) -> bool:
    """Whether the run would merely take more steps, at a step size that stays as it is."""
    before, after = stored.length.steps or 0, asked.length.steps or 0
    return stored.preset.training.schedule == "constant" and 0 < before < after


def _parse(change: str, text: str, kind: Any) -> Any:
    """Turn text into the type of a setting."""
    try:
        if get_origin(kind) is UnionType:  # only field_mm: two lengths, or None for the whole frame
            return None if text == "full" else _parse(change, text, get_args(kind)[0])
        if get_origin(kind) is Literal:
            return {str(choice): choice for choice in get_args(kind)}[text]
        if get_origin(kind) is tuple:
            item = get_args(kind)[0]
            return tuple(item(part) for part in text.replace("x", ",").split(","))
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        return kind(text)
    except (KeyError, ValueError):
        wanted = " or ".join(map(str, get_args(kind))) if get_origin(kind) is Literal else _kind_name(kind)
        raise UsageError(f"--set {change}: must be {wanted}") from None


def _settings(section: Any) -> list[str]:
    """What can be changed by name; channels and classes are those of the data."""
    return [field.name for field in fields(section) if field.name not in FROM_DATA]


def _kind_name(kind: Any) -> str:
    if get_origin(kind) is tuple:
        return "numbers such as 64x64 or 8,16,32"
    return {bool: "true or false", int: "a whole number", float: "a number"}.get(kind, "text")


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat.update(_flat(value, f"{prefix}{name}."))
        else:
            flat[f"{prefix}{name}"] = list(value) if isinstance(value, tuple) else value
    return flat


def _shown(value: Any) -> str:
    return f"{len(value)} entries" if isinstance(value, list) and len(value) > 6 else repr(value)
