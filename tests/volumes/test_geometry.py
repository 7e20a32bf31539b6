"""48 axis orders × every way to say so in a header: the same voxels, or a refusal."""

from __future__ import annotations

from itertools import permutations, product
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from diptych.errors import GeometryError
from diptych.volumes import Volume, patient_from_files, read_patient, write_nifti
from tests.volumes.making import LPS, SHAPE, brain, nifti_bytes

SPACING = np.diag([-0.9, -1.1, 2.0, 1.0])
ORIGIN = np.array([40.0, 55.0, -30.0])
AXIS_ORDERS = [(order, signs) for order in permutations(range(3)) for signs in product((1, -1), repeat=3)]
FORMS = ["sform", "qform", "both", "disagree", "neither"]


def canonical_affine() -> NDArray[np.float64]:
    affine = SPACING.copy()
    affine[:3, 3] = ORIGIN
    return affine


def turned(order: tuple[int, ...], signs: tuple[int, ...]) -> tuple[NDArray[np.int16], NDArray[np.float64]]:
    """The same image stored with its axes swapped and reversed, and the affine that says so.

    Done without nibabel, whose orientation functions the reader relies on.
    """
    array, affine = brain().transpose(order), canonical_affine()
    affine[:, :3] = affine[:, list(order)]
    for axis, sign in enumerate(signs):
        if sign < 0:
            array = np.flip(array, axis)
            affine[:, 3] += affine[:, axis] * (array.shape[axis] - 1)
            affine[:, axis] *= -1
    return array, affine


def codes(form: str) -> dict[str, int]:
    return {"sform_code": int(form not in ("qform", "neither")), "qform_code": int(form not in ("sform", "neither"))}


def read(path: Path) -> Volume:
    return read_patient(patient_from_files(t1=path, patient_key="A"))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("order", "signs"), AXIS_ORDERS)
def test_axis_orders(tmp_path: Path, order: tuple[int, ...], signs: tuple[int, ...], form: str) -> None:
    path = tmp_path / "t1.nii"
    array, affine = turned(order, signs)
    fields = codes(form)
    data = nifti_bytes(array, affine, **fields)
    if form == "disagree":
        mirrored = affine @ np.diag([-1, 1, 1, 1])
        data = nifti_bytes(array, affine, srow_x=mirrored[0], srow_y=mirrored[1], srow_z=mirrored[2], **fields)
    path.write_bytes(data)
    if form in ("disagree", "neither"):
        with pytest.raises(GeometryError, match=r"different places|left and right are unknown"):
            read(path)
        return
    volume = read(path)
    np.testing.assert_array_equal(volume.array[0], brain())
    np.testing.assert_allclose(volume.affine, canonical_affine(), atol=1e-4)


def test_left_is_left(tmp_path: Path) -> None:
    array = np.ones(SHAPE, dtype=np.uint8)
    array[-1] = 200  # in RAS+ axes the last x is the patient's right
    write_nifti(tmp_path / "t1.nii", array, np.eye(4))
    volume = read(tmp_path / "t1.nii")
    assert (volume.array[0, 0] == 200).all()  # in LPS x grows towards the left, so right comes first


def test_axial_planes_are_contiguous(tmp_path: Path) -> None:
    write_nifti(tmp_path / "t1.nii", brain(), LPS)
    assert read(tmp_path / "t1.nii").array[0, :, :, 3].T.flags.c_contiguous


def rotated(degrees: float) -> NDArray[np.float64]:
    angle = np.radians(degrees)
    turn = np.eye(4)
    turn[1:3, 1:3] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    turned_affine: NDArray[np.float64] = turn @ SPACING
    return turned_affine


@pytest.mark.parametrize("degrees", [0, 4, -4])
def test_slightly_oblique_is_silent(tmp_path: Path, degrees: float) -> None:
    write_nifti(tmp_path / "t1.nii", brain(), rotated(degrees))
    assert read(tmp_path / "t1.nii").warnings == ()


@pytest.mark.parametrize("degrees", [8, -30])
def test_oblique_keeps_the_closest_axes_and_says_so(tmp_path: Path, degrees: float) -> None:
    write_nifti(tmp_path / "t1.nii", brain(), rotated(degrees))
    volume = read(tmp_path / "t1.nii")
    np.testing.assert_array_equal(volume.array[0], brain())
    assert f"{abs(degrees)}° oblique" in volume.warnings[0]


