"""`SliceStore`: the slices of many patients in a folder, memory-mapped.

    STORE/manifest.json                            geometry, channels, fill value, sources, versions, last run's report
    STORE/patients/<sha256(key)[:16]>/patient.json one patient: positions, hashes, geometry
    STORE/patients/<…>/images.npy                  float16 [Z, C, H, W]; lesion, anatomy, twin beside it where known

A patient's folder is written under another name and renamed into place, so it is there whole or not at all. Patients
that a killed run had finished count, whether or not the manifest lists them yet. An array is compared with its hash
when it is first used. Knows nothing about reading volumes (`prepare.py`) or about torch (`dataset.py`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.description import GLIOMA, Description
from diptych.errors import StoreError
from diptych.files import file_sha256, program_versions, remove_unfinished, replacing_folder, write_json
from diptych.slices.preprocess import SliceGeometry, SliceStack
from diptych.slices.store_record import FileRecord, Manifest, PatientRecord, SourceRecord

PROGRAMS = ("numpy", "scipy", "nibabel")
"""What determines the voxels of a store, beside this program."""


class SliceStore:
    """Slices of many patients, all of one geometry and with the same channels."""

    def __init__(self, path: Path, manifest: Manifest, patients: dict[str, PatientRecord]) -> None:
        self.path = path
        self.manifest = manifest
        self._patients = patients
        self._arrays: dict[tuple[str, str], NDArray[Any]] = {}
        self._verified: set[tuple[str, str]] = set()

    @classmethod
    def create(
        cls,
        path: Path,
        geometry: SliceGeometry,
        channels: tuple[str, ...],
        *,
        blank: bool = False,
        description: Description = GLIOMA,
    ) -> SliceStore:
        """Make an empty store, or open the one at `path` if it has the same geometry, channels, classes and blanks."""
        path = Path(path)
        if (path / "manifest.json").exists():
            store = cls(path, _read_manifest(path), _read_patients(path, skip_damaged=True))
            store._require(geometry, channels, blank=blank)
            store._require_classes(description)
            return store
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise StoreError(f"{path}: neither empty nor a slice store; give another --out")
        manifest = Manifest(
            geometry, channels, blank=blank, versions=program_versions(*PROGRAMS), description=description
        )
        store = cls(path, manifest, {})
        try:
            (path / "patients").mkdir(parents=True, exist_ok=True)
            write_json(path / "manifest.json", store.manifest.to_json())
        except OSError as error:
            raise StoreError(f"{path}: cannot be written ({error.strerror}); give another --out") from None
        return store

    @classmethod
    def open(cls, path: Path | str, *, verify: bool = False) -> SliceStore:
        """Open a store and check that its files are there; `verify` also reads and hashes every byte."""
        path = Path(path)
        store = cls(path, _read_manifest(path), _read_patients(path))
        lost = [key for key in store.manifest.patients if key not in store._patients]
        if lost:
            raise StoreError(f"{path}: patient {lost[0]} is gone from the store; run 'diptych prepare' again")
        for key in store._patients:
            store.check_patient(key, verify=verify)
        return store

    @property
    def geometry(self) -> SliceGeometry:
        """Size and field of view of every slice."""
        return self.manifest.geometry

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the channel axis."""
        return self.manifest.channels

    @property
    def description(self) -> Description:
        """Channels, classes and geometry, by name."""
        return self.manifest.description

    @property
    def patients(self) -> Mapping[str, PatientRecord]:
        """All patients, sorted by key."""
        return self._patients

    @property
    def fingerprint(self) -> str:
        """Hash over every array in the store: equal exactly when the data are equal."""
        hashes = [(key, sorted((n, f.sha256) for n, f in r.files.items())) for key, r in self._patients.items()]
        return hashlib.sha256(json.dumps([self.channels, hashes]).encode()).hexdigest()

    def images(self, key: str) -> NDArray[np.float16]:
        """Images of a patient, memory-mapped, `[Z, C, H, W]`."""
        array = self._array(key, "images")
        assert array is not None, "PatientRecord refuses a patient without images"
        return array

    def lesion(self, key: str) -> NDArray[np.uint8] | None:
        """Lesion labels of a patient, memory-mapped, `[Z, H, W]`."""
        return self._array(key, "lesion")

    def anatomy(self, key: str) -> NDArray[np.uint8] | None:
        """Anatomy labels of a patient, memory-mapped, `[Z, H, W]`."""
        return self._array(key, "anatomy")

    def twin(self, key: str) -> NDArray[np.float16] | None:
        """The true healthy twin of a phantom, memory-mapped, `[Z, C, H, W]`."""
        return self._array(key, "twin")

    def add(self, stack: SliceStack, *, voxel_hash: str, sources: dict[str, SourceRecord]) -> PatientRecord:
        """Write a patient, replacing an earlier version of it; blank slices are left out of a store that keeps none."""
        if not self.manifest.blank:
            stack = stack.without_blank()
        try:
            with replacing_folder(self._folder(stack.patient_key)) as part:
                files = {name: _write_array(part, name, array) for name, array in _arrays_of(stack).items()}
                record = PatientRecord.of(stack, voxel_hash=voxel_hash, sources=sources, files=files)
                write_json(part / "patient.json", record.to_json())
        except OSError as error:
            raise StoreError(
                f"{self.path}: cannot be written to ({error.strerror}); make room or give another --out"
            ) from error
        return record

    def finish(self, *, sources: Iterable[str], failed: Mapping[str, str]) -> None:
        """Write the manifest anew: all patients that are there, and why others are not."""
        self._patients = _read_patients(self.path, skip_damaged=True)
        self._arrays.clear()
        self._verified.clear()
        self.manifest = replace(
            self.manifest,
            sources=tuple(sorted({*self.manifest.sources, *sources})),
            patients={key: record.voxel_hash for key, record in self._patients.items()},
            failed=dict(failed),
            warnings=_warnings(self._patients),
            versions=program_versions(*PROGRAMS),
        )
        write_json(self.path / "manifest.json", self.manifest.to_json())

    def remove_unfinished(self) -> None:
        """Delete folders that a killed run left half written. Only for the one writer of the store."""
        remove_unfinished(self.path)
        remove_unfinished(self.path / "patients")

    def check_patient(self, key: str, *, verify: bool = False) -> None:
        """Raise `StoreError` unless every file of the patient has its size (and, with `verify`, its hash)."""
        folder = self._folder(key)
        for name, entry in self._patients[key].files.items():
            file = folder / f"{name}.npy"
            if not file.is_file():
                raise StoreError(f"{file}: missing; run 'diptych prepare' again")
            if file.stat().st_size != entry.bytes:
                raise StoreError(f"{file}: {file.stat().st_size} bytes instead of {entry.bytes}; prepare it again")
            if verify:
                _check_hash(file, entry)

    def __getstate__(self) -> dict[str, Any]:
        # A memory map would be pickled with all its bytes; a DataLoader worker maps the files itself.
        return {**self.__dict__, "_arrays": {}}

    def _array(self, key: str, name: str) -> NDArray[Any] | None:
        if key not in self._patients:
            raise StoreError(f"{self.path}: no patient {key}; it has {len(self._patients)} others")
        if name not in self._patients[key].files:
            return None
        if (key, name) not in self._arrays:
            file, entry = self._folder(key) / f"{name}.npy", self._patients[key].files[name]
            array = _map_array(file, entry)
            if (key, name) not in self._verified:
                _check_hash(file, entry)
                self._verified.add((key, name))
            self._arrays[key, name] = array
        return self._arrays[key, name]

    def _folder(self, key: str) -> Path:
        # A hash, so that no path is ever built from a name that came with the data.
        return self.path / "patients" / hashlib.sha256(key.encode()).hexdigest()[:16]

    def _require(self, geometry: SliceGeometry, channels: tuple[str, ...], *, blank: bool) -> None:
        if self.geometry != geometry:
            raise StoreError(f"{self.path}: has slices of {self.geometry}, not {geometry}; give another --out")
        if self.channels != channels:
            has, asked = ", ".join(self.channels), ", ".join(channels)
            raise StoreError(f"{self.path}: has channels {has}, not {asked}; give another --out")
        if self.manifest.blank != blank:
            habit = "keeps blank slices; add --blank" if self.manifest.blank else "has no blank slices; drop --blank"
            raise StoreError(f"{self.path}: {habit}, or give another --out")

    def _require_classes(self, asked: Description) -> None:
        mine = self.description
        if (mine.lesion, mine.anatomy, mine.codes) != (asked.lesion, asked.anatomy, asked.codes):
            raise StoreError(
                f"{self.path}: its classes are those of {mine.sentence()}, not of {asked.sentence()}, or label files "
                "were read otherwise; give the same --classes and --lesion-code, or another --out"
            )


