"""One patient's files become one `Volume`: canonical axes, one grid, checked values, unified labels.

Knows how the parts fit together; each part has its own file (`layout`, `nifti`, `geometry`, `labels`, `rawhead`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.description import GLIOMA, Description
from diptych.errors import LabelError, MissingChannelError, UsageError, VolumeError
from diptych.volumes.geometry import check_same_place, to_canonical
from diptych.volumes.labels import check_anatomy, unify_lesion
from diptych.volumes.layout import PatientFiles, one_line, require_channels, require_described
from diptych.volumes.nifti import Limits, NiftiImage, read_nifti
from diptych.volumes.rawhead import raw_head_warning
from diptych.volumes.volume import CHANNELS, Volume

NEGATIVE_SHARE = 0.05
"""Negative signal, as a share of positive signal, above which intensities cannot be the scanner's own."""

SOME_BRAIN = 0.01
"""Share of a slice's frame that makes it worth looking at."""
MOSTLY_BLANK = 0.5
"""Of the brain that any channel shows in a slice, what each must show; 3 of 100 training patients do not."""


@dataclass(frozen=True, eq=False)
class _Placed:
    """An image turned to canonical axes."""

    image: NiftiImage
    stored: NDArray[Any]
    """Unscaled voxels, `[X, Y, Z]`, a view."""
    affine: NDArray[np.float64]
    warnings: tuple[str, ...]


def read_patient(
    files: PatientFiles,
    *,
    limits: Limits = Limits(),
    required: tuple[str, ...] = (),
    description: Description | None = None,
    lesion_codes: Mapping[int, int] | None = None,
) -> Volume:
    """Read all files of one patient.

    Args:
        files: From `find_patients` or `patient_from_files`.
        limits: How large one file may be.
        required: Channels that must be there; a missing one is a `MissingChannelError`.
        description: What the patient is read for: as many of its channels as it needs must be there and no others are
            opened, its classes and codes say what label files mean. Without one, all channels are read, and classes
            are those of gliomas.
        lesion_codes: What the lesion file's codes mean, for files of no BraTS release (see `labels.py`).

    Negative signal, which resampling leaves at edges, is set to zero and said in `Volume.warnings`; where it amounts
    to more than `NEGATIVE_SHARE` of the positive signal the image has been normalised already and is refused.
    """
    if not isinstance(files, PatientFiles):
        raise UsageError(
            f"read_patient({files!r}): takes what find_patients gives; read_patient(find_patients(FOLDER)[0])"
        )
    if description is not None:
        require_described(files, description)
        files = files.only(description.channels)
    require_channels(files, required or tuple(files.channels) or CHANNELS)
    about = description or GLIOMA
    warnings: list[str] = []
    first = _place(next(iter(files.channels.values())), None, limits)
    warnings += first.warnings
    array = _read_signals(files.channels, first, limits, warnings)
    twin = _read_signals(_complete_twin(files), first, limits, warnings) if files.twin else None
    lesion = anatomy = None
    if files.lesion is not None:
        codes = _read_codes(files.lesion, first, limits)
        lesion, said = unify_lesion(files.lesion, codes, files.channels.values(), about, lesion_codes)
        warnings += said
    if files.anatomy is not None:
        anatomy = _read_codes(files.anatomy, first, limits)
        check_anatomy(files.anatomy, anatomy)
    volume = Volume(
        patient_key=files.patient_key,
        channels=tuple(files.channels),
        array=array,
        affine=first.affine,
        lesion=lesion,
        anatomy=anatomy,
        twin=twin,
        sources=tuple(str(path) for path in _all_paths(files)),
        description=about,
    )
    if raw_head := raw_head_warning(array, volume.spacing):
        warnings.append(raw_head)
    warnings += blank_channels(volume)
    if description is not None and (without := description.without(files.channels)):
        warnings.append(without)
    return replace(volume, warnings=tuple(warnings))


def blank_channels(volume: Volume) -> list[str]:
    """A sentence for each channel that is blank in slices where others show brain: networks fill these anyhow."""
    there = volume.array > 0  # [C, X, Y, Z]
    brain = there.any(axis=0).sum(axis=(0, 1))
    counted = brain > SOME_BRAIN * volume.shape[0] * volume.shape[1]
    said = []
    for channel, shown in zip(volume.channels, there.sum(axis=(1, 2)), strict=True):
        if len(blank := np.flatnonzero(counted & (shown < MOSTLY_BLANK * brain))):
            said.append(
                f"{channel} is blank in slices {ranges(blank.tolist())}, where other channels show brain; "
                "what is predicted there means nothing."
            )
    return said


def ranges(numbers: Iterable[int]) -> str:
    """Numbers as runs.

    >>> ranges([0, 1, 2, 12])
    '0–2, 12'
    """
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in runs)


def voxel_hash(volume: Volume) -> str:
    """SHA-256 of a patient's signal: equal for the same voxels whatever the key, labels, file type or axis order.

    The hash covers channel names, shape and the canonical float32 signal; not the affine, so that a copy whose
    header was shifted is still found.
    """
    about = {"format": "diptych-voxels-1", "channels": volume.channels, "shape": volume.shape}
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for channel in volume.array:
        for plane in channel.transpose(2, 1, 0):  # [Y, X], the order the voxels lie in memory
            digest.update(np.ascontiguousarray(plane + np.float32(0), dtype="<f4").data)  # -0.0 becomes 0.0
    return digest.hexdigest()


