"""Lesion labels for patients that have none: the mean of all models' probabilities, back on the patient's own grid.

`predict_lesions` is the whole story. One folder per patient appears under PRED, and one list of all:

    PRED/KEY/KEY-seg.nii.gz     classes as the ensemble names them, on the grid of the patient's files
    PRED/predictions.json       KEY: {"disagreement", "volumes_ml", "file", "model", …}

A patient whose images and model have not changed is left alone, so a stopped run is resumed by running it again.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.annotation.lesions.ensemble_folder import Ensemble, load_ensemble
from diptych.annotation.lesions.grid import brain_box, working_image
from diptych.annotation.lesions.lesion_cases import read_stripped
from diptych.annotation.lesions.lesion_network import best_device, mean_probabilities, probabilities
from diptych.description import GLIOMA, Description
from diptych.errors import DiptychError, InputError, VolumeError
from diptych.files import file_sha256, only_writer, write_json
from diptych.processes import cores
from diptych.progress import Progress, silent
from diptych.runs.run_length import repeatable
from diptych.volumes import PatientFiles, Volume, write_nifti
from diptych.volumes.nifti import read_grid

LIST = "predictions.json"


@dataclass(frozen=True, eq=False)
class LesionPrediction:
    """What an ensemble says about one patient."""

    labels: NDArray[np.uint8]
    """Lesion classes on the volume's canonical grid, `[X, Y, Z]`."""
    disagreement: float
    """How far the models are apart: 0 all draw the same, 1 nothing in common (see `overlap.py`)."""


@dataclass(frozen=True)
class PredictReport:
    """What a run did."""

    written: tuple[str, ...]
    unchanged: tuple[str, ...]
    """Patients that were there already, from the same images and model."""
    failed: dict[str, str]
    """Patients without a prediction, with the reason."""
    dice: dict[str, dict[str, float]]
    """Mean Dice over the patients that had labels of their own and were unknown to all models."""
    seconds: float


def predict_lesions(
    patients: Sequence[PatientFiles],
    model: Path,
    out: Path,
    *,
    threads: int | None = None,
    progress: Progress = silent,
) -> PredictReport:
    """Label every patient with the ensemble in `model`, a run or its model folder, into `out`.

    Raises:
        ModelError: `model` is no ensemble.
        InputError: `out` cannot be written or holds something else.
    """
    started = time.monotonic()
    ensemble = load_ensemble(model, device=best_device())
    _make_folder(out)
    written, unchanged, failed = [], [], {}
    with only_writer(out), repeatable(threads or cores()):
        entries = _read_list(out / LIST)
        for done, files in enumerate(patients, start=1):
            key = files.patient_key
            try:
                images = _hash_of(files)
                if _is_current(out, entries.get(key), images, ensemble):
                    unchanged.append(key)
                else:
                    entries[key] = _label(files, ensemble, out) | {"images": images}
                    write_json(out / LIST, dict(sorted(entries.items())))
                    written.append(key)
            except DiptychError as error:
                failed[key] = str(error)
            except (RuntimeError, MemoryError) as error:  # such as memory: one patient must not take the others along
                failed[key] = f"{key}: {(str(error).splitlines() or ['out of memory'])[0]}"
            progress(done, len(patients), key)
    fresh = [entries[key]["dice"] for key in (*written, *unchanged) if "dice" in entries[key]]
    return PredictReport(tuple(written), tuple(unchanged), failed, mean_dice(fresh), time.monotonic() - started)


def predict_volume(volume: Volume, ensemble: Ensemble) -> LesionPrediction:
    """Average the models' probabilities for one patient; labels outside the brain are background."""
    preset = ensemble.preset
    box = brain_box(volume, preset.spacing_mm)
    image = working_image(volume, box)
    maps = [probabilities(network, image, multiple=preset.multiple) for network in ensemble.networks]
    mean = mean_probabilities(maps)
    labels = box.to_source(mean).argmax(axis=0).astype(np.uint8)
    labels[~volume.brain] = 0
    return LesionPrediction(
        labels, disagreement([_strongest(one) for one in maps], _strongest(mean), list(preset.about.lesion_names))
    )


