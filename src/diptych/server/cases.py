"""`Case`: one patient as pictures are made of it, archived or uploaded; `Cases` finds them and reads what lies behind.

Knows archives, NIfTI copies and the network's decoders; nothing about HTTP. Every file is checked against its digest
before it is used. Images are shown from the copies at their own resolution, in the frame that the network sees.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from diptych.archive import PixelFile, VolumeInfo, VolumeRecord
from diptych.archive.copies import copy_path, patient_files, write_copies
from diptych.archive.encoding import cut_slices
from diptych.errors import ArchiveError
from diptych.files import file_sha256
from diptych.retrieval import Archive
from diptych.retrieval.explanation import SlicePixels, SliceView, decode_lesion, view_slices
from diptych.server.cache import Cache
from diptych.server.channel_images import Signal, read_signal
from diptych.server.live_archive import Library
from diptych.server.problems import Problem, not_found
from diptych.server.settings import ServerSettings
from diptych.slices import SliceStack
from diptych.volumes import CHANNELS, PatientFiles, Volume, read_patient

Labels = NDArray[np.uint8]

RECORDS = 64 << 20
"""Bytes of records that are kept in memory."""
BATCH = 16
STACKS = 400 << 20
"""Bytes of whole volumes as the network sees them: only the few questions that encode anew need these."""


@dataclass(frozen=True, eq=False)
class Case:
    """One volume: its codes, and the files to look at where there are any."""

    route: str
    """Where the API serves it, such as `volumes/P1`."""
    record: VolumeRecord
    folder: Path
    """What the paths of `files` are relative to."""
    files: Mapping[str, PixelFile]
    """Copies by role: channels, lesion, anatomy."""
    tag: str
    """Names the content: another tag, other pictures."""
    warnings: tuple[str, ...] = ()

    @property
    def info(self) -> VolumeInfo:
        return self.record.info

    @property
    def channels(self) -> tuple[str, ...]:
        return tuple(name for name in CHANNELS if name in self.files)

    @property
    def pixel_spacing(self) -> tuple[float, float]:
        """Millimetres between rows and between columns of a slice."""
        column, row, _ = np.linalg.norm(self.record.slice_affine[:3, :3], axis=0)
        return float(row), float(column)

    def place(self, z: int) -> int:
        """Which of the stored slices is axial plane `z`."""
        found = np.flatnonzero(self.record.z_index == z)
        if not len(found):
            first, last = self.record.z_index[[0, -1]]
            raise not_found(f"slice {z}: {self.info.volume_key} shows brain in slices {first}…{last}")
        return int(found[0])

    @property
    def representative_z(self) -> int:
        """The slice with the largest known lesion, or one through the middle of the brain."""
        return representative(self.record.z_index, self.record.lesion_area)

    def path(self, role: str) -> Path:
        """The file of a role, which was checked; what is not there is a 404."""
        if role not in self.files:
            raise not_found(f"{role}: {self.info.volume_key} has no such image here")
        file = self.files[role]
        path = copy_path(self.folder, file)
        if _digest(path) != file.sha256:
            raise ArchiveError(f"{self.info.volume_key}: its {role} image is gone or has changed; index it again")
        return path


def _digest(path: Path) -> str:
    """SHA-256 of a file, worked out once for as long as the file stays as it is; empty when it is gone."""
    try:
        now = path.stat()
        return _known_digest(path, now.st_ino, now.st_size, now.st_mtime_ns)
    except OSError:
        return ""


@lru_cache(maxsize=4096)
def _known_digest(path: Path, *state: int) -> str:
    return file_sha256(path)


def representative(z_index: NDArray[np.integer], area: NDArray[np.floating]) -> int:
    """The plane with the largest known lesion, else one a little above the middle."""
    known = np.nan_to_num(area)
    return int(z_index[np.argmax(known)] if known.max() > 0 else z_index[len(z_index) * 11 // 20])


class Cases:
    """Cases by key, with what was read and decoded of them; safe to use from many threads."""

    def __init__(self, library: Library, settings: ServerSettings, folder: Path) -> None:
        self.library = library
        self.folder = folder
        self._volumes: Cache[Case] = Cache(RECORDS, _record_bytes)
        self._signals: Cache[Signal] = Cache(settings.signal_bytes, lambda signal: signal.voxels.nbytes)
        self._views: Cache[SliceView] = Cache(settings.decoded_bytes, _view_bytes)
        self._lesions: Cache[Labels] = Cache(settings.decoded_bytes, lambda labels: labels.nbytes)
        self._stacks: Cache[SliceStack] = Cache(STACKS, lambda stack: stack.images.nbytes)

    def volume(self, key: str) -> Case:
        """An archived volume."""
        archive = self.library.current
        if key not in archive.catalogue.places_of_keys:
            raise not_found(f"volume {key[:80]!r}: the archive holds none of that key")
        return self._volumes.get((archive.catalogue.version, key), lambda: self._open(archive, key))

    def _open(self, archive: Archive, key: str) -> Case:
        record = archive.store.record(key)
        info, folder = record.info, archive.store.folder_of(record.info)
        if any(not file.is_copy for file in info.files):
            info, folder = self._copy_references(archive, info)
        files = {file.role: file for file in info.files}
        return Case(f"volumes/{quote(key, safe='')}", record, folder, files, content_tag(record))

    def _copy_references(self, archive: Archive, info: VolumeInfo) -> tuple[VolumeInfo, Path]:
        """Originals are never handed out: their headers may name the patient."""
        folder = archive.store.folder_of(info)
        files = patient_files(folder, info)
        labels = {f.role: copy_path(folder, f) for f in info.files if f.role not in CHANNELS}
        volume = read_patient(replace(files, lesion=labels.get("lesion"), anatomy=labels.get("anatomy")))
        return replace(info, files=write_copies(self.folder, volume)), self.folder

    def signal(self, case: Case, role: str) -> Signal:
        """One image of a case, read whole."""
        return self._signals.get((case.tag, role), lambda: read_signal(case.path(role), labels=role not in CHANNELS))

    def view(self, case: Case, z: int) -> SliceView:
        """What the codes of a slice decode to."""
        place = case.place(z)
        ids = case.record.normal_ids[place : place + 1], case.record.abnormal_ids[place : place + 1]
        network = self.library.current.network
        return self._views.get((case.tag, z), lambda: view_slices(network, *ids, [None])[0])

    def lesion(self, case: Case, z: int) -> Labels:
        """The predicted lesion of a slice `[H, W]`, which costs less than everything that can be decoded."""
        if (case.tag, z) in self._views:
            return self.view(case, z).predicted_lesion
        place = case.place(z)
        ids = case.record.abnormal_ids[place : place + 1]
        network = self.library.current.network
        return self._lesions.get((case.tag, z), lambda: decode_lesion(network, ids)[0])

    def stack(self, case: Case) -> SliceStack:
        """All slices as the network sees them, read from the copies."""
        if not case.channels:
            raise Problem(409, f"{case.info.volume_key}: the archive keeps its codes only, no images", code="no_pixels")
        return self._stacks.get(case.tag, lambda: cut_slices(self.read(case), self.library.current.encoder))

    def read(self, case: Case) -> Volume:
        """The whole volume from its copies."""
        paths = {role: case.path(role) for role in case.files}
        return read_patient(
            PatientFiles(
                patient_key="case",
                channels={name: paths[name] for name in case.channels},
                lesion=paths.get("lesion"),
                anatomy=paths.get("anatomy"),
            )
        )

    def caches(self) -> dict[str, Cache[Any]]:
        """Everything that grows, by name."""
        return {
            "records": self._volumes,
            "images": self._signals,
            "decoded": self._views,
            "lesions": self._lesions,
            "stacks": self._stacks,
        }

    def forget(self, tag: str) -> None:
        """Let go of everything that was read or decoded of a case."""
        for cache in (self._signals, self._views, self._lesions):
            cache.forget(lambda key: key[0] == tag)
        self._stacks.forget(lambda key: key == tag)

    def pixels(self, case: Case, z: int) -> SlicePixels | None:
        """A slice as the network sees it; None where only codes are known."""
        if not case.channels:
            return None
        stack, place = self.stack(case), case.place(z)
        return SlicePixels(
            stack.images[place],
            None if stack.lesion is None else stack.lesion[place],
            None if stack.anatomy is None else stack.anatomy[place],
        )


def content_tag(record: VolumeRecord) -> str:
    """A short name that changes with the codes or the files of a volume."""
    digest = blake2b(record.info.input_digest.encode(), digest_size=9)
    digest.update(record.normal_ids.tobytes())
    digest.update(record.abnormal_ids.tobytes())
    digest.update("".join(file.sha256 for file in record.info.files).encode())
    return digest.hexdigest()


def _record_bytes(case: Case) -> int:
    return 4096 + sum(array.nbytes for array in vars(case.record).values() if isinstance(array, np.ndarray))


def _view_bytes(view: SliceView) -> int:
    return view.reconstruction.nbytes + view.healthy_twin.nbytes + 2 * view.predicted_lesion.nbytes
