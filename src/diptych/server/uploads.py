"""`Uploads`: files of patients who are not in the archive: few, for a short while, in a folder that nobody else reads.

Knows files and time; what becomes of an upload is `decomposing.py`. A name that a client gives is only looked at to
guess the channel and shown again; files are stored under numbers.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import BinaryIO

from diptych.server.cases import Case
from diptych.server.jobs import Job
from diptych.server.problems import Problem, not_found
from diptych.server.settings import ServerSettings
from diptych.server.sign_in import WHO
from diptych.volumes import CHANNELS, PatientFiles
from diptych.volumes.layout import NAMES, one_line, split_name

ROLES = (*CHANNELS, "lesion", "anatomy")
ROLE_OF = {name: role for role, names in NAMES.items() for name in names}
GZIP_MAGIC, ZIP_MAGIC = b"\x1f\x8b", b"PK"
CHUNK = 1 << 20
IDLE = 60.0
"""Seconds without use after which an upload may make room for another."""
UNKNOWN_PATIENT = "upload"
STUDY = "study"
"""Folder for the files of a study that came loose."""


@dataclass(frozen=True)
class UploadedFile:
    """One file as it was received."""

    name: str
    """As the client calls it, made harmless; never part of a path."""
    path: Path
    size: int


@dataclass(eq=False)
class Upload:
    """One patient's files, and what was made of them."""

    folder: Path
    files: tuple[UploadedFile, ...]
    id: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    roles: dict[str, str | None] = field(default_factory=dict)
    """File name to channel or label map; None where nobody knows."""
    job: Job | None = None
    case: Case | None = None
    owner: str = ""
    """Who brought it; for all others it is not there."""
    coming: int = 0
    """Bytes of files that are being stored."""
    used: float = field(default_factory=time.monotonic)
    deleted: bool = False

    @property
    def study(self) -> Path | None:
        """A ZIP that came alone, or a folder of DICOM files: as a scanner gave it, so it goes through intake first."""
        alone = self.files[0].path if len(self.files) == 1 else None
        return alone if alone is not None and (alone.suffix == ".zip" or alone.name == STUDY) else None

    @property
    def busy(self) -> bool:
        return self.coming > 0 or (self.job is not None and not self.job.over)

    @property
    def size(self) -> int:
        """Bytes on disk, with those that are coming."""
        return self.coming + sum(file.size for file in self.files)

    @property
    def patient_key(self) -> str:
        """The key that the channels' names spell, where they agree on one."""
        named = [split_name(Path("/") / file.name) for file in self.files if self.roles.get(file.name) in CHANNELS]
        keys = {name[0] for name in named if name is not None and name[0]}
        return keys.pop() if len(keys) == 1 else UNKNOWN_PATIENT

    def patient_files(self, wanted: Sequence[str]) -> PatientFiles:
        """The files by what they are, ready to be read."""
        paths = {role: file.path for file in self.files if (role := self.roles.get(file.name)) is not None}
        return PatientFiles(
            patient_key="upload",
            channels={channel: paths[channel] for channel in wanted if channel in paths},
            lesion=paths.get("lesion"),
            anatomy=paths.get("anatomy"),
        )

    def without_paths(self, message: str) -> str:
        """An error's message with the client's own names instead of where the files lie."""
        for file in self.files:
            message = message.replace(str(file.path), file.name)
        return message.replace(str(self.folder), "upload")


