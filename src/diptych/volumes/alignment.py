"""`align`: one study of a patient brought onto another by a rigid movement, so that slices can be compared.

Works on volumes; knows nothing about files or models. Mutual information over the brain, on one channel that both have,
from coarse to fine; fixed samples and one thread give the same movement on every machine. SimpleITK takes a moment to
import, so it is imported when first needed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.errors import MissingExtraError, VolumeError
from diptych.volumes.volume import Volume

LEADING = ("t1gd", "t1", "flair", "t2")
"""Channels that lead the registration, the best first."""
TO_LPS = np.diag([-1.0, -1.0, 1.0, 1.0])
"""Between NIfTI's RAS+ world and ITK's LPS+ world."""
SHRINK = (4, 2, 1)
SMOOTH_MM = (6.0, 3.0, 1.0)
SAMPLES = 20_000
SEED = 1


@dataclass(frozen=True, eq=False)
class Aligned:
    """A volume on the grid of another, and how far it had to be moved."""

    volume: Volume
    rotation_deg: float
    shift_mm: float


def align(moving: Volume, fixed: Volume) -> Aligned:
    """Bring `moving` onto the grid of `fixed`."""
    sitk = _require_sitk()
    leading = next((name for name in LEADING if name in moving.channels and name in fixed.channels), None)
    if leading is None:
        raise VolumeError(
            f"{moving.patient_key}, {fixed.patient_key}: no channel in common; compare studies of the same channels"
        )
    target = _image(sitk, _channel(fixed, leading), fixed.affine)
    movement = _register(sitk, target, _image(sitk, _channel(moving, leading), moving.affine))
    array = np.stack([_moved(sitk, signal, moving.affine, target, movement) for signal in moving.array])
    lesion, anatomy = (
        None if values is None else _moved(sitk, values, moving.affine, target, movement, labels=True)
        for values in (moving.lesion, moving.anatomy)
    )
    volume = replace(
        moving, array=np.maximum(array, 0.0), affine=fixed.affine, twin=None, lesion=lesion, anatomy=anatomy
    )
    angles = np.degrees(movement.GetParameters()[:3])
    return Aligned(volume, float(np.linalg.norm(angles)), float(np.linalg.norm(movement.GetTranslation())))


def _channel(volume: Volume, name: str) -> NDArray[np.float32]:
    return np.asarray(volume.array[volume.channels.index(name)])


def _require_sitk() -> Any:
    try:
        import SimpleITK
    except ImportError as error:
        raise MissingExtraError(
            "comparing studies needs the package SimpleITK: pip install 'diptych[intake]'"
        ) from error
    return SimpleITK


def _image(sitk: Any, values: NDArray[Any], affine: NDArray[np.float64]) -> Any:
    """Voxels `[X, Y, Z]` as an ITK image, whose arrays are `[Z, Y, X]`."""
    image = sitk.GetImageFromArray(np.ascontiguousarray(values.transpose(2, 1, 0)))
    world = TO_LPS @ affine
    spacing = np.linalg.norm(world[:3, :3], axis=0)
    image.SetSpacing(spacing.tolist())
    image.SetDirection((world[:3, :3] / spacing).ravel().tolist())
    image.SetOrigin(world[:3, 3].tolist())
    return image


def _register(sitk: Any, fixed: Any, moving: Any) -> Any:
    """The rigid movement that takes points of the fixed image to the moving one."""
    start = sitk.CenteredTransformInitializer(
        fixed, moving, sitk.Euler3DTransform(), sitk.CenteredTransformInitializerFilter.MOMENTS
    )
    method = sitk.ImageRegistrationMethod()
    method.SetNumberOfThreads(1)
    method.SetMetricAsMattesMutualInformation(32)
    method.SetMetricSamplingStrategy(method.RANDOM)
    method.SetMetricSamplingPercentage(min(1.0, SAMPLES / np.prod(fixed.GetSize())), SEED)
    method.SetInterpolator(sitk.sitkLinear)
    method.SetOptimizerAsRegularStepGradientDescent(2.0, 1e-3, 120, relaxationFactor=0.6)
    method.SetOptimizerScalesFromPhysicalShift()
    method.SetShrinkFactorsPerLevel(SHRINK)
    method.SetSmoothingSigmasPerLevel(SMOOTH_MM)
    method.SmoothingSigmasAreSpecifiedInPhysicalUnitsOn()
    method.SetInitialTransform(start, inPlace=True)
    method.Execute(fixed, moving)
    return start


def _moved(
    sitk: Any, values: NDArray[Any], affine: NDArray[np.float64], target: Any, movement: Any, *, labels: bool = False
) -> NDArray[Any]:
    how = sitk.sitkNearestNeighbor if labels else sitk.sitkLinear
    image = sitk.Resample(_image(sitk, values, affine), target, movement, how, 0.0)
    return np.asarray(sitk.GetArrayFromImage(image).transpose(2, 1, 0))
