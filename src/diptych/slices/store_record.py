"""What a slice store says about itself in JSON: `PatientRecord` for one patient, `Manifest` for the whole store.

Knows the two formats and nothing about where they lie. Reading checks that everything is there, so that the rest of
the package may rely on it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from diptych.description import GLIOMA, Description
from diptych.errors import StoreError, UsageError
from diptych.slices.preprocess import CLIP, FILL, SliceGeometry, SliceStack

FORMAT = "diptych slice store"
FORMAT_VERSION = 1


@dataclass(frozen=True)
class SourceRecord:
    """One file that a patient was read from."""

    path: str
    sha256: str


@dataclass(frozen=True)
class FileRecord:
    """One array file of a patient: what it must be to be trusted."""

    sha256: str
    bytes: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class PatientRecord:
    """One patient in a store; everything but the pixels."""

    patient_key: str
    voxel_hash: str
    """Hash of the patient's voxels: the same scan under two keys has it twice."""
    sources: dict[str, SourceRecord]
    """What the patient was read from, by part: t1, t1gd, t2, flair, lesion, anatomy, twin-t1, …"""
    files: dict[str, FileRecord]
    """Array files by name without suffix: images, and lesion, anatomy, twin where known."""
    z_index: tuple[int, ...]
    """Index of each stored slice in the volume; blank slices are left out unless the store keeps them."""
    z_mm: tuple[float, ...]
    position: tuple[float, ...]
    """0 at the lowest stored slice, 1 at the highest."""
    lesion_pixels: tuple[int, ...] | None
    """Pixels of any lesion label per slice; None when the patient has no lesion labels."""
    pixel_spacing: tuple[float, float]
    """Millimetres between rows and between columns."""
    affine: tuple[tuple[float, ...], ...]
    """(column, row, z index) to RAS+ millimetres."""
    intensity: dict[str, tuple[float, float]]
    """Mean and standard deviation by which each channel was z-scored."""
    warnings: tuple[str, ...] = ()

    @property
    def slices(self) -> int:
        """How many slices are stored."""
        return len(self.z_index)

    @classmethod
    def of(
        cls, stack: SliceStack, *, voxel_hash: str, sources: dict[str, SourceRecord], files: dict[str, FileRecord]
    ) -> PatientRecord:
        """Describe a stack whose arrays have been written as `files`."""
        lesion_pixels = None
        if stack.lesion is not None:
            lesion_pixels = tuple(np.count_nonzero(stack.lesion, axis=(1, 2)).tolist())
        return cls(
            patient_key=stack.patient_key,
            voxel_hash=voxel_hash,
            sources=sources,
            files=files,
            z_index=tuple(stack.z_index.tolist()),
            z_mm=tuple(stack.z_mm.tolist()),
            position=tuple(stack.position.tolist()),
            lesion_pixels=lesion_pixels,
            pixel_spacing=stack.pixel_spacing,
            affine=tuple(tuple(row) for row in stack.affine.tolist()),
            intensity=stack.intensity,
            warnings=stack.warnings,
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any], where: str) -> PatientRecord:
        """Read back what `to_json` gave; `where` names the file in the error."""
        try:
            lesion_pixels = data["lesion_pixels"]
            record = cls(
                patient_key=str(data["patient_key"]),
                voxel_hash=str(data["voxel_hash"]),
                sources={part: SourceRecord(entry["path"], entry["sha256"]) for part, entry in data["sources"].items()},
                files={
                    name: FileRecord(entry["sha256"], int(entry["bytes"]), tuple(entry["shape"]), entry["dtype"])
                    for name, entry in data["files"].items()
                },
                z_index=tuple(data["z_index"]),
                z_mm=tuple(data["z_mm"]),
                position=tuple(data["position"]),
                lesion_pixels=None if lesion_pixels is None else tuple(lesion_pixels),
                pixel_spacing=(float(data["pixel_spacing"][0]), float(data["pixel_spacing"][1])),
                affine=tuple(tuple(row) for row in data["affine"]),
                intensity={name: (float(pair[0]), float(pair[1])) for name, pair in data["intensity"].items()},
                warnings=tuple(data["warnings"]),
            )
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise StoreError(f"{where}: not a patient record ({error!r}); prepare the store again") from error
        record._check(where)
        return record

    def _check(self, where: str) -> None:
        per_slice = [
            len(self.z_mm),
            len(self.position),
            *(entry.shape[0] for entry in self.files.values() if entry.shape),
        ]
        if self.lesion_pixels is not None:
            per_slice.append(len(self.lesion_pixels))
        if "images" not in self.files or any(count != self.slices for count in per_slice):
            raise StoreError(f"{where}: its slice counts disagree {per_slice}; prepare the store again")


@dataclass(frozen=True)
class Manifest:
    """What holds for a whole store."""

    geometry: SliceGeometry
    channels: tuple[str, ...]
    fill: float = FILL
    clip: tuple[float, float] = CLIP
    blank: bool = False
    """Whether slices that show no brain are kept."""
    sources: tuple[str, ...] = ()
    """Folders that patients were taken from."""
    patients: dict[str, str] = field(default_factory=dict)
    """Patient key to voxel hash, as of the last finished run."""
    failed: dict[str, str] = field(default_factory=dict)
    """Patients that could not be taken in, with the reason."""
    warnings: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """What was noticed about patients that were taken in."""
    versions: dict[str, str] = field(default_factory=dict)
    """Programs that wrote the store."""
    description: Description = GLIOMA
    """Classes and codes by name; channels and geometry as above."""

    def __post_init__(self) -> None:
        about = replace(self.description, channels=self.channels, size=self.geometry.size, field=self.geometry.field)
        object.__setattr__(self, "description", about)

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, "format_version": FORMAT_VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, data: dict[str, Any], where: str) -> Manifest:
        """Read back what `to_json` gave; `where` names the file in the error."""
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise StoreError(f"{where}: not the manifest of a slice store; make one with 'diptych prepare'")
        if data.get("format_version") != FORMAT_VERSION:
            found = data.get("format_version")
            raise StoreError(f"{where}: format {found}, this program reads {FORMAT_VERSION}; prepare the store again")
        try:
            size, view = data["geometry"]["size"], data["geometry"]["field"]
            return cls(
                geometry=SliceGeometry((size[0], size[1]), None if view is None else (view[0], view[1])),
                channels=tuple(data["channels"]),
                fill=float(data["fill"]),
                clip=(float(data["clip"][0]), float(data["clip"][1])),
                blank=bool(data.get("blank", False)),
                sources=tuple(data["sources"]),
                patients=dict(data["patients"]),
                failed=dict(data["failed"]),
                warnings={key: tuple(lines) for key, lines in data["warnings"].items()},
                versions=dict(data["versions"]),
                description=Description.from_json(data["description"]) if "description" in data else GLIOMA,
            )
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, UsageError) as error:
            raise StoreError(f"{where}: damaged manifest ({error!r}); prepare the store again") from error
