"""`Survey`: everything that can be counted on decomposed patients, patient by patient.

Reconstruction, segmentation, use of the codebooks and healthy twins are all read off it.
Conventions, which every table repeats:

- Errors are |x - x̂| in z-scores. `l1` is the paper's (section 4.4.1): summed over pixels and channels of a slice, then
  averaged over a patient's slices. `mean` is over brain pixels and channels, comparable between image sizes.
- x̂⁻ is compared outside the true lesion: both sides are multiplied by M⁻, as in the paper.
- PSNR is over brain pixels, with the full range of clipped z-scores as its peak; SSIM is over whole frames.

Knows decomposed patients; nothing about tables or plots.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from diptych.description import GLIOMA, Description
from diptych.evaluation.context import Context
from diptych.evaluation.evaluation_data import DecomposedPatient
from diptych.model.losses import ssim
from diptych.progress import Progress, silent
from diptych.search import load_arrays, save_arrays
from diptych.slices import DATA_RANGE, FILL

Figures = NDArray[np.float64]
Images = NDArray[np.float32]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Survey:
    """Figures of P patients; not a number where a patient has nothing to compare."""

    keys: tuple[str, ...]
    l1_reconstruction: Figures
    """Σ|x - x̂⁺| of a slice, mean over slices, `[P]`."""
    l1_twin: Figures
    """Σ|M⁻x - M⁻x̂⁻| of a slice, mean over slices, `[P]`."""
    mean_reconstruction: Figures
    """Mean |x - x̂⁺| in the brain, `[P]`."""
    mean_twin: Figures
    """Mean |x - x̂⁻| in the brain outside the lesion, `[P]`."""
    psnr_reconstruction: Figures
    psnr_twin: Figures
    ssim_reconstruction: Figures
    ssim_twin: Figures
    overlap: Figures
    """Pixels shared, predicted and true, per class of `classes`, `[P, S, 3]`."""
    lesion_ml: Figures
    """True lesion volume, `[P]`."""
    counts: NDArray[np.int64]
    """How often each code stands in a cell, normal codes first, `[2, K]`."""
    from_true_twin: Figures
    """Mean difference from the true healthy twin inside the lesion, of x, x̂⁺ and x̂⁻, `[P, 3]`."""
    from_true_twin_outside: Figures
    """The same in the brain outside the lesion, `[P, 3]`."""

    classes: tuple[str, ...] = tuple(GLIOMA.regions)
    """What Dice is taken of, by name."""

    @property
    def dice(self) -> dict[str, Figures]:
        """Volume-level Dice by class, `[P]`; not a number where a class is neither there nor predicted."""
        return {name: dice(self.overlap[:, place]) for place, name in enumerate(self.classes)}


def dice(overlap: Figures) -> Figures:
    """2|A∩B| / (|A| + |B|) from pixels shared, predicted and true, `[..., 3]`; nothing of nothing is not a number.

    >>> dice(np.array([[2.0, 4.0, 4.0], [0.0, 0.0, 0.0]])).tolist()
    [0.5, nan]
    """
    shared, predicted, true = np.moveaxis(overlap, -1, 0)
    both = predicted + true
    return np.where(both > 0, 2 * shared / np.maximum(both, 1), np.nan)


def survey(patients: Iterable[DecomposedPatient], *, codes: int, about: Description = GLIOMA) -> Survey:
    """Measure patients one after the other; `codes` is the size of the codebooks, `about` names the classes."""
    keys, rows, counts = [], [], np.zeros((2, codes), dtype=np.int64)
    for patient in patients:
        keys.append(patient.key)
        rows.append(_measure(patient, about))
        for panel, ids in enumerate((patient.normal_ids, patient.abnormal_ids)):
            counts[panel] += np.bincount(ids.reshape(-1), minlength=codes)
    named = {name: np.array([row[name] for row in rows], dtype=np.float64) for name in rows[0]}
    return Survey(keys=tuple(keys), counts=counts, classes=tuple(about.regions), **named)


def _measure(patient: DecomposedPatient, about: Description) -> dict[str, Any]:
    """The fields of `Survey` for one patient."""
    image = patient.images.astype(np.float32)
    brain = np.asarray((image > FILL).any(axis=1))
    lesion = patient.lesion > 0
    overlap = _overlaps(patient.lesion, patient.predicted_lesion, about)
    return {
        **_errors("reconstruction", image, patient.reconstruction, np.ones_like(brain), brain),
        **_errors("twin", image, patient.healthy_twin, ~lesion, brain),
        "overlap": overlap,
        "lesion_ml": np.count_nonzero(lesion) * _voxel_ml(patient),
        "from_true_twin": _from_true_twin(patient, brain & lesion),
        "from_true_twin_outside": _from_true_twin(patient, brain & ~lesion),
    }


def _errors(name: str, image: Images, painted: NDArray[np.float16], compared: Mask, brain: Mask) -> dict[str, float]:
    """Errors of one kind of reconstruction where it is `compared`, `[Z, H, W]`."""
    mask = compared[:, None].astype(np.float32)
    target, shown = image * mask, painted.astype(np.float32) * mask
    off = np.abs(target - shown)
    square = _mean(np.square(off), compared & brain)
    return {
        f"l1_{name}": float(off.sum(dtype=np.float64)) / len(image),
        f"mean_{name}": _mean(off, compared & brain),
        f"psnr_{name}": 10 * np.log10(DATA_RANGE**2 / max(square, 1e-12)),
        f"ssim_{name}": float(ssim(torch.from_numpy(shown), torch.from_numpy(target), data_range=DATA_RANGE)),
    }


def _overlaps(truth: NDArray[np.uint8], predicted: NDArray[np.uint8], about: Description) -> Figures:
    """Pixels shared, predicted and true of each class, `[S, 3]`."""
    pairs = [(np.isin(truth, labels), np.isin(predicted, labels)) for labels in about.regions.values()]
    return np.array([[np.count_nonzero(mask) for mask in (true & guess, guess, true)] for true, guess in pairs], float)


def _from_true_twin(patient: DecomposedPatient, mask: Mask) -> list[float]:
    """Mean difference of x, x̂⁺ and x̂⁻ from the phantom's true twin under a mask."""
    if patient.twin is None:
        return [np.nan] * 3
    twin = patient.twin.astype(np.float32)
    images = (patient.images, patient.reconstruction, patient.healthy_twin)
    return [_mean(np.abs(image.astype(np.float32) - twin), mask) for image in images]


