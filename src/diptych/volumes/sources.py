"""Patients of several folders: the same files count once, and two patients of one key are refused.

Knows `layout.py`; opens nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from diptych.errors import LayoutError
from diptych.volumes.layout import PatientFiles, find_patients, one_line


def find_sources(sources: Iterable[Path | str]) -> list[PatientFiles]:
    """All patients of several folders, in the order of their keys.

    Raises:
        LayoutError: a folder holds no patient, or two of them claim one key.
    """
    found: dict[str, PatientFiles] = {}
    for source in sources:
        for files in find_patients(source):
            first = found.setdefault(files.patient_key, files)
            if _places(first) != _places(files):
                there = next(iter(first.channels.values())).parent
                raise LayoutError(
                    f"{one_line(source)}: patient {files.patient_key} is also in {one_line(there)}; give one of them"
                )
    return [found[key] for key in sorted(found)]


def _places(files: PatientFiles) -> set[Path]:
    return {path.resolve() for path in files.channels.values()}