def _complete_twin(files: PatientFiles) -> dict[str, Path]:
    """The healthy twin's files, in the order of the patient's own channels."""
    for channel, path in files.channels.items():
        if channel not in files.twin:
            raise MissingChannelError(
                f"{one_line(path)}: the healthy twin of patient {files.patient_key} has no {channel}; "
                "write the phantom again, or take the twin's files away"
            )
    return {channel: files.twin[channel] for channel in files.channels}


def _place(path: Path, first: _Placed | None, limits: Limits) -> _Placed:
    """Read a file and turn it; unless it is the first, it must lie on the first one's grid."""
    image = read_nifti(path, limits=limits)
    turn = to_canonical(path, image.affine, image.stored.shape)
    stored = turn.apply(image.stored)
    if first is not None:
        check_same_place(first.image.path, first.affine, first.stored.shape, path, turn.affine, stored.shape)
    return _Placed(image, stored, turn.affine, turn.warnings)


def _read_signals(
    channels: Mapping[str, Path], first: _Placed, limits: Limits, warnings: list[str]
) -> NDArray[np.float32]:
    """Read channels into one array `[C, X, Y, Z]` whose memory runs x fastest, so that an axial plane is one block."""
    X, Y, Z = first.stored.shape
    planes = np.empty((len(channels), Z, Y, X), dtype=np.float32)
    for signal, (name, path) in zip(planes, channels.items(), strict=True):
        placed = first if path == first.image.path else _place(path, first, limits)
        _fill_signal(signal, placed)
        _check_signal(signal, path, name, warnings)
    return planes.transpose(0, 3, 2, 1)  # [C, X, Y, Z]


def _fill_signal(signal: NDArray[np.float32], placed: _Placed) -> None:
    """Convert stored voxels to the signal they stand for, `[Z, Y, X]`; a plane at a time where they are scaled."""
    stored, image = placed.stored.T, placed.image
    with np.errstate(all="ignore"):  # overflow becomes infinite and is refused by the checks that follow
        if not image.scaled:
            np.copyto(signal, stored, casting="unsafe")
            return
        for plane, values in zip(signal, stored, strict=True):
            plane[...] = values.astype(np.float64) * image.slope + image.intercept


def _check_signal(signal: NDArray[np.float32], path: Path, name: str, warnings: list[str]) -> None:
    _check_finite(signal, path)
    low, high = signal.min(), signal.max()
    if high <= 0:
        raise VolumeError(f"{one_line(path)}: {name} has no voxel above zero; give the image, not an empty file")
    if low < 0:
        negative = float(-np.sum(signal, where=signal < 0, dtype=np.float64))
        positive = float(np.sum(signal, where=signal > 0, dtype=np.float64))
        if negative > NEGATIVE_SHARE * positive:
            raise VolumeError(
                f"{one_line(path)}: {name} holds much negative signal (down to {low:.3g}), as after z-scoring; "
                "give the intensities before any normalisation"
            )
        np.maximum(signal, 0, out=signal)
        warnings.append(f"Negative signal in {name} (down to {low:.3g}) is set to zero.")


def _check_finite(signal: NDArray[np.float32], path: Path) -> None:
    with np.errstate(all="ignore"):
        total = np.sum(signal, dtype=np.float64)
    if not np.isfinite(total):
        count = int(np.count_nonzero(~np.isfinite(signal)))
        raise VolumeError(f"{one_line(path)}: {count} voxels are NaN or infinite; replace them, for example by 0")


def _read_codes(path: Path, first: _Placed, limits: Limits) -> NDArray[np.uint8]:
    """Read a label map of any number type as codes 0 to 255, `[X, Y, Z]`."""
    placed = _place(path, first, limits)
    values = placed.stored.T  # [Z, Y, X]
    if placed.image.scaled or values.dtype.kind == "f":
        signal = np.empty(values.shape, dtype=np.float32)
        _fill_signal(signal, placed)
        _check_finite(signal, path)
        values = signal
    codes = np.empty(values.shape, dtype=np.uint8)
    if values.min() >= 0 and values.max() <= 255:
        np.copyto(codes, values, casting="unsafe")
        if values.dtype.kind != "f" or np.array_equal(codes, values):
            return codes.transpose(2, 1, 0)  # [X, Y, Z]
    wrong = [value for value in np.unique(values).tolist() if not (0 <= value <= 255 and value == int(value))]
    shown = ", ".join(f"{value:g}" for value in wrong[:8]) + (", …" if len(wrong) > 8 else "")
    raise LabelError(f"{one_line(path)}: label values {shown} are not whole numbers from 0; give a label map")


def _all_paths(files: PatientFiles) -> list[Path]:
    labels = [path for path in (files.lesion, files.anatomy) if path is not None]
    return [*files.channels.values(), *files.twin.values(), *labels]
