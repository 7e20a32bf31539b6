"""How far anatomy labels of one patient can be believed, told from the registration and from the labels themselves.

Three verdicts: `good`; `check`, when a figure is unusual and a person should look; `failed`, when the labels cannot be
right and must not be used. Knows arrays, not files.

The limits come from the labels of 100 patients of BraTS 2023 (whole range, widened by about a quarter).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from diptych.annotation.registration import Registered
from diptych.volumes import ANATOMY_LABELS

Verdict = Literal["good", "check", "failed"]

PLAUSIBLE_ML = {"cerebrum": (230.0, 800.0), "cerebellum": (25.0, 100.0), "lateral ventricle": (3.0, 40.0)}
"""Volume of one side."""
BALANCE = {"cerebrum": 0.10, "cerebellum": 0.12, "lateral ventricle": 0.25}
"""Largest difference between the sides, as a share of their sum."""
OUTLINE = (0.80, 0.90)
SIMILARITY = (0.05, 0.15)
"""Below the first the registration failed, below the second it is to be checked."""
BINS = 32


@dataclass(frozen=True)
class Quality:
    """Figures about one patient's anatomy labels."""

    verdict: Verdict
    similarity: float
    """Share of the variance of the patient's T1 that the registered template explains, 0 to 1; lesion left out."""
    outline: float
    """Dice between the patient's brain and the registered template's."""
    volumes_ml: dict[str, float]
    """Label name to millilitres."""
    imbalance: dict[str, float]
    """Structure to (left − right) / (left + right)."""
    remarks: tuple[str, ...]
    """What is unusual, one plain sentence each."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def judge(registered: Registered, labels: NDArray[np.uint8], voxel_ml: float) -> Quality:
    """Measure and judge; `labels` are the final ones on the patient's grid."""
    signal = registered.images[0].array
    similarity = _explained(signal[registered.compared], registered.brain[registered.compared])
    outline = _dice(signal > 0, registered.brain > 0)
    counts = np.bincount(labels.reshape(-1), minlength=len(ANATOMY_LABELS))
    volumes = {name: float(counts[value] * voxel_ml) for value, name in ANATOMY_LABELS.items() if value}
    imbalance = {name: _imbalance(volumes[f"left {name}"], volumes[f"right {name}"]) for name in PLAUSIBLE_ML}
    remarks, failed = _look(similarity, outline, volumes, imbalance)
    return Quality(
        verdict="failed" if failed else "check" if remarks else "good",
        similarity=round(similarity, 4),
        outline=round(outline, 4),
        volumes_ml={name: round(volume, 2) for name, volume in volumes.items()},
        imbalance={name: round(value, 3) for name, value in imbalance.items()},
        remarks=tuple(remarks),
    )


def _look(
    similarity: float, outline: float, volumes: dict[str, float], imbalance: dict[str, float]
) -> tuple[list[str], bool]:
    """Remarks, and whether one of them means that the labels are wrong."""
    remarks = []
    empty = [name for name, volume in volumes.items() if volume == 0]
    if empty:
        remarks.append(f"No voxel is {', '.join(empty)}.")
    for name, value, (worst, usual) in (("similarity", similarity, SIMILARITY), ("outline", outline, OUTLINE)):
        if value < usual:
            remarks.append(f"The {name} after registration is {value:.2f}; it should be above {usual:g}.")
        empty += [name] if value < worst else []
    for name, volume in volumes.items():
        low, high = PLAUSIBLE_ML[name.split(" ", 1)[1]]
        if volume and not low <= volume <= high:
            remarks.append(f"The {name} has {volume:.1f} ml; {low:g} to {high:g} are usual.")
    for name, value in imbalance.items():
        if abs(value) > BALANCE[name]:
            larger = "left" if value > 0 else "right"
            remarks.append(f"The {larger} {name} is much larger than the other ({abs(value):.0%} of both).")
    return remarks, bool(empty)


def _explained(signal: NDArray[np.float32], model: NDArray[np.float32]) -> float:
    """The correlation ratio: variance between bins of the model's signal over all variance."""
    if signal.size < BINS or not (total := float(signal.var(dtype=np.float64))):
        return 0.0
    edges = np.quantile(model, np.linspace(0, 1, BINS + 1)[1:-1])
    place = np.searchsorted(edges, model)
    counts = np.bincount(place, minlength=BINS)
    means = np.bincount(place, weights=signal, minlength=BINS) / np.maximum(counts, 1)
    between = float((counts * (means - signal.mean(dtype=np.float64)) ** 2).sum()) / signal.size
    return between / total


def _dice(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> float:
    both = int(np.count_nonzero(first)) + int(np.count_nonzero(second))
    return 2.0 * int(np.count_nonzero(first & second)) / max(both, 1)


def _imbalance(left: float, right: float) -> float:
    return (left - right) / (left + right) if left + right else 0.0
