"""Files become series, series become volumes: sorted by where each image lies in space, never by its number.

`read_series` takes the files of one study. Images of a series are parted by size, orientation and spacing, then,
where several lie at the same place, by what tells them apart (echo, image type, phase, b-value …); exact doubles are
dropped. What then lies evenly along a line is a `Series` with voxels and affine; everything else is `Left` with its
reason. Classic and enhanced (multi-frame) MR take the same way. Knows nothing about which sequence a series is.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.errors import VolumeError
from diptych.intake.dicom_files import FileLimits, is_dicom, lenient, read_frames, read_header
from diptych.volumes.layout import one_line

IMAGE_CLASSES = {
    "1.2.840.10008.5.1.4.1.1.4": "MR",
    "1.2.840.10008.5.1.4.1.1.4.1": "enhanced MR",
    "1.2.840.10008.5.1.4.1.1.4.4": "legacy enhanced MR",
}
SMALLEST = 8
"""Slices of a volume at least; localizers have fewer."""
SAME_PLACE_MM = 0.02
UNEVEN = 0.03
"""How far a slice may lie from its even place, as a share of the distance between slices."""
TO_RAS = np.array([-1.0, -1.0, 1.0])
NO_AGENT = ("no", "none", "n", "0", "nein", "non", "no contrast", "without", "w/o", "n/a", "na", "-")
"""What people enter as ContrastBolusAgent when they gave none."""
AGENT_WORDS = ("ContrastBolusRoute", "ContrastBolusIngredient")
AGENT_AMOUNTS = ("ContrastBolusVolume", "ContrastBolusTotalDose")
"""What tells of contrast agent where its name was taken out, as de-identification does."""


@dataclass(frozen=True)
class Tags:
    """What a series says about itself; DICOM keywords in snake case. Nothing here names a person."""

    number: int | None = None
    description: str = ""
    protocol: str = ""
    """ProtocolName: of one series with some vendors, of the whole examination with others."""
    sequence_name: str = ""
    acquisition_contrast: str = ""
    """What enhanced MR says about itself: T1, T2, FLUID_ATTENUATED, DIFFUSION …"""
    angio: bool = False
    image_type: tuple[str, ...] = ()
    scanning_sequence: tuple[str, ...] = ()
    sequence_variant: tuple[str, ...] = ()
    repetition_time: float | None = None
    echo_time: float | None = None
    inversion_time: float | None = None
    flip_angle: float | None = None
    contrast_agent: bool = False
    b_value: float | None = None
    slice_thickness: float | None = None
    burnt_in: bool = False


@dataclass(frozen=True, eq=False)
class Series:
    """One volume on its own grid. Voxels are read when asked for."""

    key: str
    """Pseudonym within the study: `s` and the series number, a letter behind it where one series held several."""
    tags: Tags
    shape: tuple[int, int, int]
    """Columns, rows, slices."""
    affine: NDArray[np.float64]
    """Index to RAS+ millimetres; may be sheared (gantry tilt)."""
    load: Callable[[], NDArray[np.float32]] = field(repr=False)
    """Read the voxels, `[columns, rows, slices]`."""
    remarks: tuple[str, ...] = ()
    names: tuple[str, ...] = field(default=(), repr=False)
    """Other names a user may call it by: its folder or file, its description."""
    files: tuple[Path, ...] = field(default=(), repr=False)
    """Where its voxels are, in the order of its slices."""

    @property
    def spacing(self) -> tuple[float, float, float]:
        """Distance between voxels in millimetres along columns, rows, slices."""
        x, y, z = np.linalg.norm(self.affine[:3, :3], axis=0)
        return float(x), float(y), float(z)

    @property
    def plane(self) -> str:
        """axial, coronal or sagittal, whichever is nearest."""
        normal = np.cross(self.affine[:3, 0], self.affine[:3, 1])
        return ("sagittal", "coronal", "axial")[int(np.argmax(np.abs(normal)))]

    @property
    def shear_deg(self) -> float:
        """How far the slice direction leans from the normal."""
        normal = np.cross(self.affine[:3, 0], self.affine[:3, 1])
        cosine = normal @ self.affine[:3, 2] / (np.linalg.norm(normal) * np.linalg.norm(self.affine[:3, 2]))
        return float(np.degrees(np.arccos(np.clip(abs(cosine), 0.0, 1.0))))


@dataclass(frozen=True)
class Left:
    """Something that is no volume, or no sequence we use, and why."""

    key: str
    reason: str
    description: str = ""


@dataclass(frozen=True)
class Reading:
    """A study as found on disk."""

    patient: str
    """Digest that stands for the person; never their name or number."""
    study: str
    series: tuple[Series, ...]
    left: tuple[Left, ...]


@dataclass(frozen=True, eq=False)
class _Frame:
    path: Path
    index: int
    frames: int
    size: tuple[int, int]
    """Rows, columns."""
    position: NDArray[np.float64]
    orientation: NDArray[np.float64]
    spacing: tuple[float, float]
    slope: float
    intercept: float
    traits: tuple[Any, ...]


def read_series(files: Iterable[Path], *, limits: FileLimits = FileLimits()) -> list[Reading]:
    """Every study among `files`, with its volumes and with what was left and why."""
    headers: dict[tuple[str, str], dict[str, list[tuple[Path, Any]]]] = defaultdict(lambda: defaultdict(list))
    damaged: list[Left] = []
    seen: set[str] = set()
    for path in files:
        if not is_dicom(path):
            continue
        try:
            header = read_header(path, limits=limits)
            with lenient():
                patient, study, series = _identity(header)
                instance = _text(header, "SOPInstanceUID")
        except VolumeError as error:
            damaged.append(Left(key="file", reason=str(error)))
            continue
        except MemoryError:
            raise
        except Exception as error:  # pydicom converts values when asked for them, and raises nearly everything
            damaged.append(Left(key="file", reason=f"{one_line(path)}: damaged DICOM ({type(error).__name__})"))
            continue
        if series and (not instance or instance not in seen):
            seen.add(instance)
            headers[patient, study][series].append((path, header))
    with lenient():
        readings = [_read_study(patient, study, found) for (patient, study), found in sorted(headers.items())]
    if damaged and readings:
        first = readings[0]
        readings[0] = Reading(first.patient, first.study, first.series, (*first.left, *damaged))
    elif damaged:
        raise VolumeError(damaged[0].reason)
    return readings


def _read_study(patient: str, study: str, found: dict[str, list[tuple[Path, Any]]]) -> Reading:
    ordered = sorted(found.items(), key=lambda item: (_number(item[1][0][1]) or 0, item[0]))
    volumes: list[Series] = []
    left: list[Left] = []
    used: set[str] = set()
    for place, (_, members) in enumerate(ordered, start=1):
        number = _number(members[0][1])
        key = f"s{number}" if number is not None and f"s{number}" not in used else f"x{place}"
        used.add(key)
        try:
            with lenient():
                made, without = _volumes_of(key, members)
        except VolumeError as error:
            made, without = [], [Left(key, str(error))]
        except MemoryError:
            raise
        except Exception as error:  # as above
            reason = f"header makes no sense ({type(error).__name__}: {' '.join(str(error).split())[:80]})"
            made, without = [], [Left(key, reason)]
        volumes += made
        left += without
    return Reading(patient, study, tuple(volumes), tuple(dict.fromkeys(left)))


def _identity(header: Any) -> tuple[str, str, str]:
    """Digests of person and study, and the series' UID; the person's own words stay here."""
    person = "\n".join(_text(header, name) for name in ("PatientID", "IssuerOfPatientID", "PatientName"))
    study = _text(header, "StudyInstanceUID")
    digest = hashlib.blake2b(person.encode(errors="replace"), digest_size=16).hexdigest()
    return digest, hashlib.blake2b(study.encode(errors="replace"), digest_size=16).hexdigest(), _series_uid(header)


def _series_uid(header: Any) -> str:
    return _text(header, "SeriesInstanceUID")


def _volumes_of(key: str, members: list[tuple[Path, Any]]) -> tuple[list[Series], list[Left]]:
    """The volumes of one series, and what of it is none."""
    first = members[0][1]
    description = _text(first, "SeriesDescription")
    if reason := _no_image(first):
        return [], [Left(key, reason, description)]
    frames, problems = [], []
    for path, header in members:
        try:
            frames += _frames(path, header)
        except VolumeError as error:
            problems.append(str(error))
    if not frames:
        return [], [Left(key, problems[0] if problems else "holds no image with a position", description)]
    stacks: list[tuple[list[_Frame], tuple[str, ...]]] = []
    left = [Left(key, f"{len(problems)} of its images left: {problems[0]}", description)] if problems else []
    for group in _same_grid(frames):
        try:
            stacks += _part(group)
        except VolumeError as error:
            left.append(Left(key, str(error), description))
    volumes: list[Series] = []
    for stack, remarks in stacks:
        name = key if len(stacks) == 1 else f"{key}{_letter(len(volumes))}"
        header = next(header for path, header in members if path == stack[0].path)
        try:
            volumes.append(_stacked(name, stack, remarks, _tags(header, stack[0]), members[0][0]))
        except VolumeError as error:
            left.append(Left(key, str(error), description))
    return volumes, left


def _no_image(header: Any) -> str | None:
    """Why a whole series is no MR image, if it is none."""
    kind = _text(header, "SOPClassUID")
    modality = _text(header, "Modality")
    if modality and modality != "MR":
        return f"is no MR image but {modality}"
    if kind not in IMAGE_CLASSES:
        return "is no MR image (another kind of DICOM object)"
    if int(header.get("SamplesPerPixel") or 1) != 1:
        return "is a colour picture, not a measurement"
    if "MOSAIC" in _words(header, "ImageType"):
        return "is a mosaic (many slices in one picture); export it as single slices"
    return None


def _frames(path: Path, header: Any) -> list[_Frame]:
    count = int(header.get("NumberOfFrames") or 1)
    per_frame = header.get("PerFrameFunctionalGroupsSequence")
    shared = (header.get("SharedFunctionalGroupsSequence") or [None])[0]
    if per_frame is not None and len(per_frame) != count:
        raise VolumeError(f"{one_line(path)}: describes {len(per_frame)} frames and holds {count}; export it again")
    if per_frame is None and count > 1:
        raise VolumeError(f"{one_line(path)}: {count} frames without their positions; export it as enhanced MR")
    groups = per_frame if per_frame is not None else [None]
    return [_frame(path, index, count, header, (group, shared)) for index, group in enumerate(groups)]


def _frame(path: Path, index: int, count: int, header: Any, groups: tuple[Any, Any]) -> _Frame:
    def find(keyword: str, *sequences: str) -> Any:
        for group in groups:
            for sequence in sequences:
                items = group.get(sequence) if group is not None else None
                if items and items[0].get(keyword) is not None:
                    return items[0].get(keyword)
        return header.get(keyword)

    position = _numbers(path, find("ImagePositionPatient", "PlanePositionSequence"), 3, "ImagePositionPatient")
    orientation = _numbers(
        path, find("ImageOrientationPatient", "PlaneOrientationSequence"), 6, "ImageOrientationPatient"
    )
    spacing = _numbers(path, find("PixelSpacing", "PixelMeasuresSequence"), 2, "PixelSpacing")
    _check_geometry(path, orientation, spacing)
    slope = float(find("RescaleSlope", "PixelValueTransformationSequence") or 1.0)
    intercept = float(find("RescaleIntercept", "PixelValueTransformationSequence") or 0.0)
    if not np.isfinite([slope, intercept]).all():
        raise VolumeError(f"{one_line(path)}: RescaleSlope {slope} and RescaleIntercept {intercept} must be finite")
    echo = find("EffectiveEchoTime", "MREchoSequence") or header.get("EchoTime")
    traits = (
        _number_or_none(echo),
        str(header.get("EchoNumbers")),
        str(find("FrameType", "MRImageFrameTypeSequence") or header.get("ImageType")),
        str(find("ComplexImageComponent", "MRImageFrameTypeSequence")),
        _number_or_none(_first(find("InversionTimes", "MRModifierSequence") or header.get("InversionTime"))),
        _number_or_none(find("DiffusionBValue", "MRDiffusionSequence")),
        str(find("TemporalPositionIndex", "FrameContentSequence") or header.get("TemporalPositionIdentifier")),
        _number_or_none(header.get("TriggerTime")),
        str(find("StackID", "FrameContentSequence")),
        str(header.get("AcquisitionNumber")),
        str(header.get("ContentTime")),
    )
    size = int(header.Rows), int(header.Columns)
    return _Frame(
        path,
        index,
        count,
        size,
        position,
        orientation,
        (float(spacing[0]), float(spacing[1])),
        slope,
        intercept,
        traits,
    )


def _check_geometry(path: Path, orientation: NDArray[np.float64], spacing: NDArray[np.float64]) -> None:
    row, column = orientation[:3], orientation[3:]
    lengths = np.linalg.norm(row), np.linalg.norm(column)
    if not np.allclose(lengths, 1.0, atol=0.01) or abs(row @ column) > 0.01:
        raise VolumeError(f"{one_line(path)}: ImageOrientationPatient is no pair of perpendicular directions")
    if not np.all((spacing > 0.05) & (spacing < 20.0)):
        raise VolumeError(f"{one_line(path)}: PixelSpacing {spacing.tolist()} is not between 0.05 and 20 mm")


def _same_grid(frames: Sequence[_Frame]) -> list[list[_Frame]]:
    """Frames parted by size, orientation (within a tenth of a degree) and spacing."""
    groups: list[list[_Frame]] = []
    for frame in frames:
        for group in groups:
            other = group[0]
            alike = frame.size == other.size and np.allclose(frame.spacing, other.spacing, atol=1e-3)
            if alike and np.abs(frame.orientation - other.orientation).max() < 2e-3:
                group.append(frame)
                break
        else:
            groups.append([frame])
    return groups


def _height(frame: _Frame) -> float:
    return float(np.cross(frame.orientation[:3], frame.orientation[3:]) @ frame.position)


def _places(frames: Sequence[_Frame]) -> int:
    """How many different places the frames lie at."""
    heights = np.sort([_height(frame) for frame in frames])
    return 1 + int(np.count_nonzero(np.diff(heights) > SAME_PLACE_MM))


def _part(frames: list[_Frame]) -> list[tuple[list[_Frame], tuple[str, ...]]]:
    """Stacks in which no two frames lie at the same place, with a remark where something was dropped."""
    places = _places(frames)
    if places == len(frames):
        return [(frames, ())]
    for trait in range(len(frames[0].traits)):
        groups: dict[Any, list[_Frame]] = defaultdict(list)
        for frame in frames:
            groups[frame.traits[trait]].append(frame)
        if len(groups) > 1 and min(map(len, groups.values())) * 2 > places:
            return [stack for _, group in sorted(groups.items(), key=str) for stack in _part(group)]
    unique = _without_doubles(frames)
    if len(unique) == places:
        return [(unique, (f"{len(frames) - len(unique)} doubled images dropped",))]
    raise VolumeError(f"holds {len(frames)} different images at {places} places, and nothing tells them apart")


def _without_doubles(frames: Sequence[_Frame]) -> list[_Frame]:
    """Frames without those whose place and pixels are another's."""
    kept: dict[tuple[int, bytes], _Frame] = {}
    heights = {id(frame): _height(frame) for frame in frames}
    low = min(heights.values())
    stored: dict[Path, NDArray[Any]] = {}
    for frame in frames:
        if frame.path not in stored:
            stored = {frame.path: read_frames(frame.path, frame.frames)}
        pixels = hashlib.blake2b(np.ascontiguousarray(stored[frame.path][frame.index]).data, digest_size=16).digest()
        kept.setdefault((round((heights[id(frame)] - low) / (2 * SAME_PLACE_MM)), pixels), frame)
    return list(kept.values())