class Uploads:
    """All uploads; safe to use from many threads."""

    def __init__(
        self, folder: Path, settings: ServerSettings, *, forget: Callable[[Upload], None] = lambda upload: None
    ) -> None:
        self.folder = folder
        self.settings = settings
        self.forget = forget
        self._kept: dict[str, Upload] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def receive(
        self, files: Sequence[tuple[str, BinaryIO]], *, roles: Mapping[str, str | None] | None = None
    ) -> Upload:
        """Store files under numbers; room is made first, so that a full store refuses before it writes."""
        if not files:
            raise Problem(422, "no file: send a patient's NIfTI files, or a ZIP of a study, in the field 'files'")
        images = [stream for _, stream in files if _is_dicom(stream)]
        names = [] if images else [shown_name(name) for name, _ in files]
        if len(set(names)) < len(names):
            raise Problem(422, "two files have the same name; rename one")
        if len(names) > self.settings.max_files:
            raise Problem(
                422, f"{len(names)} files: an upload has {self.settings.max_files} at most, DICOM files aside"
            )
        folder = self.folder / secrets.token_hex(8)
        upload = Upload(folder, (), owner=WHO.get().name, coming=_bytes(files))
        self._make_room(upload)
        try:
            folder.mkdir(mode=0o700, parents=True)
            stored = [
                _store(folder, number, name, stream)
                for number, (name, (_, stream)) in enumerate(zip(names, files, strict=False))
            ]
            upload.files = tuple(stored or [_store_study(folder, images)])
            upload.coming = 0
            assign(upload, {name: guess(name) for name in names})
            assign(upload, roles or {})
        except BaseException:  # what is refused leaves nothing behind
            with self._lock:
                self._kept.pop(upload.id, None)
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return upload

    def add(self, upload: Upload, files: Sequence[tuple[str, BinaryIO]]) -> None:
        """Give an upload more files, such as a channel that was missing; a name that is there already is refused."""
        if upload.study is not None:
            raise Problem(422, "a study is uploaded as a whole; upload it again with all its files")
        if not files:
            raise Problem(422, "no file: send what is missing in the field 'files'")
        names = [shown_name(name) for name, _ in files]
        with self._coming(upload, files):
            known = {file.name for file in upload.files}
            again = next((name for name in names if name in known or names.count(name) > 1), None)
            if again is not None:
                raise Problem(422, f"file {again!r}: the upload has one of that name; rename it")
            if len(known) + len(names) > self.settings.max_files:
                raise Problem(422, f"{len(known) + len(names)} files: an upload has {self.settings.max_files} at most")
            stored = [
                _store(upload.folder, len(known) + number, name, stream)
                for number, (name, (_, stream)) in enumerate(zip(names, files, strict=True))
            ]
            upload.files = (*upload.files, *stored)
        taken = set(upload.roles.values())
        guesses = {name: guess(name) for name in names}
        assign(upload, {name: None if role in taken else role for name, role in guesses.items()})

    @contextmanager
    def _coming(self, upload: Upload, files: Sequence[tuple[str, BinaryIO]]) -> Iterator[None]:
        """Keep room for more files while they are stored; one request at a time, and one that fails leaves none."""
        with self._lock:
            if upload.coming:
                raise Problem(409, "other files of this upload are coming in; send these again afterwards")
            self._require_quota(_bytes(files))
            upload.coming = _bytes(files)
        try:
            yield
        except BaseException as error:
            kept = {file.path for file in upload.files}
            for path in set(upload.folder.glob("[0-9]*.*")) - kept:
                path.unlink(missing_ok=True)
            if upload.deleted and isinstance(error, OSError):
                raise not_found("the upload was deleted meanwhile") from None
            raise
        finally:
            upload.coming = 0

    def get(self, upload_id: str) -> Upload:
        """An upload by its id; using it keeps it longer."""
        self.expire()
        who = WHO.get()
        with self._lock:
            upload = self._kept.get(upload_id)
            if upload is not None and (upload.owner == who.name or who.may("administer")):
                upload.used = time.monotonic()
                return upload
        raise not_found(f"upload {upload_id[:40]!r}: there is none, or it has expired; upload the files again")

    def delete(self, upload_id: str) -> None:
        """Forget an upload at once."""
        upload = self.get(upload_id)
        with self._lock:
            self._kept.pop(upload_id, None)
        self._remove(upload)

    def expire(self) -> None:
        """Forget what was not used for long."""
        with self._lock:
            old = [key for key, upload in self._kept.items() if self.expires_in(upload) <= 0 and not upload.busy]
            gone = [self._kept.pop(key) for key in old]
        for upload in gone:
            self._remove(upload)

    def expires_in(self, upload: Upload) -> float:
        return self.settings.upload_seconds - (time.monotonic() - upload.used)

    def _make_room(self, upload: Upload) -> None:
        """Take a place for an upload before it is written. The longest unused one goes, unless all are in use; one
        user has only a share of the room."""
        self.expire()
        oldest = None
        with self._lock:
            mine = sum(one.owner == upload.owner for one in self._kept.values())
            if mine >= min(self.settings.max_uploads_per_user, self.settings.max_uploads):
                raise Problem(429, f"you have {mine} uploads here; delete one, or wait until one expires")
            self._require_quota(upload.size)
            if len(self._kept) >= self.settings.max_uploads:
                idle = [one for one in self._kept.values() if not one.busy and time.monotonic() - one.used > IDLE]
                if not idle:
                    raise Problem(429, f"{len(self._kept)} uploads are in use; delete one, or try again in a minute")
                oldest = min(idle, key=lambda one: one.used)
                del self._kept[oldest.id]
            self._kept[upload.id] = upload
        if oldest is not None:
            self._remove(oldest)

    def _require_quota(self, more: int) -> None:
        if sum(one.size for one in self._kept.values()) + more > self.settings.upload_quota:
            raise Problem(429, "the room for uploads is full; delete one, or try again later")

    def _remove(self, upload: Upload) -> None:
        upload.deleted = True
        if upload.job is not None:
            upload.job.cancelled.set()
        shutil.rmtree(upload.folder, ignore_errors=True)
        self.forget(upload)


