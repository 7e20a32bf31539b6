"""Clinical intake: from what a scanner gives to what the network reads, and back.

`diptych.intake(source, out)` takes one patient in; the names below are loaded when first used.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diptych.intake.intake_record import IntakeRecord, read_record
    from diptych.intake.many_patients import intake_sources
    from diptych.intake.pipeline import intake_patient
    from diptych.intake.way_back import file_back, image_back, labels_back

__all__ = [
    "IntakeRecord",
    "file_back",
    "image_back",
    "intake_patient",
    "intake_sources",
    "labels_back",
    "read_record",
]

_HOME = {
    "IntakeRecord": "intake_record",
    "file_back": "way_back",
    "image_back": "way_back",
    "intake_patient": "pipeline",
    "intake_sources": "many_patients",
    "labels_back": "way_back",
    "read_record": "intake_record",
}


class _Callable(ModuleType):
    """The package is also its main verb, so that a notebook can write `diptych.intake(source, out)`."""

    def __call__(
        self,
        source: Path | str,
        out: Path | str,
        *,
        overrides: Mapping[str, str] | None = None,
        patient_key: str | None = None,
    ) -> IntakeRecord:
        """Take in one patient; see `diptych.intake.intake_patient`."""
        from diptych.intake.pipeline import intake_patient

        return intake_patient(source, out, overrides=overrides, patient_key=patient_key)


sys.modules[__name__].__class__ = _Callable


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'diptych.intake' has no attribute {name!r}")
    return getattr(import_module(f"diptych.intake.{_HOME[name]}"), name)
