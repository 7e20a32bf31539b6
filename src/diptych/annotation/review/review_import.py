"""Edited labels go back to where they came from, after checks, and leave a line in the log of edits.

    LABELS/edits.jsonl                      one JSON object per edit: who, when, what changed; only ever appended to
    LABELS/KEY/.history/KEY-seg.<sha>.nii.gz    the labels before each edit

Checks: same grid as the stored labels (shape and affine), whole numbers, only labels of the kind, both halves of the
cerebrum in anatomy labels, and stored labels unchanged since the export. The line in the log comes before the labels
are replaced: after a crash an edit may stand in the log twice, never not at all.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.annotation.registration import Placed, read_placed
from diptych.annotation.review.review_export import Entry, Manifest, read_manifest, write_manifest
from diptych.annotation.review.review_list import SUFFIX, Kind
from diptych.errors import DiptychError, InputError, LabelError, UsageError
from diptych.files import append_line, file_sha256
from diptych.volumes import write_nifti
from diptych.volumes.geometry import check_same_place
from diptych.volumes.layout import one_line
from diptych.volumes.nifti import read_grid

EDITS = "edits.jsonl"


@dataclass(frozen=True)
class ReviewReport:
    """What came back."""

    changed: dict[str, int]
    """Patient to number of voxels that got another label."""
    unchanged: tuple[str, ...]
    failed: dict[str, str]
    log: Path


def import_review(review: Path, *, who: str, note: str = "") -> ReviewReport:
    """Take the edited labels of an export back; a bad one is refused and does not stop the others."""
    if not who.strip():
        raise UsageError("--by is empty: every edit carries the name of who made it")
    manifest = read_manifest(review)
    folder = Path(manifest.labels)
    if not folder.is_dir():
        raise InputError(f"{one_line(folder)}: the labels were exported from here, but it is no folder any more")
    changed: dict[str, int] = {}
    unchanged, failed = [], {}
    for key, entry in manifest.patients.items():
        try:
            edited = _edited_file(review, key, manifest.kind)
            if file_sha256(edited) == entry.exported_sha256:
                unchanged.append(key)
                continue
            stored = _stored_file(folder, key, entry)
            changed[key] = _take_back(edited, stored, folder, manifest, key=key, who=who, note=note)
            done = replace(entry, stored_sha256=file_sha256(stored), exported_sha256=file_sha256(edited))
            manifest = replace(manifest, patients={**manifest.patients, key: done})
            write_manifest(review, manifest)
        except DiptychError as error:
            failed[key] = str(error)
        except OSError as error:
            failed[key] = f"{key}: {error.strerror or error}"
    return ReviewReport(changed, tuple(unchanged), failed, folder / EDITS)


def _edited_file(review: Path, key: str, kind: Kind) -> Path:
    """The edited labels; some editors save without compression."""
    places = [review / key / f"{key}-{SUFFIX[kind]}{ending}" for ending in (".nii.gz", ".nii")]
    found = [path for path in places if path.is_file()]
    if len(found) != 1:
        state = "is not there" if not found else f"is there twice, also as {found[1].name}"
        raise InputError(f"{one_line(places[0])}: {state}; save the edited labels under this one name")
    return found[0]


def _stored_file(folder: Path, key: str, entry: Entry) -> Path:
    stored = folder / entry.stored
    if folder.resolve() not in stored.resolve().parents or not stored.is_file():
        raise InputError(f"{one_line(stored)}: the labels of {key} are no longer there; label and export again")
    if file_sha256(stored) != entry.stored_sha256:
        raise InputError(
            f"{one_line(stored)}: has changed since it was exported; export {key} again and repeat the edit"
        )
    return stored


def _take_back(edited: Path, stored: Path, folder: Path, about: Manifest, *, key: str, who: str, note: str) -> int:
    """Check, log and replace; returns how many voxels changed."""
    before, after = read_placed(stored), read_placed(edited)
    check_same_place(stored, before.affine, before.array.shape, edited, after.affine, after.array.shape)
    labels = _check_labels(edited, after, about)
    moved = int(np.count_nonzero(labels != before.array))
    line = _line(before, labels, about, key=key, who=who, note=note, stored=stored, edited=edited)
    append_line(folder / EDITS, json.dumps(line, ensure_ascii=False))
    if moved:
        _keep(stored)
        grid = read_grid(stored)  # an edit never changes the order of the voxels
        write_nifti(stored, grid.from_canonical(labels), grid.affine)
    return moved


def _check_labels(path: Path, image: Placed, about: Manifest) -> NDArray[np.uint8]:
    kind, highest = about.kind, len(about.classes)
    present = np.unique(image.array).tolist()
    if unknown := [value for value in present if not (0 <= value <= highest and value == int(value))]:
        shown = ", ".join(f"{value:g}" for value in unknown[:8])
        raise LabelError(
            f"{one_line(path)}: holds values {shown}; {kind} labels are 0 to {highest}: "
            "load the colour table of the export and paint with its labels"
        )
    if kind == "anatomy" and not {1.0, 2.0} <= set(present):
        raise LabelError(f"{one_line(path)}: one or both halves of the cerebrum are missing; undo and edit again")
    return image.array.astype(np.uint8)


def _line(
    before: Placed,
    labels: NDArray[np.uint8],
    about: Manifest,
    *,
    key: str,
    who: str,
    note: str,
    stored: Path,
    edited: Path,
) -> dict[str, Any]:
    old = before.array.astype(np.uint8)
    moved = old != labels
    pairs, counts = np.unique(old[moved].astype(np.int32) * 256 + labels[moved], return_counts=True)
    names = {0: "background", **{one.value: one.abbreviation for one in about.classes}}
    voxel_ml = abs(float(np.linalg.det(before.affine[:3, :3]))) / 1000.0
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "who": who.strip(),
        "patient": key,
        "kind": about.kind,
        "changed_voxels": int(np.count_nonzero(moved)),
        "changes": {
            f"{names[pair // 256]} -> {names[pair % 256]}": count
            for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True)
        },
        "ml_before": _volumes(old, about, voxel_ml),
        "ml_after": _volumes(labels, about, voxel_ml),
        "sha256_before": file_sha256(stored),
        "sha256_edited": file_sha256(edited),
        "note": note,
    }


def _volumes(labels: NDArray[np.uint8], about: Manifest, voxel_ml: float) -> dict[str, float]:
    counts = np.bincount(labels.reshape(-1), minlength=256)
    return {one.abbreviation: round(float(counts[one.value]) * voxel_ml, 3) for one in about.classes}


def _keep(stored: Path) -> None:
    """Copy the labels as they are into `.history`, which no reader of patients enters."""
    history = stored.parent / ".history"
    history.mkdir(exist_ok=True)
    name = stored.name.removesuffix(".gz").removesuffix(".nii")
    ending = stored.name[len(name) :]
    shutil.copyfile(stored, history / f"{name}.{file_sha256(stored)[:12]}{ending}")
