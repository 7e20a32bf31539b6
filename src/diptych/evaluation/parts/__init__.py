"""The parts of an evaluation, by name, in the order of the report. Each is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from diptych.errors import UsageError
from diptych.evaluation.part import Part

__all__ = ["NAMES", "find_parts", "load_part"]

NAMES: tuple[str, ...] = (
    "summary",
    "decomposition",
    "retrieval",
    "baselines",
    "cross_talk",
    "comparators",
    "patients",
    "worth",
    "archive_size",
    "reconstruction",
    "segmentation",
    "codebooks",
    "hashing",
    "timing",
    "twins",
    "inpainting",
    "robustness",
    "phantom_questions",
    "failures",
    "figures",
    "leakiness",
    "leakiness_paper",
)
"""One module of this package each; add a part by adding its name."""


def load_part(name: str) -> Part:
    """The part of that name."""
    part = import_module(f"{__name__}.{name}").PART
    assert isinstance(part, Part)
    assert part.name == name, f"parts/{name}.py calls itself {part.name}"
    return part


def find_parts(names: Sequence[str] | None = None) -> list[Part]:
    """The named parts in the order of the report; without names, all that run by default."""
    if names is None:
        return [part for part in map(load_part, NAMES) if part.by_default]
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise UsageError(f"part {unknown[0]!r}: there are {', '.join(NAMES)}")
    return [load_part(name) for name in NAMES if name in names]