def _mean(values: Images, mask: Mask) -> float:
    """Mean of `[Z, C, H, W]` over channels and over pixels where `[Z, H, W]` holds."""
    pixels = np.count_nonzero(mask)
    return float(values.sum(axis=1)[mask].sum(dtype=np.float64)) / (pixels * values.shape[1]) if pixels else np.nan


def _voxel_ml(patient: DecomposedPatient) -> float:
    """Volume of one pixel of a slice in millilitres."""
    return abs(float(np.linalg.det(np.array(patient.record.affine)[:3, :3]))) / 1000


CACHE_VERSION = 1


def surveyed(context: Context, progress: Progress = silent) -> Survey:
    """Everything that can be counted on the query patients."""
    about = context.network.description
    path, key = context.cache / "survey.arrays", f"survey {CACHE_VERSION} of {content_key(context)}"
    names = [field.name for field in fields(Survey) if field.name not in ("keys", "classes")]
    kept: dict[str, Any] | None = load_arrays(path, key=key)
    if kept is not None and kept.keys() == set(names):
        return Survey(keys=context.queries, classes=tuple(about.regions), **kept)
    found = survey(_decomposed(context, progress), codes=context.network.config.codebook_size, about=about)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        save_arrays(path, {name: getattr(found, name) for name in names}, key=key)
    return found


def content_key(context: Context, keys: Sequence[str] | None = None) -> str:
    """What the model makes of these patients (default: of the query patients) follows from this."""
    homes, chosen = context.homes, context.queries if keys is None else keys
    hashes = [(key, name, entry.sha256) for key in chosen for name, entry in homes[key].patients[key].files.items()]
    return sha256(repr([context.fingerprint, hashes]).encode()).hexdigest()


def _decomposed(context: Context, progress: Progress) -> Iterator[DecomposedPatient]:
    for done, key in enumerate(context.queries, start=1):
        yield context.decomposed(key)
        progress(done, len(context.queries), key)