def _warnings(patients: Mapping[str, PatientRecord]) -> dict[str, tuple[str, ...]]:
    """What is worth knowing about each patient, the same scan under another key included."""
    first: dict[str, str] = {}
    warnings = {}
    for key, record in patients.items():
        twice = first.setdefault(record.voxel_hash, key)
        lines = (*record.warnings, *([f"has the same voxels as {twice}"] if twice != key else []))
        if lines:
            warnings[key] = lines
    return warnings


def _arrays_of(stack: SliceStack) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any] | None] = {
        "images": stack.images.astype(np.float16),
        "lesion": stack.lesion,
        "anatomy": stack.anatomy,
        "twin": None if stack.twin is None else stack.twin.astype(np.float16),
    }
    return {name: array for name, array in arrays.items() if array is not None}


def _write_array(folder: Path, name: str, array: NDArray[Any]) -> FileRecord:
    path = folder / f"{name}.npy"
    with path.open("wb") as file:
        np.save(file, array, allow_pickle=False)
    return FileRecord(file_sha256(path), path.stat().st_size, array.shape, array.dtype.str)


def _check_hash(file: Path, entry: FileRecord) -> None:
    if file_sha256(file) != entry.sha256:
        raise StoreError(f"{file}: its bytes have changed since it was written; prepare it again")


def _map_array(file: Path, entry: FileRecord) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise StoreError(f"{file}: cannot be read ({error}); run 'diptych prepare' again") from error
    if array.shape != entry.shape or array.dtype.str != entry.dtype:
        raise StoreError(
            f"{file}: {array.dtype} {array.shape} instead of {entry.dtype} {entry.shape}; prepare it again"
        )
    return array


def _read_manifest(path: Path) -> Manifest:
    file = path / "manifest.json"
    if not file.is_file():
        raise StoreError(f"{path}: not a slice store, it has no manifest.json; make one with 'diptych prepare'")
    return Manifest.from_json(_read_json(file), str(file))


def _read_patients(path: Path, *, skip_damaged: bool = False) -> dict[str, PatientRecord]:
    """All records, by key. A writer skips damaged ones, because it is there to write them anew."""
    records = {}
    for file in sorted((path / "patients").glob("[!.]*/patient.json")):
        try:
            record = PatientRecord.from_json(_read_json(file), str(file))
        except StoreError:
            if not skip_damaged:
                raise
        else:
            records[record.patient_key] = record
    return dict(sorted(records.items()))


def _read_json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StoreError(f"{file}: cannot be read as JSON ({error}); run 'diptych prepare' again") from error
