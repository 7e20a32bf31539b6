"""One small phantom with a lesion, in memory and as a patient's folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from diptych.phantom import Phantom, PhantomConfig, make_phantom
from diptych.volumes import write_nifti

COARSE = PhantomConfig(voxel_mm=6.0, samples=1, low_grade=0.0, multifocal=0.0)


@pytest.fixture(scope="session")
def phantom() -> Phantom:
    return make_phantom(3, config=COARSE)


@pytest.fixture
def patients(phantom: Phantom, tmp_path: Path) -> Path:
    """A folder with one patient, `Case-1`, that has images and lesion labels but no anatomy."""
    return write_case(tmp_path / "patients", "Case-1", phantom)


def write_case(folder: Path, key: str, phantom: Phantom, *, leave_out: str = "") -> Path:
    """Write a phantom's images and lesion labels under another key."""
    volume = phantom.volume
    assert volume.lesion is not None
    (folder / key).mkdir(parents=True)
    for name, image in zip(("t1n", "t1c", "t2w", "t2f"), volume.array, strict=True):
        if name != leave_out:
            write_nifti(folder / key / f"{key}-{name}.nii.gz", image.astype("int16"), volume.affine)
    write_nifti(folder / key / f"{key}-seg.nii.gz", volume.lesion, volume.affine)
    return folder
