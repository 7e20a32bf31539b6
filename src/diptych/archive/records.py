"""What an archive holds: one record per volume, and all codes joined for search.

Knows nothing about SQLite or files. Every record has a checksum over all its content; `schema.py` stores both.

    VolumeRecord = VolumeInfo (what filters and viewers need) + id grids and positions per slice
    ArchiveCodes = the slices of all volumes in one array each, ordered by volume key, then from bottom to top
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, dataclass, field
from datetime import date
from hashlib import blake2b
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from diptych.description import GLIOMA, Description
from diptych.errors import ArchiveError, ArchiveMismatchError

LesionSource = Literal["labels", "predicted", "unknown"]
"""Where lesion areas come from: a label map, the model's own segmentation, or nowhere (areas are NaN)."""

CodeIdArray = NDArray[np.uint8] | NDArray[np.uint16]

SEXES = ("F", "M", "O")
"""DICOM's PatientSex values."""

MAX_KEY_LENGTH = 256
MAX_TEXT = 200
"""Characters of a source or a tag."""
MAX_TAGS = 100
MAX_SLICES = 10_000
WITHOUT = "without-"
"""Begins the tag of a volume that was read without a channel: without-t2."""
ROLE = r"[a-z][a-z0-9_-]{0,39}"
COPY_PATH = re.compile(rf"volumes/[A-Za-z0-9_-]{{1,64}}/{ROLE}\.nii\.gz")
"""Where copies lie, below the archive's folder: nothing else is ever opened, sent or deleted."""
FAR_MM = 1e5
"""Nothing in a body is further from the scanner's centre."""
CHECKSUM_BYTES = 32


@dataclass(frozen=True)
class ModelIdentity:
    """Which model made the ids, and what shape they have."""

    fingerprint: str
    """Changes with any weight of the model; ids of two fingerprints are never compared."""
    grid: tuple[int, int]
    """Latent rows and columns, `(h, w)`."""
    normal_codes: int
    """Size K of the normal codebook."""
    abnormal_codes: int
    """Size K of the abnormal codebook."""
    description: Description | None = field(default=None, compare=False)
    """Channels and classes by name; None in archives of before there were descriptions."""

    @property
    def about(self) -> Description:
        """The description, or the glioma's where none is kept."""
        return self.description or GLIOMA

    def to_json(self) -> dict[str, Any]:
        """Plain values; without a description where there is none."""
        values = asdict(self)
        return values if self.description else {name: values[name] for name in values if name != "description"}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> ModelIdentity:
        """Read what `to_json` gave; a KeyError, TypeError, ValueError or UsageError where it is not that."""
        about = values.get("description")
        return cls(
            fingerprint=str(values["fingerprint"]),
            grid=(int(values["grid"][0]), int(values["grid"][1])),
            normal_codes=int(values["normal_codes"]),
            abnormal_codes=int(values["abnormal_codes"]),
            description=None if about is None else Description.from_json(about),
        )

    @property
    def cells(self) -> int:
        return self.grid[0] * self.grid[1]

    def check(self) -> None:
        """Refuse, as `ValueError`, numbers that no model has."""
        sizes = (*self.grid, self.normal_codes, self.abnormal_codes)
        whole = all(isinstance(size, int) and 1 <= size <= 65_536 for size in sizes) and len(self.grid) == 2
        if not whole or self.cells > 65_536 or not _is_text(self.fingerprint):
            raise ValueError("the model's identity cannot be")

    def require(self, other: ModelIdentity, path: object) -> None:
        """Refuse `other` unless it is this model; `path` is the archive that holds this one."""
        if other != self:
            raise ArchiveMismatchError(
                f"{path}: was made by model {self.describe()}, not by model {other.describe()}; "
                "give that model, or index into a new archive"
            )

    def describe(self) -> str:
        h, w = self.grid
        return f"{self.fingerprint[:16]} ({h}×{w}, K={self.normal_codes}/{self.abnormal_codes})"


