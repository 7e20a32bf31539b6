"""Where the labels of each patient go: beside its images, or in a folder of its own under another one.

Knows names and files, not images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from diptych.errors import InputError
from diptych.files import write_bytes
from diptych.volumes import PatientFiles
from diptych.volumes.layout import one_line
from diptych.volumes.sources import find_sources


@dataclass(frozen=True)
class Place:
    """One patient and the folder its anatomy labels belong into."""

    files: PatientFiles
    folder: Path
    labels: Path

    @property
    def sheet(self) -> Path:
        return self.folder / f"{self.files.patient_key}-anatomy.png"

    @property
    def record(self) -> Path:
        return self.folder / f"{self.files.patient_key}-anatomy.json"


def find_places(sources: Sequence[Path | str], out: Path | str | None = None) -> list[Place]:
    """Patients of all sources, each once, in the order of their keys; `out` takes the labels instead of the sources.

    Raises:
        LayoutError: a source holds no patient, or two of them claim one key.
    """
    return [_place(files, None if out is None else Path(out)) for files in find_sources(sources)]


def _place(files: PatientFiles, out: Path | None) -> Place:
    beside = next(iter(files.channels.values())).parent
    folder = beside if out is None else out / files.patient_key
    own = folder / f"{files.patient_key}-anatomy.nii.gz"
    return Place(files, folder, files.anatomy if out is None and files.anatomy is not None else own)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, or say why that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{one_line(folder)}: cannot be made ({error.strerror}); give a folder that can be written as --out"
        ) from None


def write_output(path: Path, data: bytes) -> None:
    """Write a file that appears whole or not at all, or say why that cannot be."""
    try:
        write_bytes(path, data)
    except OSError as error:
        raise InputError(f"{one_line(path)}: cannot be written ({error.strerror}); choose another place") from None
