"""What patients have, as the command line says it: `--classes`, `--lesion-code`, `--disease`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from diptych.description import GLIOMA, Description, classes_named
from diptych.errors import UsageError


def described(
    *,
    disease: str | None = None,
    classes: str | None = None,
    codes: Sequence[str] | None = None,
    channels: Sequence[str] | None = None,
    base: Description = GLIOMA,
) -> Description:
    """`base` with what the user says; other classes than a glioma's are those of a lesion, unless it has a name.

    >>> described(classes="core,PEN=penumbra", codes=["255=1"]).lesion_names
    {1: 'core', 2: 'PEN'}
    """
    named = base
    if classes is not None:
        lesion = classes_named([part for part in classes.split(",") if part.strip()])
        named = replace(named, lesion=lesion, codes=(), disease="lesion")
    if channels:
        named = replace(named, channels=tuple(channels))
    if disease is not None:
        named = replace(named, disease=disease)
    if codes:
        named = replace(named, codes=tuple(sorted(_code(text) for text in codes)))
    return named


def _code(text: str) -> tuple[int, int]:
    value, sign, label = text.partition("=")
    if not sign or not value.strip().isdecimal() or not label.strip().isdecimal():
        raise UsageError(f"--lesion-code {text}: must be VALUE=CLASS, such as 255=1")
    return int(value), int(label)