@dataclass(frozen=True)
class PixelFile:
    """A NIfTI file to look at: a copy inside the archive (relative path) or a reference (absolute path)."""

    role: str
    """A channel name, `lesion` or `anatomy`."""
    path: str
    sha256: str

    @property
    def is_copy(self) -> bool:
        return not self.path.startswith("/")

    def check(self) -> None:
        """Refuse a name that leads out of the archive, whoever made it up."""
        sound = all(isinstance(text, str) for text in (self.role, self.path, self.sha256))
        if not sound or not re.fullmatch(ROLE, self.role) or not re.fullmatch(r"[0-9a-f]{64}", self.sha256):
            raise ArchiveError(f"file {str(self.role)[:40]!r}: its role or hash cannot be")
        if self.is_copy:
            good = COPY_PATH.fullmatch(self.path) is not None
        else:  # a reference: read as an image only, never sent or deleted
            good = self.path.isprintable() and self.path.lower().endswith((".nii", ".nii.gz")) and len(self.path) < 4096
        if not good:
            raise ArchiveError(f"file {self.path[:80]!r}: lies outside the archive's images")


@dataclass(frozen=True)
class VolumeInfo:
    """Everything an archive knows of a volume except its codes. No field names a person."""

    volume_key: str
    """Unique in the archive; adding it again replaces the volume."""
    patient_key: str
    """Pseudonym used for grouping and exclusion; several volumes may share it."""
    study_date: str | None = None
    """ISO date, shifted by a secret number of days per patient."""
    sex: str | None = None
    """F, M or O, as in DICOM."""
    age: float | None = None
    """Years."""
    source: str | None = None
    """Where the volume came from, such as the name of a collection."""
    tags: tuple[str, ...] = ()
    """Free labels, sorted."""
    lesion_source: LesionSource = "unknown"
    input_digest: str = ""
    """Hash of the files that were read; tells a resumed run what is done."""
    files: tuple[PixelFile, ...] = ()

    @property
    def missing(self) -> tuple[str, ...]:
        """Channels that the model reads and that this volume was read without; kept among the tags, so that filters
        can ask for them."""
        return tuple(tag.removeprefix(WITHOUT) for tag in self.tags if tag.startswith(WITHOUT))

    def check(self) -> None:
        """Refuse values that cannot be."""
        for name in ("volume_key", "patient_key"):
            key = getattr(self, name)
            if (
                not isinstance(key, str)
                or not key
                or len(key) > MAX_KEY_LENGTH
                or not key.isprintable()
                or key != key.strip()
            ):
                raise ArchiveError(f"{name} {str(key)[:80]!r}: must be 1 to {MAX_KEY_LENGTH} printable characters")
        self._require(self.sex in (None, *SEXES), "sex", f"must be one of {', '.join(SEXES)} or unknown")
        self._require(self.age is None or _is_age(self.age), "age", "must be between 0 and 150 years")
        self._require(self.study_date is None or _is_iso_date(self.study_date), "study_date", "must be YYYY-MM-DD")
        words = len(self.tags) <= MAX_TAGS and all(_is_text(tag) for tag in self.tags)
        rule = f"must be at most {MAX_TAGS} words of up to {MAX_TEXT} characters, sorted, each once"
        self._require(words and self.tags == tuple(sorted(set(self.tags))), "tags", rule)
        text = f"must be text of up to {MAX_TEXT} characters"
        self._require(self.source is None or _is_text(self.source), "source", text)
        self._require(self.lesion_source in get_args(LesionSource), "lesion_source", "must be a LesionSource")
        self._require(self.input_digest == "" or _is_text(self.input_digest), "input_digest", text)
        self._require(len(self.files) <= MAX_TAGS, "files", f"must be at most {MAX_TAGS}")
        for file in self.files:
            file.check()

    def _require(self, holds: bool, field: str, rule: str) -> None:
        if not holds:
            raise ArchiveError(f"{self.volume_key}: {field} {repr(getattr(self, field))[:80]} {rule}")

    def to_json(self) -> dict[str, Any]:
        values = asdict(self)
        values["tags"] = list(self.tags)
        values["files"] = [[file.role, file.path, file.sha256] for file in self.files]
        return values

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> VolumeInfo:
        age = values["age"]
        return cls(
            **{
                **values,
                "age": None if age is None else float(age),
                "tags": tuple(values["tags"]),
                "files": tuple(PixelFile(*file) for file in values["files"]),
            }
        )


