"""Raw-head phantoms as DICOM: what a scanner and a picture archive hand over, with everything that goes wrong there.

`write_series` writes one series as classic or enhanced MR, plain or compressed, in any slice order, slices missing
or doubled, several echoes, text in the pixels or a header that lies about the position. `write_localizer`,
`write_drawn_mask` and `write_map` add what a study also holds and intake must leave. `write_study` makes a whole
patient of these; `write_dicomdir` the index of a CD. Needs pydicom (extra `intake`). Knows nothing about reading.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.errors import MissingExtraError, UsageError
from diptych.phantom.phantom_config import PhantomConfig
from diptych.phantom.raw_head import (
    Acquisition,
    RawHead,
    RawSeries,
    acquire_series,
    draw_raw_head,
    rigid,
    usual_study,
)

MR_IMAGE = "1.2.840.10008.5.1.4.1.1.4"
ENHANCED_MR = "1.2.840.10008.5.1.4.1.1.4.1"
SYNTAXES = {
    "plain": "1.2.840.10008.1.2.1",
    "implicit": "1.2.840.10008.1.2",
    "deflated": "1.2.840.10008.1.2.1.99",
    "rle": "1.2.840.10008.1.2.5",
    "jpeg2000": "1.2.840.10008.1.2.4.90",
}
TIMING: dict[str, dict[str, Any]] = {
    "t1": {"ScanningSequence": ["GR", "IR"], "SequenceVariant": ["SP", "MP"], "RepetitionTime": 1900.0,
           "EchoTime": 2.5, "InversionTime": 850.0, "MRAcquisitionType": "3D"},
    "t1gd": {"ScanningSequence": "SE", "SequenceVariant": "SK", "RepetitionTime": 550.0, "EchoTime": 10.0,
             "MRAcquisitionType": "2D", "ContrastBolusAgent": "Gadolinium"},
    "t2": {"ScanningSequence": "SE", "SequenceVariant": "SK", "RepetitionTime": 4500.0, "EchoTime": 100.0,
           "MRAcquisitionType": "2D"},
    "flair": {"ScanningSequence": ["SE", "IR"], "SequenceVariant": "SK", "RepetitionTime": 9000.0,
              "EchoTime": 120.0, "InversionTime": 2500.0, "MRAcquisitionType": "2D"},
}  # fmt: skip
"""Usual tags of each sequence; T1 is an MPRAGE, whose inversion makes it no FLAIR."""
DESCRIPTIONS = {"t1": "MPRAGE sag", "t1gd": "T1 SE ax Gd", "t2": "T2 TSE ax", "flair": "FLAIR cor"}


@dataclass(frozen=True)
class Person:
    """Who the study claims to be of; every text here is something that must never leave intake."""

    name: str = "Canary^Phantomina"
    patient_id: str = "CANARY-4711"
    birth_date: str = "19570302"
    study_date: str = "20190813"
    institution: str = "Canary General Hospital"


@dataclass(frozen=True)
class DicomStyle:
    """How a series is put into files."""

    number: int = 1
    """SeriesNumber, also part of every UID."""
    description: str | None = None
    enhanced: bool = False
    syntax: str = "plain"
    shuffle: bool = True
    """File names and instance numbers say nothing about the order in space."""
    doubled: tuple[int, ...] = ()
    """Slices written a second time, as other instances."""
    missing: tuple[int, ...] = ()
    echoes: int = 1
    """Images per position, each with its own echo time."""
    shifted: tuple[int, float] | None = None
    """A slice whose position is off by so many millimetres along the normal."""
    burnt_in: bool = False
    """Text in the pixels, and said so in the header."""
    header_deg: tuple[float, float, float] = (0.0, 0.0, 0.0)
    header_mm: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """How far the header's position is from the truth."""
    tags: tuple[tuple[str, Any], ...] = ()
    """DICOM keywords and values that replace the usual ones; a value of None takes the tag away."""


@dataclass(frozen=True, eq=False)
class Study:
    """A written study and the truth about it."""

    folder: Path
    head: RawHead
    series: dict[str, RawSeries]
    """By channel."""


def require_pydicom() -> Any:
    """Import pydicom, or say how to install it."""
    try:
        import pydicom
    except ImportError as error:
        raise MissingExtraError("DICOM needs the package pydicom: pip install 'diptych[intake]'") from error
    return pydicom


