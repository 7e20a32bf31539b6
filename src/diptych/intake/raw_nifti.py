"""Raw NIfTI files of one patient as series: what a converter made of a study, skull and all.

A file's name stands for its description, since NIfTI has no tags; a JSON file of the same name beside it, as
converters write it (BIDS), gives timing. Reading goes through the one reader that trusts nothing. Knows nothing
about DICOM.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.errors import VolumeError
from diptych.intake.series import SMALLEST, Left, Series, Tags
from diptych.volumes.layout import NAMES
from diptych.volumes.nifti import Limits, NiftiImage, read_nifti

ENDING = re.compile(r"\.nii(\.gz)?$", re.IGNORECASE)
LABELS = re.compile(
    rf"(^|[_-])({'|'.join((*NAMES['lesion'], *NAMES['anatomy'], 'mask', 'roi'))})([_-]|$)", re.IGNORECASE
)
SEQUENCE_FOLDER = re.compile(r"(\d+[-_ ]?)?(ax\w*|sag\w*|cor\w*|3d)?[-_ ]?(t1|t2|flair)[-_ +a-z]{0,12}", re.IGNORECASE)
LARGEST_SIDECAR = 1 << 20


def is_nifti(path: Path) -> bool:
    """Whether a file is called as NIfTI files are."""
    return ENDING.search(path.name) is not None


def series_from_nifti(files: Iterable[Path], *, limits: Limits = Limits()) -> tuple[list[Series], list[Left]]:
    """Every image among `files`, and what is none with the reason."""
    found: list[Series] = []
    left: list[Left] = []
    for place, path in enumerate(sorted(filter(is_nifti, files)), start=1):
        key, name = f"f{place}", ENDING.sub("", path.name)
        if LABELS.search(name):
            left.append(Left(key, "is called as label maps and masks are", name))
            continue
        try:
            image = read_nifti(path, limits=limits)
        except VolumeError as error:
            left.append(Left(key, str(error), name))
            continue
        if min(image.stored.shape) < SMALLEST:
            left.append(Left(key, f"has {min(image.stored.shape)} slices, too few for a volume", name))
            continue
        found.append(_series(key, name, path, image))
    return found, left


def _series(key: str, name: str, path: Path, image: NiftiImage) -> Series:
    """The axis with the widest steps comes last, as slices do."""
    order = _slices_last(image.affine, image.stored.shape)
    affine = image.affine[:, [*order, 3]]
    x, y, z = (image.stored.shape[axis] for axis in order)

    def load() -> NDArray[np.float32]:
        voxels = image.stored.transpose(order).astype(np.float32)
        if image.scaled:
            voxels = voxels * np.float32(image.slope) + np.float32(image.intercept)
        if not np.isfinite(voxels).all():
            raise VolumeError(f"{path}: some voxels are NaN or infinite; replace them, for example by 0")
        return voxels

    return Series(
        key=key,
        tags=_tags(name, path),
        shape=(x, y, z),
        affine=affine,
        load=load,
        names=(path.name, name, str(path)),
        files=(path,),
    )


def _slices_last(affine: NDArray[np.float64], shape: tuple[int, ...]) -> list[int]:
    spacing = np.linalg.norm(affine[:3, :3], axis=0)
    last = int(np.argmax(spacing)) if spacing.max() > 1.2 * spacing.min() else 2
    return [axis for axis in range(3) if axis != last] + [last]


def _tags(name: str, path: Path) -> Tags:
    """From the converter's JSON where there is one; its times are in seconds."""
    given = _sidecar(path)
    described = given.get("SeriesDescription")

    def milliseconds(keyword: str) -> float | None:
        value = given.get(keyword)
        return 1000.0 * float(value) if isinstance(value, int | float) and 0 < value < 100 else None

    return Tags(
        description=" ".join(filter(None, (_beside(path), name, str(described)[:256] if described else ""))),
        protocol=str(given.get("ProtocolName") or "")[:256],
        sequence_name=str(given.get("SequenceName") or given.get("PulseSequenceName") or "")[:64],
        echo_time=milliseconds("EchoTime"),
        repetition_time=milliseconds("RepetitionTime"),
        inversion_time=milliseconds("InversionTime"),
        scanning_sequence=_words(given.get("ScanningSequence")),
        image_type=_words(given.get("ImageType")),
        contrast_agent=bool(given.get("ContrastBolusIngredient") or given.get("ContrastBolusAgent")),
    )


def _words(value: Any) -> tuple[str, ...]:
    parts = re.split(r"[\\_]", value) if isinstance(value, str) else value if isinstance(value, list) else []
    return tuple(str(part).upper()[:64] for part in parts[:16])


def _beside(path: Path) -> str:
    """The folder's name where it names a sequence, such as FLAIR/image.nii.gz."""
    return path.parent.name if sequence_folder(path) else ""


def sequence_folder(path: Path) -> bool:
    """Whether a file lies in a folder called as a sequence, so that the patient's folder is the one above."""
    return SEQUENCE_FOLDER.fullmatch(path.parent.name) is not None


def _sidecar(path: Path) -> dict[str, Any]:
    beside = path.with_name(ENDING.sub("", path.name) + ".json")
    try:
        if not beside.is_file() or beside.stat().st_size > LARGEST_SIDECAR:
            return {}
        read = json.loads(beside.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}