def _stacked(key: str, frames: list[_Frame], remarks: tuple[str, ...], tags: Tags, origin: Path) -> Series:
    """A volume of frames that lie evenly along a line."""
    if len(frames) < SMALLEST:
        raise VolumeError(f"has {len(frames)} slices of one orientation, too few for a volume (localizer?)")
    frames = sorted(frames, key=_height)
    positions = np.stack([frame.position for frame in frames])  # [K, 3]
    step = (positions[-1] - positions[0]) / (len(frames) - 1)
    _check_even(positions, step, frames[0])
    row, column = frames[0].orientation[:3], frames[0].orientation[3:]
    affine = np.eye(4)
    affine[:3, 0], affine[:3, 1] = row * frames[0].spacing[1] * TO_RAS, column * frames[0].spacing[0] * TO_RAS
    affine[:3, 2], affine[:3, 3] = step * TO_RAS, positions[0] * TO_RAS
    rows, columns = frames[0].size
    names = (origin.parent.name, tags.description, tags.protocol, str(tags.number))
    files = tuple(dict.fromkeys(frame.path for frame in frames))
    return Series(key, tags, (columns, rows, len(frames)), affine, lambda: _load(frames), remarks, names, files)


def _check_even(positions: NDArray[np.float64], step: NDArray[np.float64], frame: _Frame) -> None:
    even = positions[0] + np.arange(len(positions))[:, None] * step
    away = np.linalg.norm(positions - even, axis=1)
    length = float(np.linalg.norm(step))
    if away.max() <= max(UNEVEN * length, 0.01):
        return
    gaps = np.diff([np.cross(frame.orientation[:3], frame.orientation[3:]) @ position for position in positions])
    usual = float(np.median(gaps))
    wide = np.flatnonzero(gaps > 1.5 * usual)
    if len(wide) and np.allclose(gaps / usual, np.rint(gaps / usual), atol=0.05):
        missing = int(np.rint(gaps / usual).sum()) - len(gaps)
        raise VolumeError(f"lacks {missing} slices (after slice {wide[0] + 1}); send the whole series again")
    raise VolumeError(f"has uneven slices, {gaps.min():.2f} to {gaps.max():.2f} mm apart; send the series as acquired")


