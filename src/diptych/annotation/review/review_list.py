"""Which patients an expert should look at first. Reads what labelling left behind; opens no image.

lesion     LABELS/predictions.json, written by 'diptych annotate lesions predict': the ensemble's disagreement
anatomy    KEY-anatomy.json, written by 'diptych annotate anatomy': verdict, then similarity after registration
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from diptych.annotation.label_record import read_record
from diptych.errors import InputError
from diptych.volumes.layout import one_line

Kind = Literal["lesion", "anatomy"]
KINDS: tuple[Kind, ...] = ("lesion", "anatomy")
SUFFIX = {"lesion": "seg", "anatomy": "anatomy"}
"""How the label files of a kind are named: KEY-seg.nii.gz."""
PREDICTIONS = "predictions.json"
VERDICTS = {"failed": 2.0, "check": 1.0, "good": 0.0}


@dataclass(frozen=True)
class Doubt:
    """One patient's labels and how uncertain they are."""

    patient_key: str
    kind: Kind
    doubt: float
    """Larger is less certain: disagreement of the ensemble; for anatomy 1 − similarity, +1 to check, +2 failed."""
    reason: str
    labels: Path
    """The label file; it is not there when labelling failed."""


def list_patients(folder: Path, kind: Kind) -> list[Doubt]:
    """Patients with labels of `kind` under `folder`, least certain first, then by key."""
    if not folder.is_dir():
        raise InputError(f"{one_line(folder)}: not a folder; give the folder that holds the labels")
    found = _lesions(folder) if kind == "lesion" else _anatomies(folder)
    return sorted(found, key=lambda doubt: (-doubt.doubt, doubt.patient_key))


def _lesions(folder: Path) -> list[Doubt]:
    path = folder / PREDICTIONS
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        doubts = {key: float(entry["disagreement"]) for key, entry in _patients(found).items()}
    except OSError as error:
        raise InputError(
            f"{one_line(path)}: cannot be read ({error.strerror}); give the folder that "
            "'diptych annotate lesions predict' wrote, or --kind anatomy"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(
            f"{one_line(path)}: is no list of predictions; label the lesions again with 'diptych annotate lesions'"
        ) from None
    return [
        Doubt(key, "lesion", doubt if math.isfinite(doubt) else math.inf, f"disagreement {doubt:.3f}", labels)
        for key, doubt in doubts.items()
        if (labels := _label_file(folder, key, "lesion")) is not None
    ]


def _patients(found: Any) -> dict[str, Any]:
    """Entries that describe a patient; the file may hold other facts beside them."""
    return {key: entry for key, entry in found.items() if isinstance(entry, dict) and "disagreement" in entry}


def _label_file(folder: Path, key: str, kind: Kind) -> Path | None:
    """`folder/KEY/KEY-seg.nii.gz` or `folder/KEY-seg.nii.gz`; keys from a file never lead out of the folder."""
    if Path(key).name != key or key.startswith("."):
        return None
    name = f"{key}-{SUFFIX[kind]}.nii.gz"
    places = (folder / key / name, folder / name)
    return next((path for path in places if path.is_file()), None)


def _anatomies(folder: Path) -> list[Doubt]:
    doubts = []
    for path in sorted(folder.rglob("*-anatomy.json")):
        record = read_record(path)
        if record is None:
            continue
        labels = path.with_name(f"{record.patient_key}-anatomy.nii.gz")
        if record.quality is None:
            doubts.append(Doubt(record.patient_key, "anatomy", 0.0, f"taken from {record.origin}", labels))
            continue
        verdict, similarity = record.quality["verdict"], float(record.quality["similarity"])
        reason = " ".join(record.quality["remarks"]) or f"similarity {similarity:.2f}"
        doubt = VERDICTS[verdict] + 1.0 - similarity
        doubts.append(Doubt(record.patient_key, "anatomy", doubt, f"{verdict}: {reason}", labels))
    if not doubts:
        raise InputError(f"{one_line(folder)}: holds no KEY-anatomy.json; run 'diptych annotate anatomy' first")
    return doubts
