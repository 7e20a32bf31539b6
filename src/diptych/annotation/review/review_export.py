"""A folder for the expert: labels to edit, images to judge them by, colour tables, and a record for the way back.

OUT/KEY/KEY-seg.nii.gz        the labels to edit in place (KEY-anatomy.nii.gz for anatomy)
OUT/KEY/KEY-t1n.nii.gz …      the images, when given
OUT/labels-itksnap.txt        ITK-SNAP: Segmentation → Import Label Descriptions
OUT/labels-slicer.ctbl        3D Slicer: drop it into the window
OUT/review.json               where each label file came from, and its checksum
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from diptych.annotation.places import make_folder, write_output
from diptych.annotation.review.review_list import PREDICTIONS, SUFFIX, Doubt, Kind
from diptych.description import GLIOMA, LabelClass, class_of_json
from diptych.errors import InputError, UsageError
from diptych.files import file_sha256
from diptych.progress import Progress, silent
from diptych.volumes import find_patients
from diptych.volumes.layout import one_line

MANIFEST = "review.json"
FORMAT = "diptych-review-1"


@dataclass(frozen=True)
class Entry:
    """One exported label file."""

    stored: str
    """Where the labels live, relative to the folder of labels."""
    stored_sha256: str
    exported_sha256: str


@dataclass(frozen=True)
class Manifest:
    """What was exported for review."""

    kind: Kind
    labels: str
    """The folder of labels, absolute."""
    patients: dict[str, Entry]
    classes: tuple[LabelClass, ...]
    """What the labels stand for."""


def export_review(
    doubts: Sequence[Doubt],
    labels: Path,
    out: Path,
    *,
    images: Sequence[Path] = (),
    progress: Progress = silent,
) -> Manifest:
    """Copy the labels of `doubts`, which live under `labels`, into a new folder, with images where they are found."""
    chosen = [doubt for doubt in doubts if doubt.labels.is_file()]
    if not chosen:
        raise UsageError(f"{one_line(labels)}: none of the chosen patients has a label file to review")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{one_line(out)}: is not empty and may hold edits; choose a new folder for this review")
    channels = {files.patient_key: files.channels for source in images for files in find_patients(source)}
    make_folder(out)
    entries = {}
    try:
        for done, doubt in enumerate(chosen, start=1):
            entries[doubt.patient_key] = _export(doubt, labels, out)
            for path in channels.get(doubt.patient_key, {}).values():
                shutil.copyfile(path, out / doubt.patient_key / path.name)
            progress(done, len(chosen), doubt.patient_key)
    except OSError as error:
        raise InputError(f"{one_line(out)}: cannot be written ({error.strerror}); choose another folder") from None
    kind = chosen[0].kind
    classes = labelled_classes(labels, kind)
    write_output(out / "labels-itksnap.txt", itksnap_table(classes).encode())
    write_output(out / "labels-slicer.ctbl", slicer_table(kind, classes).encode())
    manifest = Manifest(kind, str(labels.resolve()), entries, classes)
    write_manifest(out, manifest)
    return manifest


def _export(doubt: Doubt, labels: Path, out: Path) -> Entry:
    target = out / doubt.patient_key / f"{doubt.patient_key}-{SUFFIX[doubt.kind]}.nii.gz"
    target.parent.mkdir()
    shutil.copyfile(doubt.labels, target)
    digest = file_sha256(target)
    return Entry(str(doubt.labels.relative_to(labels)), digest, digest)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write `review.json`, whole or not at all."""
    text = json.dumps({"format": FORMAT, **asdict(manifest)}, indent=1, ensure_ascii=False)
    write_output(folder / MANIFEST, (text + "\n").encode())


def read_manifest(folder: Path) -> Manifest:
    """Read `review.json` of an export."""
    path = folder / MANIFEST
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["format"] != FORMAT or found["kind"] not in SUFFIX:
            raise ValueError(found["format"])
        patients = {key: Entry(**entry) for key, entry in found["patients"].items()}
        classes = found.get("classes")  # exports of earlier releases have none: they are of gliomas
        named = tuple(map(class_of_json, classes)) if classes else USUAL[found["kind"]]
        return Manifest(found["kind"], found["labels"], patients, named)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise InputError(
            f"{one_line(path)}: is not there or damaged; give a folder that 'diptych annotate review export' wrote"
        ) from None


USUAL: dict[str, tuple[LabelClass, ...]] = {"lesion": GLIOMA.lesion, "anatomy": GLIOMA.anatomy}
"""Classes where nothing says otherwise."""


def itksnap_table(classes: Sequence[LabelClass]) -> str:
    """ITK-SNAP's label description file: Segmentation → Import Label Descriptions."""
    lines = [
        "################################################",
        "# ITK-SnAP Label Description File",
        "# IDX   -R-  -G-  -B-  -A--  VIS MSH  LABEL",
        "################################################",
        '    0     0    0    0        0  0  0    "Clear Label"',
    ]
    for one in classes:
        red, green, blue = one.colour
        lines.append(f'{one.value:5d} {red:5d}{green:5d}{blue:5d}        1  1  1    "{one.name}"')
    return "\n".join(lines) + "\n"


def slicer_table(kind: Kind, classes: Sequence[LabelClass]) -> str:
    """3D Slicer's colour table: drop the .ctbl file into Slicer, then choose it when loading the labels."""
    lines = ["# Color table file", f"# {kind} labels of Diptych", "0 background 0 0 0 0"]
    for one in classes:
        red, green, blue = one.colour
        lines.append(f"{one.value} {one.name.replace(' ', '_')} {red} {green} {blue} 255")
    return "\n".join(lines) + "\n"


def labelled_classes(labels: Path, kind: Kind) -> tuple[LabelClass, ...]:
    """What the labels in a folder stand for: as the ensemble that drew lesions named them."""
    if kind == "anatomy":
        return USUAL[kind]
    try:
        entries = json.loads((labels / PREDICTIONS).read_text(encoding="utf-8")).values()
        named = next((entry["classes"] for entry in entries if "classes" in entry), None)
        return tuple(map(class_of_json, named)) if named else USUAL[kind]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return USUAL[kind]