@dataclass(frozen=True, eq=False)
class VolumeRecord:
    """One volume as it is stored: S slices from bottom to top, blank ones left out."""

    info: VolumeInfo
    normal_ids: CodeIdArray
    """`[S, h, w]` in image orientation."""
    abnormal_ids: CodeIdArray
    """`[S, h, w]` in image orientation."""
    z_index: NDArray[np.uint16]
    """`[S]`, index of the axial plane in the volume, from the bottom."""
    position: NDArray[np.float32]
    """`[S]`, fraction of the brain's extent, 0 at the bottom."""
    z_mm: NDArray[np.float32]
    """`[S]`, world z coordinate in millimetres."""
    lesion_area: NDArray[np.float32]
    """`[S]`, square millimetres; NaN where unknown."""
    slice_affine: NDArray[np.float64]
    """`[4, 4]`, (column, row, z index) of the network's input to RAS+ millimetres."""

    @property
    def slice_count(self) -> int:
        return len(self.z_index)

    def blobs(self, model: ModelIdentity) -> tuple[bytes, ...]:
        """The arrays as little-endian bytes, in the order of `BLOB_COLUMNS`."""
        self.check(model)
        return tuple(
            np.ascontiguousarray(getattr(self, name), dtype=kind).tobytes()
            for name, kind in zip(BLOB_COLUMNS, blob_types(model), strict=True)
        )

    @classmethod
    def from_blobs(cls, info: VolumeInfo, blobs: tuple[bytes, ...], model: ModelIdentity) -> VolumeRecord:
        arrays: dict[str, Any] = {
            name: np.frombuffer(blob, kind)
            for name, blob, kind in zip(BLOB_COLUMNS, blobs, blob_types(model), strict=True)
        }
        for name in ("normal_ids", "abnormal_ids"):
            arrays[name] = arrays[name].reshape(-1, *model.grid)
        return cls(info, **{**arrays, "slice_affine": arrays["slice_affine"].reshape(4, 4)})

    def check(self, model: ModelIdentity) -> None:
        """Refuse what is not of this model's shape, or cannot be."""
        self.info.check()
        slices, key = self.slice_count, self.info.volume_key
        if slices == 0:
            raise ArchiveError(f"{key}: has no slice to store; all its planes are blank")
        if slices > MAX_SLICES:
            raise ArchiveError(f"{key}: has {slices} slices, an archive takes {MAX_SLICES} of a volume")
        for name, size in (("normal_ids", model.normal_codes), ("abnormal_ids", model.abnormal_codes)):
            ids = getattr(self, name)
            if ids.shape != (slices, *model.grid):
                raise ArchiveError(f"{key}: {name} has shape {ids.shape}, this archive takes {(slices, *model.grid)}")
            if int(ids.max()) >= size or int(ids.min()) < 0:
                raise ArchiveError(f"{key}: {name} goes to {int(ids.max())}, the codebook has {size} codes")
        for name in ("position", "z_mm", "lesion_area"):
            if getattr(self, name).shape != (slices,):
                raise ArchiveError(f"{key}: {name} has shape {getattr(self, name).shape}, expected ({slices},)")
        if self.slice_affine.shape != (4, 4):
            raise ArchiveError(f"{key}: slice_affine has shape {self.slice_affine.shape}, expected (4, 4)")
        if np.any(np.diff(self.z_index.astype(np.int64)) <= 0):
            raise ArchiveError(f"{key}: z_index must grow from slice to slice")
        self._check_numbers()

    def _check_numbers(self) -> None:
        """Refuse what no scanner makes: one such number would spoil the pictures and sums of all others."""
        key = self.info.volume_key
        for name in ("position", "z_mm", "slice_affine"):
            if not np.all(np.abs(getattr(self, name)) <= FAR_MM):
                raise ArchiveError(f"{key}: {name} holds a number that is none, or beyond {FAR_MM:g}")
        if np.any((self.lesion_area < 0) | (self.lesion_area > FAR_MM**2)):
            raise ArchiveError(f"{key}: lesion_area holds an area that cannot be")
        steps = np.linalg.norm(self.slice_affine[:3, :3], axis=0)
        sound = np.all((steps > 1e-3) & (steps < 1e3)) and np.array_equal(self.slice_affine[3], (0, 0, 0, 1))
        if not sound or abs(np.linalg.det(self.slice_affine[:3, :3])) < 1e-9:
            raise ArchiveError(f"{key}: slice_affine does not place slices in a body")