def _load(frames: Sequence[_Frame]) -> NDArray[np.float32]:
    """Voxels as `[columns, rows, slices]`, rescaled as the headers say."""
    rows, columns = frames[0].size
    volume = np.empty((columns, rows, len(frames)), dtype=np.float32)
    path, stored = None, np.empty(0)
    for k, frame in enumerate(frames):
        if frame.path != path:
            path, stored = frame.path, read_frames(frame.path, frame.frames)
        volume[:, :, k] = stored[frame.index].T * np.float32(frame.slope) + np.float32(frame.intercept)
    if not np.isfinite(volume).all():
        raise VolumeError(f"{one_line(frames[0].path)}: rescaled pixels are not finite")
    return volume


def _tags(header: Any, frame: _Frame) -> Tags:
    shared = (header.get("SharedFunctionalGroupsSequence") or [None])[0]
    per_frame = header.get("PerFrameFunctionalGroupsSequence")
    groups = [group for group in ((per_frame or [None])[0], shared) if group is not None]

    def number(keyword: str, sequence: str = "") -> float | None:
        for group in groups:
            items = group.get(sequence)
            if items and (found := _number_or_none(_first(items[0].get(keyword)))) is not None:
                return found
        return _number_or_none(_first(header.get(keyword)))

    return Tags(
        number=_number(header),
        description=_text(header, "SeriesDescription").strip(),
        protocol=_text(header, "ProtocolName").strip(),
        sequence_name=_text(header, "SequenceName") or _text(header, "PulseSequenceName"),
        acquisition_contrast=_text(header, "AcquisitionContrast").upper(),
        angio=_text(header, "AngioFlag").upper() == "Y",
        image_type=_words(header, "ImageType"),
        scanning_sequence=_words(header, "ScanningSequence"),
        sequence_variant=_words(header, "SequenceVariant"),
        repetition_time=number("RepetitionTime", "MRTimingAndRelatedParametersSequence"),
        echo_time=frame.traits[0],
        inversion_time=frame.traits[4] or None,
        flip_angle=number("FlipAngle", "MRTimingAndRelatedParametersSequence"),
        contrast_agent=agent_given(header),
        b_value=frame.traits[5],
        slice_thickness=number("SliceThickness", "PixelMeasuresSequence"),
        burnt_in=_text(header, "BurnedInAnnotation").upper() == "YES",
    )