def test_halfway_between_axes_is_refused(tmp_path: Path) -> None:
    write_nifti(tmp_path / "t1.nii", brain(), rotated(45))
    with pytest.raises(GeometryError, match="oblique"):
        read(tmp_path / "t1.nii")


def sheared(degrees: float) -> NDArray[np.float64]:
    affine = np.diag([-1.0, -1.0, 1.0, 1.0])
    affine[1, 2] = np.tan(np.radians(degrees))
    return affine


def test_slight_shear_is_said(tmp_path: Path) -> None:
    write_nifti(tmp_path / "t1.nii", brain(), sheared(3))
    assert "sheared by 3.0°" in read(tmp_path / "t1.nii").warnings[0]


def test_strong_shear_is_refused(tmp_path: Path) -> None:
    write_nifti(tmp_path / "t1.nii", brain(), sheared(20))
    with pytest.raises(GeometryError, match="sheared by 20°"):
        read(tmp_path / "t1.nii")


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        ({"srow_x": [-1, 1, 0, 0], "srow_y": [0, 0, 0, 0]}, "singular"),
        ({"srow_x": [0, 0, 0, 0]}, "voxels of 0 x"),
        ({"srow_x": [np.nan, 0, 0, 0]}, "NaN"),
        ({"srow_x": [0, 0, 0, np.inf]}, "NaN or infinite"),
        ({"srow_x": [-1000, 0, 0, 0]}, r"voxels of 1e\+03"),
    ],
)
def test_impossible_sform(tmp_path: Path, rows: dict[str, list[float]], match: str) -> None:
    (tmp_path / "t1.nii").write_bytes(nifti_bytes(brain(), LPS, qform_code=0, **rows))
    with pytest.raises(GeometryError, match=match):
        read(tmp_path / "t1.nii")


@pytest.mark.parametrize("value", [2.0, np.nan])
def test_impossible_quaternion(tmp_path: Path, value: float) -> None:
    (tmp_path / "t1.nii").write_bytes(nifti_bytes(brain(), LPS, quatern_b=value, sform_code=0))
    with pytest.raises(GeometryError):
        read(tmp_path / "t1.nii")


@pytest.mark.parametrize(("unit", "factor"), [(0, 1.0), (1, 0.001), (2, 1.0), (3, 1000.0)])
def test_units_become_millimetres(tmp_path: Path, unit: int, factor: float) -> None:
    affine = canonical_affine()
    affine[:3] *= factor
    (tmp_path / "t1.nii").write_bytes(nifti_bytes(brain(), affine, xyzt_units=unit))
    np.testing.assert_allclose(read(tmp_path / "t1.nii").affine, canonical_affine(), rtol=1e-5)


def test_unknown_unit(tmp_path: Path) -> None:
    (tmp_path / "t1.nii").write_bytes(nifti_bytes(brain(), xyzt_units=5))
    with pytest.raises(GeometryError, match="unit code 5"):
        read(tmp_path / "t1.nii")


def pair(folder: Path, array: NDArray[np.int16], affine: NDArray[np.float64]) -> Volume:
    write_nifti(folder / "t1.nii", brain(), LPS)
    write_nifti(folder / "t2.nii", array, affine)
    return read_patient(patient_from_files(t1=folder / "t1.nii", t2=folder / "t2.nii", patient_key="A"))


def test_channels_may_be_stored_in_different_axis_orders(tmp_path: Path) -> None:
    flipped = np.diag([1.0, -1.0, 1.0, 1.0])
    flipped[0, 3] = -(SHAPE[0] - 1)
    assert np.array_equal(*pair(tmp_path, brain()[::-1], flipped).array)


def test_channels_of_different_shape(tmp_path: Path) -> None:
    with pytest.raises(GeometryError, match=r"t2.nii: 7 x 8 x 5 voxels, but .*t1.nii has 7 x 8 x 9"):
        pair(tmp_path, brain(shape=(7, 8, 5)), LPS)


@pytest.mark.parametrize(("shift", "fits"), [(0.1, True), (0.5, False)])
def test_channels_in_different_places(tmp_path: Path, shift: float, fits: bool) -> None:
    moved = LPS.copy()
    moved[1, 3] = shift
    if fits:
        assert pair(tmp_path, brain(), moved).shape == SHAPE
        return
    with pytest.raises(GeometryError, match=r"t2.nii: lies up to 0.5 mm away from .*t1.nii"):
        pair(tmp_path, brain(), moved)
