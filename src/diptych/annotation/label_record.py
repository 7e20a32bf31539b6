"""`KEY-anatomy.json`: how the labels of one patient came about, how good they are, and what they were made from.

Knows the file, not how labels are made.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.annotation.places import Place, write_output
from diptych.errors import InputError
from diptych.files import file_sha256, replacing
from diptych.volumes import write_nifti
from diptych.volumes.layout import one_line
from diptych.volumes.nifti import read_grid

FORMAT = "diptych-anatomy-1"
NOTE = "Research use only, not a medical device"


@dataclass(frozen=True)
class AnatomyRecord:
    """What is known about one patient's anatomy labels."""

    patient_key: str
    origin: str
    """`registration`, or the file that the labels were taken from."""
    inputs: dict[str, str]
    """Part to SHA-256 of the file it was read from."""
    settings: dict[str, Any]
    labels_sha256: str | None
    """Of the file of labels as it was written; None when the labels were not good enough to be written."""
    quality: dict[str, Any] | None
    """`Quality` as JSON; None for labels from elsewhere."""


def write_labels(place: Place, labels: NDArray[np.uint8], record: AnatomyRecord) -> None:
    """Write a record that carries the labels' checksum, then move the labels into place.

    `labels` are on canonical axes; the file gets the voxel order of the patient's T1, so that tools which look at
    voxels alone show the two in one place.
    """
    channels = place.files.channels
    grid = read_grid(channels.get("t1") or next(iter(channels.values())))
    try:
        with replacing(place.labels) as part:
            write_nifti(part, grid.from_canonical(labels), grid.affine)
            place.labels.unlink(missing_ok=True)  # never old labels beside a record that speaks of the new ones
            write_record(place.record, replace(record, labels_sha256=file_sha256(part)))
    except OSError as error:
        raise InputError(f"{one_line(place.labels)}: cannot be written ({error.strerror})") from None


def write_record(path: Path, record: AnatomyRecord) -> None:
    """Write a record, whole or not at all."""
    text = json.dumps({"format": FORMAT, **asdict(record), "note": NOTE}, indent=1, ensure_ascii=False)
    write_output(path, (text + "\n").encode())


def read_record(path: Path) -> AnatomyRecord | None:
    """The record, or None when there is none that this version wrote."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found.pop("format") != FORMAT:
            return None
        found.pop("note")
        return AnatomyRecord(**found)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