def write_series(
    series: RawSeries, folder: Path, *, style: DicomStyle = DicomStyle(), person: Person = Person()
) -> list[Path]:
    """Write one series into `folder`, which is made; paths come back in the order of space."""
    require_pydicom()
    if style.syntax not in SYNTAXES:
        raise UsageError(f"transfer syntax {style.syntax!r} is not known; choose of {', '.join(SYNTAXES)}")
    folder.mkdir(parents=True, exist_ok=True)
    header = _common(series.acquisition, style, person)
    planes = list(_planes(series, style))
    return _write_enhanced(header, planes, folder, style) if style.enhanced else _write(header, planes, folder, style)


def write_localizer(series: RawSeries, folder: Path, *, style: DicomStyle, person: Person = Person()) -> list[Path]:
    """Three slices in each of three planes, as one series."""
    folder.mkdir(parents=True, exist_ok=True)
    header = _common(series.acquisition, replace(style, description=style.description or "localizer"), person)
    header.ImageType = ["ORIGINAL", "PRIMARY", "LOCALIZER"]
    middle = np.array(series.array.shape) // 2
    planes: list[_Plane] = []
    for axes in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        array, affine = series.array.transpose(axes), series.affine[:, [*axes, 3]]
        for step in (-1, 0, 1):
            index = int(middle[axes[2]] + 6 * step)
            position = affine[:3, 3] + affine[:3, 2] * index
            planes.append(_Plane(array[:, :, index].T, affine[:3, 0], affine[:3, 1], position, len(planes)))
    return _write(header, planes, folder, style)


def write_drawn_mask(series: RawSeries, folder: Path, *, style: DicomStyle, person: Person = Person()) -> list[Path]:
    """The lesion drawn as a mask by a workstation that kept the tags of the series it was drawn on."""
    mask = replace(series, array=np.where(series.lesion > 0, 4095, 0).astype(np.int16))
    return write_series(mask, folder, style=style, person=person)


def write_map(series: RawSeries, folder: Path, *, style: DicomStyle, person: Person = Person()) -> list[Path]:
    """A map computed by the scanner, here an ADC."""
    tags = (("ImageType", ["DERIVED", "PRIMARY", "DIFFUSION", "ADC"]), ("InversionTime", None), *style.tags)
    dark = replace(series, array=(series.array.max() - series.array).astype(np.int16))
    return write_series(dark, folder, style=replace(style, description="ep2d_diff_ADC", tags=tags), person=person)


def write_study(
    folder: Path,
    *,
    seed: int,
    index: int = 0,
    config: PhantomConfig = PhantomConfig(voxel_mm=1.0),
    acquisitions: Sequence[Acquisition] | None = None,
    styles: dict[str, DicomStyle] | None = None,
    extras: bool = True,
    person: Person = Person(),
) -> Study:
    """One patient: a series for each acquisition, and with `extras` a localizer, a map and a drawn mask.

    Args:
        folder: Made; each series gets a folder of its own.
        seed, index: Name the phantom.
        config: The phantom's own settings.
        acquisitions: The usual four where none are given.
        styles: By channel, where a series is to be written in an unusual way.
        extras: Whether the study also holds what is no sequence.
        person: The identity in the headers.
    """
    head = draw_raw_head(seed, index=index, config=config)
    chosen = usual_study(seed + index) if acquisitions is None else acquisitions
    person = person if index == 0 else replace(person, patient_id=f"{person.patient_id}-{index}")
    series = {}
    for number, acquisition in enumerate(chosen, start=2):
        style = (styles or {}).get(acquisition.channel, DicomStyle())
        style = replace(style, number=number if style.number == 1 else style.number)
        series[acquisition.channel] = acquired = acquire_series(head, acquisition, seed=seed)
        write_series(acquired, folder / f"series{number:03d}", style=style, person=person)
    if extras:
        _write_extras(series, folder, person)
    return Study(folder, head, series)


def _write_extras(series: dict[str, RawSeries], folder: Path, person: Person) -> None:
    some = next(iter(series.values()))
    write_localizer(some, folder / "series001", style=DicomStyle(number=1), person=person)
    write_map(series.get("t2", some), folder / "series020", style=DicomStyle(number=20), person=person)
    if "flair" in series:
        style = DicomStyle(number=21, description="sT2W/FLAIR")
        write_drawn_mask(series["flair"], folder / "series021", style=style, person=person)