@dataclass(frozen=True, eq=False)
class ArchiveCodes:
    """All slices of one consistent version of an archive: what a search engine needs."""

    model: ModelIdentity
    version: str
    """Changes whenever the content does; names the disposable search cache. Ends in `-damaged` with `problems`."""
    volumes: tuple[VolumeInfo, ...]
    """Ordered by volume key."""
    volume: NDArray[np.int32]
    """`[N]`, index into `volumes`; never falls."""
    normal_ids: CodeIdArray
    """`[N, h*w]`, uint8 up to 256 codes, else uint16."""
    abnormal_ids: CodeIdArray
    """`[N, h*w]`."""
    z_index: NDArray[np.uint16]
    """`[N]`."""
    position: NDArray[np.float32]
    """`[N]`."""
    z_mm: NDArray[np.float32]
    """`[N]`."""
    lesion_area: NDArray[np.float32]
    """`[N]`, square millimetres, NaN where unknown; exactly 0 means lesion-free."""
    problems: tuple[str, ...] = ()
    """Damaged volumes that were left out, one sentence each. A caller must show them and exit non-zero."""

    def __len__(self) -> int:
        return len(self.volume)

    @property
    def patient_keys(self) -> tuple[str, ...]:
        """Patient of each volume."""
        return tuple(info.patient_key for info in self.volumes)


BLOB_COLUMNS = ("normal_ids", "abnormal_ids", "z_index", "position", "z_mm", "lesion_area", "slice_affine")


def blob_types(model: ModelIdentity) -> tuple[str, ...]:
    """NumPy types of the blobs, in the order of `BLOB_COLUMNS`."""
    return id_type(model.normal_codes), id_type(model.abnormal_codes), "<u2", "<f4", "<f4", "<f4", "<f8"


def id_type(codes: int) -> str:
    """The smallest type that holds every id of a codebook.

    >>> id_type(256), id_type(512)
    ('|u1', '<u2')
    """
    return "|u1" if codes <= 256 else "<u2"


def codes_checksum(blobs: tuple[bytes, ...]) -> bytes:
    """Checksum of the arrays. Lengths go in first, so that no byte can move from one array to the next."""
    digest = blake2b(json.dumps([len(blob) for blob in blobs]).encode(), digest_size=CHECKSUM_BYTES)
    for blob in blobs:
        digest.update(blob)
    return digest.digest()


def record_checksum(info: VolumeInfo, slices: int, codes: bytes, model: ModelIdentity) -> bytes:
    """Checksum of a whole record; it covers the arrays through their own checksum."""
    content = json.dumps([info.to_json(), slices, codes.hex(), model.fingerprint], sort_keys=True)
    return blake2b(content.encode(errors="surrogateescape"), digest_size=CHECKSUM_BYTES).digest()


def _is_iso_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except (TypeError, ValueError):
        return False


def _is_text(value: object) -> bool:
    """Short text without control characters, terminal escapes or halves of characters."""
    return isinstance(value, str) and 0 < len(value) <= MAX_TEXT and value.isprintable()


def _is_age(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and 0 <= value <= 150
