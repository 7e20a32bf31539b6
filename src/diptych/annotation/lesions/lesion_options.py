"""From what the user asked for to everything that decides what a cross-validation computes.

`LesionOptions` is the request, with None for what was not said; `LesionRun` is the answer, complete, and kept in
RUN/config.json. A resumed run takes from there what the user does not repeat, and refuses what contradicts it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from diptych.annotation.lesions.lesion_network import LesionPreset
from diptych.description import Description
from diptych.errors import DiptychError, InputError, UsageError
from diptych.runs.run_length import Length

CASES = "cases"
"""Folder of the prepared patients inside a run."""


@dataclass(frozen=True)
class LesionOptions:
    """What the user asked for; None is "not said"."""

    out: Path
    """Folder of the run."""
    source: Path | None = None
    """Folder of the labelled patients."""
    keys: Path | None = None
    """Text file of the patients to use; all that are found if not said."""
    preset: str | None = None
    """Name of the preset; 2mm-cpu if not said."""
    length: Length | None = None
    """How long to train: minutes for all folds together, epochs or steps for each; the preset's epochs if not said."""
    folds: int | None = None
    """Number of models, each holding out its own patients; 5 if not said."""
    seed: int | None = None
    """Start of every random draw."""
    description: Description | None = None
    """Channels and classes by name; those of gliomas if not said."""
    resume: bool = False
    """Whether to continue the run that is in `out`, if there is one."""
    threads: int | None = None
    """CPU threads; all cores if not said."""


@dataclass(frozen=True)
class LesionRun:
    """Everything that decides what a run computes."""

    preset: LesionPreset
    length: Length
    """For each fold."""
    folds: tuple[tuple[str, ...], ...]
    """Patients that each model holds out."""
    voxels: dict[str, str]
    """Patient key to the hash of the voxels."""
    source: str
    threads: int
    failed: dict[str, str]
    """Patients that cannot be trained on, with the reason."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values that survive JSON; `from_dict` reads them back."""
        return {**asdict(self), "preset": self.preset.to_dict()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> LesionRun:
        """Read what `to_dict` wrote."""
        return cls(
            preset=LesionPreset.from_dict(values["preset"]),
            length=Length(**values["length"]),
            folds=tuple(tuple(keys) for keys in values["folds"]),
            voxels=dict(values["voxels"]),
            source=values["source"],
            threads=values["threads"],
            failed=dict(values["failed"]),
        )


def stored_run(options: LesionOptions) -> LesionRun | None:
    """The run to resume, or None for a new one; refuses a folder that is neither."""
    out = options.out
    entries = {path.name for path in out.iterdir()} - {".lock", CASES} if out.is_dir() else set()
    if not options.resume:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise UsageError(f"{out}: is there already; add --resume to go on with it, or give another --out")
        return None
    if "config.json" not in entries:
        if entries:
            raise UsageError(f"{out}: holds other things than a run; give another --out")
        return None
    path = out / "config.json"
    try:
        return LesionRun.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, DiptychError) as error:
        raise InputError(f"{path}: not a run of this Diptych ({error!r}); start again with another --out") from error


def require_same(stored: LesionRun, options: LesionOptions) -> None:
    """Refuse to resume a run with other settings, naming the one that differs."""
    asked = {
        "--preset": (stored.preset.name, options.preset),
        "--folds": (len(stored.folds), options.folds),
        "--seed": (stored.preset.seed, options.seed),
        "--classes, --channel": (stored.preset.about, options.description),
        "length": (stored.length, per_fold(options.length, len(stored.folds))),
    }
    for name, (old, new) in asked.items():
        if new is not None and new != old:
            raise UsageError(
                f"--resume: {name} was {old} and is now {new}; leave it out to go on as before, or give another --out"
            )


def per_fold(length: Length | None, folds: int) -> Length | None:
    """Minutes are shared by all folds; steps and epochs are each fold's own."""
    if length is None or length.minutes is None:
        return length
    return Length(minutes=length.minutes / folds)
