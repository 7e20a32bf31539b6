"""Diptych reads a medical image as two panels, anatomy and disease, and searches an archive by either.

The public names below are loaded when first used, so that importing `diptych` costs nothing.
Research use only, not a medical device.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diptych.config import get_preset
    from diptych.errors import DiptychError
    from diptych.model import Decomposition, load_model
    from diptych.notebook import decompose, index
    from diptych.phantom import make_phantom
    from diptych.retrieval import Archive, Question
    from diptych.slices import SliceStore
    from diptych.volumes import Volume, find_patients, read_patient

__all__ = [
    "Archive",
    "Decomposition",
    "DiptychError",
    "Question",
    "SliceStore",
    "Volume",
    "decompose",
    "find_patients",
    "get_preset",
    "index",
    "intake",
    "load_model",
    "make_phantom",
    "read_patient",
]

_HOME = {
    "Archive": "diptych.retrieval",
    "Decomposition": "diptych.model",
    "DiptychError": "diptych.errors",
    "Question": "diptych.retrieval",
    "SliceStore": "diptych.slices",
    "Volume": "diptych.volumes",
    "decompose": "diptych.notebook",
    "find_patients": "diptych.volumes",
    "get_preset": "diptych.config",
    "index": "diptych.notebook",
    "load_model": "diptych.model",
    "make_phantom": "diptych.phantom",
    "read_patient": "diptych.volumes",
}


def __getattr__(name: str) -> Any:
    if name == "intake":  # a package that can be called: diptych.intake(source, out)
        return import_module("diptych.intake")
    if name not in _HOME:
        raise AttributeError(f"module 'diptych' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
