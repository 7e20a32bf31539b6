"""De-identified NIfTI copies inside the archive, for looking at and for re-encoding.

Knows nothing about SQLite. A copy is written anew from voxels and affine, so nothing else of the original's header,
extensions or name can come along; its folder is named by a hash of the content.
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.archive.records import PixelFile, VolumeInfo
from diptych.errors import ArchiveError, VolumeError
from diptych.files import file_sha256, hidden_folder, move_into_place
from diptych.volumes import CHANNELS, PatientFiles, Volume, write_nifti

COPIES = "volumes"


def write_copies(archive: Path, volume: Volume) -> tuple[PixelFile, ...]:
    """Write all channels and label maps of `volume` below `archive`; they are on disk when this returns."""
    images: dict[str, NDArray[Any]] = {
        name: _compact(signal) for name, signal in zip(volume.channels, volume.array, strict=True)
    }
    images |= {
        name: labels for name, labels in (("lesion", volume.lesion), ("anatomy", volume.anatomy)) if labels is not None
    }
    parent = archive / COPIES
    try:
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        parent.chmod(0o700)
        with hidden_folder(parent / "copies", private=True) as part:
            digests = {}
            for role, image in images.items():
                file = part / f"{role}.nii.gz"
                write_nifti(file, image, volume.affine)
                file.chmod(0o600)
                digests[role] = file_sha256(file)
            name = blake2b("".join((volume.patient_key, *digests.values())).encode(), digest_size=12).hexdigest()
            move_into_place(part, parent / name)
    except (OSError, VolumeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ArchiveError(
            f"{archive}: a copy of {volume.patient_key} cannot be written ({reason}); all earlier volumes are safe"
        ) from None
    return tuple(PixelFile(role, f"{COPIES}/{name}/{role}.nii.gz", digest) for role, digest in digests.items())


def refer_to(files: PatientFiles) -> tuple[PixelFile, ...]:
    """Name the original files instead of copying them. Their paths are then part of the archive."""
    return tuple(PixelFile(role, str(path.absolute()), file_sha256(path)) for role, path in roles(files).items())


def roles(files: PatientFiles) -> dict[str, Path]:
    """What each file of a patient is, the healthy twin of a phantom left aside."""
    labels = {"lesion": files.lesion, "anatomy": files.anatomy}
    return {**files.channels, **{role: path for role, path in labels.items() if path is not None}}


def copy_path(archive: Path, file: PixelFile) -> Path:
    """Where a stored file lies; a name or a link that leads elsewhere is refused.

    References, which whoever indexed has asked for, are images anywhere on this machine.
    """
    file.check()
    path = archive / file.path
    if file.is_copy:
        for part in (require_own_folder(archive), path.parent, path):
            if part.is_symlink():
                raise ArchiveError(f"{part}: is a link, which may lead anywhere; index this volume again")
    return path


def require_own_folder(archive: Path) -> Path:
    """The folder of copies, which must be the archive's own."""
    folder = archive / COPIES
    if folder.is_symlink():
        raise ArchiveError(f"{folder}: is a link, which may lead anywhere; put the folder itself there")
    return folder


def patient_files(archive: Path, info: VolumeInfo) -> PatientFiles:
    """The stored channels of a volume, ready for `read_patient`; a missing or changed file is an `ArchiveError`."""
    channels = {}
    for file in info.files:
        path = copy_path(archive, file)
        if not path.is_file():
            raise ArchiveError(f"{info.volume_key}: {path} is gone; index this volume again")
        if file_sha256(path) != file.sha256:
            raise ArchiveError(f"{info.volume_key}: {path} has changed since it was indexed; index this volume again")
        if file.role in CHANNELS:
            channels[file.role] = path
    return PatientFiles(info.volume_key, {name: channels[name] for name in CHANNELS if name in channels})


def _compact(signal: NDArray[np.float32]) -> NDArray[Any]:
    """The smallest type that holds every voxel exactly: scanners store whole numbers."""
    for kind in (np.uint8, np.int16):
        if float(signal.min()) >= np.iinfo(kind).min and float(signal.max()) <= np.iinfo(kind).max:
            whole = signal.astype(kind)
            if np.array_equal(whole, signal):
                return whole
    return signal