def shown_name(name: str) -> str:
    """A client's file name made harmless: its last part, printable, not too long.

    >>> shown_name("../../etc/passwd")
    'passwd'
    """
    last = PurePosixPath(name.replace("\\", "/")).name
    return one_line(last)[-120:].strip(". ") or "file"


def guess(name: str) -> str | None:
    """What a file is, by its name alone."""
    named = split_name(Path(name))
    return None if named is None else ROLE_OF[named[1]]


def assign(upload: Upload, roles: Mapping[str, str | None]) -> None:
    """Say which file is what; a role that two files have is nobody's, so that a person decides."""
    unknown = [name for name in roles if name not in {file.name for file in upload.files}]
    if unknown:
        raise Problem(422, f"file {one_line(unknown[0])[:80]!r}: this upload has no such file")
    merged = {**{file.name: None for file in upload.files}, **upload.roles, **roles}
    taken = [role for role in merged.values() if role is not None]
    upload.roles = {name: None if role is None or taken.count(role) > 1 else role for name, role in merged.items()}


def _bytes(files: Sequence[tuple[str, BinaryIO]]) -> int:
    """How large files are that have come in whole."""
    return sum(stream.seek(0, os.SEEK_END) - stream.seek(0) for _, stream in files)


def _is_dicom(stream: BinaryIO) -> bool:
    """Whether a file starts as DICOM does; a dropped folder also holds pictures, texts and what systems hide there."""
    start = stream.read(132)
    stream.seek(0)
    return start[128:] == b"DICM"


def _store_study(folder: Path, images: Sequence[BinaryIO]) -> UploadedFile:
    """DICOM files as one study; their names are not kept, as in another folder each may occur again."""
    (folder / STUDY).mkdir(mode=0o700)
    size = sum(_store(folder / STUDY, number, "", stream, suffix=".dcm").size for number, stream in enumerate(images))
    return UploadedFile(f"DICOM study of {len(images)} files", folder / STUDY, size)


def _store(folder: Path, number: int, name: str, stream: BinaryIO, *, suffix: str = "") -> UploadedFile:
    """Write one file; its suffix follows from its first bytes, as the reader of NIfTI files wants it."""
    first = stream.read(2)
    suffix = suffix or {GZIP_MAGIC: ".nii.gz", ZIP_MAGIC: ".zip"}.get(first, ".nii")
    path = folder / f"{number}{suffix}"
    size = len(first)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(first)
        while chunk := stream.read(CHUNK):
            size += len(chunk)
            file.write(chunk)
    return UploadedFile(name, path, size)