def _label(files: PatientFiles, ensemble: Ensemble, out: Path) -> dict[str, Any]:
    """Predict one patient and write the label map; returns the entry for the list."""
    about = ensemble.preset.about
    volume = read_stripped(files, about)
    prediction = predict_volume(volume, ensemble)
    grid = read_grid(next(iter(files.channels.values())))
    key = files.patient_key
    path = out / key / f"{key}-seg.nii.gz"
    _make_folder(path.parent)
    write_nifti(path, grid.from_canonical(prediction.labels), grid.affine)
    voxel_ml = abs(float(np.linalg.det(volume.affine[:3, :3]))) / 1000
    entry: dict[str, Any] = {
        "disagreement": round(prediction.disagreement, 4),
        "volumes_ml": {
            name: round(int((prediction.labels == label).sum()) * voxel_ml, 3)
            for label, name in about.lesion_names.items()
        },
        "classes": [asdict(one) for one in about.lesion],
        "file": f"{key}/{key}-seg.nii.gz",
        "model": ensemble.fingerprint,
        "models": len(ensemble.networks),
        "warnings": list(volume.warnings),
    }
    if any(key in held_out for held_out in ensemble.folds):
        entry["warnings"].append("All models but one were trained on this patient.")
    elif volume.lesion is not None:
        entry["dice"] = dice_by_region(prediction.labels, volume.lesion, lesion_regions(about))
    return entry


def _strongest(shares: NDArray[np.float32]) -> NDArray[np.uint8]:
    labels: NDArray[np.uint8] = shares.argmax(axis=0).astype(np.uint8)
    return labels


def _is_current(out: Path, entry: dict[str, Any] | None, images: str, ensemble: Ensemble) -> bool:
    if entry is None or (entry.get("images"), entry.get("model")) != (images, ensemble.fingerprint):
        return False
    return (out / str(entry.get("file"))).is_file()


def _hash_of(files: PatientFiles) -> str:
    """SHA-256 over the bytes of all channel files."""
    digest = hashlib.sha256()
    for path in files.channels.values():
        try:
            digest.update(bytes.fromhex(file_sha256(path)))
        except OSError as error:
            raise VolumeError(f"{path}: cannot be read ({error.strerror})") from None
    return digest.hexdigest()


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made ({error.strerror}); choose another --out") from None


def _read_list(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(entries, dict) or not all(isinstance(entry, dict) for entry in entries.values()):
            raise ValueError("not a list of predictions")
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({error}); delete it, or choose another --out") from None
    return entries


BRATS_REGIONS: dict[str, tuple[int, ...]] = {"ET": (3,), "ED": (2,), "TC": (1, 3), "NET": (1,), "WT": (1, 2, 3)}
"""Compartments as BraTS groups the labels: tumour core is everything but oedema, whole tumour is all three."""


def lesion_regions(about: Description) -> dict[str, tuple[int, ...]]:
    """What Dice is given for: the classes and the whole, for gliomas in the groups of BraTS."""
    return BRATS_REGIONS if about.lesion == GLIOMA.lesion else about.regions


def dice_by_region(
    predicted: NDArray[np.uint8],
    reference: NDArray[np.uint8],
    regions: Mapping[str, tuple[int, ...]] = BRATS_REGIONS,
) -> dict[str, float | None]:
    """Dice of each region; None where neither map has it.

    >>> dice_by_region(np.array([3, 3, 2], dtype=np.uint8), np.array([3, 0, 2], dtype=np.uint8))["ED"]
    1.0
    """
    figures: dict[str, float | None] = {}
    for name, labels in regions.items():
        ours, theirs = np.isin(predicted, labels), np.isin(reference, labels)
        size = int(ours.sum()) + int(theirs.sum())
        figures[name] = 2 * int((ours & theirs).sum()) / size if size else None
    return figures


def mean_dice(patients: Sequence[Mapping[str, float | None]]) -> dict[str, dict[str, float]]:
    """Means over patients by both conventions of the project: an absent compartment is left out, or counts as 0."""
    means: dict[str, dict[str, float]] = {}
    for name in dict.fromkeys(name for figures in patients for name in figures):
        known = [value for figures in patients if (value := figures[name]) is not None]
        if known:
            means[name] = {
                "dice": float(np.mean(known)),
                "dice_absent_as_0": float(np.sum(known) / len(patients)),
                "patients": len(known),
            }
    return means


def disagreement(
    maps: Sequence[NDArray[np.uint8]], agreed: NDArray[np.uint8], classes: Sequence[int] = (1, 2, 3)
) -> float:
    """How far each model's own labels are from the ensemble's: 1 minus Dice, mean over models and classes.

    0 says that all models draw the same lesion (or all draw none), 1 that they share nothing.
    """
    regions = {str(value): (value,) for value in classes}
    misses = [
        1 - dice for labels in maps for dice in dice_by_region(labels, agreed, regions).values() if dice is not None
    ]
    return float(np.mean(misses)) if misses else 0.0
