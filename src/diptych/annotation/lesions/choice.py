"""Which patients of a folder are meant: all, or those on a list. Knows keys, opens no image."""

from __future__ import annotations

from pathlib import Path

from diptych.errors import UsageError
from diptych.slices.splits import read_keys
from diptych.volumes import PatientFiles, find_patients

__all__ = ["chosen_patients"]


def chosen_patients(source: Path, keys: Path | None = None) -> list[PatientFiles]:
    """Patients found in `source`, in the order of their keys; with a list, those on it and no others."""
    patients = find_patients(source)
    if keys is None:
        return patients
    wanted, found = set(read_keys(keys)), {files.patient_key for files in patients}
    if missing := sorted(wanted - found):
        raise UsageError(f"{keys}: patient {missing[0]} is not in {source}; correct the list or the folder")
    return [files for files in patients if files.patient_key in wanted]