def write_dicomdir(folder: Path, out: Path) -> Path:
    """Copy all DICOM files under `folder` to `out` as a CD has them, with their DICOMDIR, whose path comes back."""
    pydicom = require_pydicom()
    from pydicom.fileset import FileSet

    files = FileSet()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        dataset = pydicom.dcmread(path)
        dataset.StudyID, dataset.AccessionNumber = "1", ""
        files.add(dataset)
    shutil.rmtree(out, ignore_errors=True)
    files.write(out)
    files._stage[
        "t"
    ].cleanup()  # pydicom leaves its staging folder to the garbage collector, which warns at any later time
    return out / "DICOMDIR"


@dataclass(frozen=True, eq=False)
class _Plane:
    """One image: pixels `[rows, columns]`, the steps along a row and along a column, and the first pixel, RAS+."""

    pixels: NDArray[np.int16]
    row: NDArray[np.float64]
    column: NDArray[np.float64]
    position: NDArray[np.float64]
    place: int
    echo: int = 1


def _planes(series: RawSeries, style: DicomStyle) -> Iterator[_Plane]:
    """The slices of a series as the style wants them, with the header's own idea of where they are."""
    slices = series.array.shape[2]
    middle = series.affine @ np.array([*(np.array(series.array.shape) / 2), 1.0])
    affine = rigid(style.header_deg, style.header_mm, middle[:3]) @ series.affine
    normal = np.cross(affine[:3, 0], affine[:3, 1])
    normal /= np.linalg.norm(normal)
    for k in [*range(slices), *style.doubled]:
        if k in style.missing:
            continue
        off = style.shifted[1] if style.shifted and style.shifted[0] == k else 0.0
        position = affine[:3, 3] + affine[:3, 2] * k + normal * off
        for echo in range(1, style.echoes + 1):
            pixels = series.array[:, :, k].T // echo
            yield _Plane(_burn(pixels) if style.burnt_in else pixels, affine[:3, 0], affine[:3, 1], position, k, echo)


def _burn(pixels: NDArray[np.int16]) -> NDArray[np.int16]:
    """Pixels with a bright text in a corner."""
    from PIL import Image, ImageDraw

    picture = Image.new("1", pixels.shape[::-1])
    ImageDraw.Draw(picture).text((4, 4), "CANARY P.", fill=1)
    return np.where(np.array(picture), np.int16(4000), pixels)


def _uid(*parts: object) -> str:
    from pydicom.uid import generate_uid

    return str(generate_uid(entropy_srcs=["diptych phantom", *map(str, parts)]))


def _common(acquisition: Acquisition, style: DicomStyle, person: Person) -> Any:
    """Everything but pixels and geometry."""
    from pydicom.dataset import Dataset

    header = Dataset()
    header.SOPClassUID = ENHANCED_MR if style.enhanced else MR_IMAGE
    header.Modality, header.Manufacturer = "MR", "Diptych phantom"
    header.PatientName, header.PatientID = person.name, person.patient_id
    header.PatientBirthDate, header.PatientSex = person.birth_date, "O"
    header.StudyDate = header.SeriesDate = header.AcquisitionDate = header.ContentDate = person.study_date
    header.StudyTime = header.ContentTime = "101500"
    header.InstitutionName, header.AccessionNumber = person.institution, "CANARY-ACC"
    header.StudyInstanceUID = _uid(person, "study")
    header.SeriesInstanceUID = _uid(person, "series", style.number)
    header.FrameOfReferenceUID = _uid(person, "frame")
    header.SeriesNumber, header.StudyID = style.number, "1"
    header.SeriesDescription = style.description or DESCRIPTIONS[acquisition.channel]
    header.ImageType = ["ORIGINAL", "PRIMARY", "M", "NORM"]
    header.SliceThickness = f"{acquisition.thickness_mm:g}"
    header.SpacingBetweenSlices = f"{acquisition.spacing_mm or acquisition.thickness_mm:g}"
    header.SamplesPerPixel, header.PhotometricInterpretation = 1, "MONOCHROME2"
    header.BitsAllocated = header.BitsStored = 16
    header.HighBit, header.PixelRepresentation = 15, 1
    if style.burnt_in:
        header.BurnedInAnnotation = "YES"
    for keyword, value in (*TIMING[acquisition.channel].items(), *style.tags):
        if value is None:
            header.pop(keyword, None)
        else:
            setattr(header, keyword, value)
    return header


def _lps(vector: NDArray[np.float64]) -> list[str]:
    return [f"{value + 0.0:.10g}"[:16] for value in vector * (-1.0, -1.0, 1.0)]


def _orientation(plane: _Plane) -> list[str]:
    row, column = (step / np.linalg.norm(step) for step in (plane.row, plane.column))
    return [*_lps(row), *_lps(column)]