def agent_given(header: Any) -> bool:
    """Whether a contrast agent is entered: its name, or how and how much of it was given."""
    agent = _text(header, "ContrastBolusAgent").strip().lower()
    if agent in NO_AGENT:
        return False
    amounts = (_number_or_none(_first(header.get(keyword))) or 0.0 for keyword in AGENT_AMOUNTS)
    words = (_text(header, keyword).strip().lower() not in ("", *NO_AGENT) for keyword in AGENT_WORDS)
    return bool(agent or header.get("ContrastBolusAgentSequence")) or any(words) or any(ml > 0 for ml in amounts)


def _text(header: Any, keyword: str) -> str:
    value = header.get(keyword)
    return "" if value is None else "".join(letter if letter.isprintable() else " " for letter in str(value))[:256]


def _words(header: Any, keyword: str) -> tuple[str, ...]:
    value = header.get(keyword)
    values = [value] if isinstance(value, str) else list(value or ())
    return tuple(str(word).upper()[:64] for word in values[:16])


def _number(header: Any) -> int | None:
    try:
        number = _number_or_none(header.get("SeriesNumber"))
    except Exception:  # a value that cannot even be read
        return None
    return None if number is None or not 0 <= number < 1e6 else int(number)


def _first(value: Any) -> Any:
    many = hasattr(value, "__len__") and not isinstance(value, str)
    return (value[0] if len(value) else None) if many else value


def _number_or_none(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if np.isfinite(number) else None


def _numbers(path: Path, value: Any, count: int, keyword: str) -> NDArray[np.float64]:
    try:
        numbers = np.array([float(part) for part in value], dtype=np.float64)
    except (TypeError, ValueError):
        numbers = np.empty(0)
    if numbers.shape != (count,) or not np.isfinite(numbers).all() or np.abs(numbers).max() > 1e5:
        raise VolumeError(f"{one_line(path)}: {keyword} is missing or makes no sense, so nobody knows where it lies")
    return numbers


def _letter(place: int) -> str:
    return chr(ord("a") + place % 26) * (1 + place // 26)