def _spacing(plane: _Plane) -> list[str]:
    return [f"{np.linalg.norm(step):.8g}" for step in (plane.column, plane.row)]


def _order(count: int, style: DicomStyle) -> list[int]:
    order = np.arange(count)
    return [int(n) for n in np.random.default_rng(style.number).permutation(order)] if style.shuffle else order.tolist()


def _write(header: Any, planes: list[_Plane], folder: Path, style: DicomStyle) -> list[Path]:
    """One file per plane."""
    paths = []
    for number, plane in zip(_order(len(planes), style), planes, strict=True):
        dataset = _copy(header)
        dataset.SOPInstanceUID = _uid(header.SeriesInstanceUID, number)
        dataset.InstanceNumber = dataset.AcquisitionNumber = number + 1
        dataset.AcquisitionNumber = 1
        dataset.ImagePositionPatient, dataset.ImageOrientationPatient = _lps(plane.position), _orientation(plane)
        dataset.PixelSpacing = _spacing(plane)
        if style.echoes > 1:
            dataset.EchoNumbers, dataset.EchoTime = plane.echo, float(header.EchoTime) * plane.echo
        _set_pixels(dataset, plane.pixels[None])
        paths.append(_save(dataset, folder / f"IM{number + 1:05d}.dcm", style))
    return paths


def _write_enhanced(header: Any, planes: list[_Plane], folder: Path, style: DicomStyle) -> list[Path]:
    """All planes as frames of one file, with the functional groups that say where each is."""
    from pydicom.dataset import Dataset
    from pydicom.sequence import Sequence as Items

    def item(**values: Any) -> Any:
        made = Dataset()
        for keyword, value in values.items():
            setattr(made, keyword, value)
        return made

    order = np.argsort(_order(len(planes), style))
    dataset = _copy(header)
    dataset.SOPInstanceUID, dataset.InstanceNumber = _uid(header.SeriesInstanceUID, "frames"), 1
    timing = item(RepetitionTime=header.RepetitionTime)
    shared = item(
        PixelMeasuresSequence=Items([item(PixelSpacing=_spacing(planes[0]), SliceThickness=header.SliceThickness)]),
        PlaneOrientationSequence=Items([item(ImageOrientationPatient=_orientation(planes[0]))]),
        MRTimingAndRelatedParametersSequence=Items([timing]),
        MRModifierSequence=Items([item(InversionTimes=float(header.get("InversionTime", 0)))]),
        PixelValueTransformationSequence=Items([item(RescaleSlope="1", RescaleIntercept="0", RescaleType="US")]),
    )
    dataset.SharedFunctionalGroupsSequence = Items([shared])
    dataset.PerFrameFunctionalGroupsSequence = Items(
        item(
            PlanePositionSequence=Items([item(ImagePositionPatient=_lps(planes[k].position))]),
            MREchoSequence=Items([item(EffectiveEchoTime=float(header.EchoTime) * planes[k].echo)]),
            FrameContentSequence=Items([item(InStackPositionNumber=n + 1, StackID="1")]),
        )
        for n, k in enumerate(order)
    )
    for keyword in ("SliceThickness", "SpacingBetweenSlices", "RepetitionTime", "EchoTime", "InversionTime"):
        dataset.pop(keyword, None)
    dataset.NumberOfFrames = len(planes)
    _set_pixels(dataset, np.stack([planes[k].pixels for k in order]))
    return [_save(dataset, folder / "IM00001.dcm", style)]


def _copy(header: Any) -> Any:
    from copy import deepcopy

    return deepcopy(header)


def _set_pixels(dataset: Any, frames: NDArray[np.int16]) -> None:
    _, dataset.Rows, dataset.Columns = frames.shape
    dataset.PixelData = np.ascontiguousarray(frames, dtype="<i2").tobytes()


def _save(dataset: Any, path: Path, style: DicomStyle) -> Path:
    from pydicom.dataset import FileMetaDataset

    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.MediaStorageSOPClassUID = dataset.SOPClassUID
    dataset.file_meta.MediaStorageSOPInstanceUID = dataset.SOPInstanceUID
    encapsulated = style.syntax in ("rle", "jpeg2000")
    dataset.file_meta.TransferSyntaxUID = SYNTAXES["plain" if encapsulated else style.syntax]
    dataset["PixelData"].VR = "OW"
    if encapsulated:
        dataset.compress(SYNTAXES[style.syntax], generate_instance_uid=False)
    dataset.save_as(path, enforce_file_format=True)
    return path
