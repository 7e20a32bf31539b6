"""Findings as DICOM objects under the source's own patient, study and frame of reference, through `highdicom`.

    seg      the predicted lesion, a BINARY segmentation of the series' own voxels
    twin     the healthy twin: a derived MR series, marked as generated
    capture  the answer's figure as a secondary capture
    sr       matches and volumes, a TID 1500 report: `measurement_report.py`

What the hospital's headers hold is checked before it is copied: an invalid value becomes empty, and only what says
whose and which study it is stays as it came. UIDs are made from the study and the findings, so that the same findings
are the same objects. Knows headers and findings; no server, no archive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diptych.errors import InputError
from diptych.intake.dicom_files import lenient
from diptych.pacs.deidentify import EXPLICIT, MR_CLASSES, OWN
from diptych.pacs.remote import require
from diptych.pacs.study_findings import Findings

KINDS = ("seg", "sr", "twin", "capture")
NOTICE = "Research use only, not a medical device"
NUMBERS = {"seg": 9001, "sr": 9002, "twin": 9003, "capture": 9004}
"""SeriesNumber of each kind: beyond what scanners use."""
TITLES = {"seg": "lesion", "sr": "matches", "twin": "twin, generated", "capture": "figure"}
SPECIAL = {
    "oedema": ("79654002", "Edema"),
    "necrotic or non-enhancing core": ("6574001", "Necrosis"),
    "enhancing tumour": ("108369006", "Neoplasm"),
    "infarct": ("55641003", "Infarct"),
}
"""SNOMED CT codes of classes that have one; other classes are lesions, with their own name as label."""
LESION = ("52988006", "Lesion")
PERSON = (
    "PatientName", "PatientID", "IssuerOfPatientID", "PatientBirthDate", "PatientSex", "PatientAge", "PatientSize",
    "PatientWeight", "StudyDate", "StudyTime", "StudyID", "AccessionNumber", "ReferringPhysicianName",
    "StudyDescription",
)  # fmt: skip
"""What is copied of patient and study, each value checked."""
IDENTITY = ("PatientID", "IssuerOfPatientID", "StudyInstanceUID")
"""What must stay as it came, valid or not: a PACS goes by it."""
IMAGE = (
    "SOPClassUID", "SOPInstanceUID", "StudyInstanceUID", "SeriesInstanceUID", "FrameOfReferenceUID", "Rows", "Columns",
    "NumberOfFrames", "ImagePositionPatient", "ImageOrientationPatient", "PixelSpacing", "SliceThickness",
    "SpacingBetweenSlices", "PositionReferenceIndicator", "Modality", "ScanningSequence", "SequenceVariant",
    "MRAcquisitionType", "RepetitionTime", "EchoTime", "EchoTrainLength", "InversionTime", "MagneticFieldStrength",
    "PatientPosition",
)  # fmt: skip
NEAR_MM = 0.5
"""How far a header's position may be from the grid that intake read."""


@dataclass(frozen=True, eq=False)
class Source:
    """The series that findings lie on, as the hospital's headers have it."""

    headers: tuple[Any, ...]
    """Cleaned; in the order of the grid's slices where there is one for each."""
    uid: Callable[..., str]
    """Makes UIDs of names: the same names, the same UID."""

    @property
    def first(self) -> Any:
        return self.headers[0]


def clean_header(header: Any) -> Any:
    """A copy of what results need of a header; values that DICOM does not allow become empty."""
    require("highdicom")
    from pydicom.dataset import Dataset

    out = Dataset()
    with lenient():
        for keyword in PERSON:
            value = header.get(keyword)
            valid = value is not None and (keyword in IDENTITY or _is_valid(header, keyword))
            if valid or keyword in ("PatientName", "PatientBirthDate", "PatientSex", "StudyID", "AccessionNumber"):
                setattr(out, keyword, value if valid else "")
        for keyword in (*IMAGE, "SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence"):
            if header.get(keyword) not in (None, "") and (keyword in IDENTITY or _is_valid(header, keyword)):
                setattr(out, keyword, header.get(keyword))
    if not str(out.get("PatientName", "")).isascii() or not str(out.get("StudyDescription", "")).isascii():
        out.SpecificCharacterSet = "ISO_IR 192"
    return out


def _is_valid(header: Any, keyword: str) -> bool:
    """Whether a value is as DICOM wants it; sexes are three."""
    from pydicom import config
    from pydicom.valuerep import validate_value

    try:
        element = header[keyword]
        if element.VR == "SQ":
            return True
        values = element.value if element.VM > 1 else [element.value]
        for value in values:
            validate_value(
                element.VR, str(value) if element.VR in ("DS", "IS", "DA", "TM", "PN") else value, config.RAISE
            )
    except Exception:  # pydicom raises nearly everything on damaged values
        return False
    return keyword != "PatientSex" or str(header.PatientSex) in ("M", "F", "O")


def sorted_source(headers: Sequence[Any], findings: Findings, uid: Callable[..., str]) -> Source:
    """Headers in the order of the grid's slices.

    Raises:
        InputError: the series has changed since it was taken in.
    """
    cleaned = [clean_header(one) for one in headers if str(one.get("SOPClassUID", "")) in MR_CLASSES]
    if len(cleaned) == 1 and int(cleaned[0].get("NumberOfFrames") or 1) > 1:
        return Source((cleaned[0],), uid)
    found: dict[int, Any] = {}
    for one in cleaned:
        where = np.array([float(value) for value in one.get("ImagePositionPatient") or (1e9,) * 3])
        gaps = np.linalg.norm(_positions(findings) - where, axis=1)
        if gaps.min() <= NEAR_MM:
            found.setdefault(int(gaps.argmin()), one)
    if len(found) < 0.5 * findings.series.shape[2]:
        raise InputError(
            f"{findings.volume_key}: the PACS has {len(found)} of {findings.series.shape[2]} slices of the series that "
            "was taken in; fetch it again with diptych pacs fetch --again"
        )
    return Source(tuple(found[k] for k in sorted(found)), uid)


def _positions(findings: Findings) -> NDArray[np.float64]:
    """Position of the first pixel of each slice, DICOM's LPS."""
    grid = findings.series.grid
    slices = np.arange(findings.series.shape[2])[:, None]
    return np.asarray((grid.affine[:3, 3] + grid.affine[:3, 2] * slices) * (-1.0, -1.0, 1.0))


def _directions(findings: Findings) -> tuple[list[float], tuple[float, float], float]:
    """Orientation (LPS), spacing of rows and columns, spacing of slices."""
    affine = findings.series.grid.affine[:3, :3] * np.array([[-1.0], [-1.0], [1.0]])
    steps = np.linalg.norm(affine, axis=0)
    unit = affine / steps
    return [*unit[:, 0], *unit[:, 1]], (float(steps[1]), float(steps[0])), float(steps[2])


def common(findings: Findings, source: Source, kind: str) -> dict[str, Any]:
    """What every object of ours says of itself."""
    words = f"Diptych {TITLES[kind]}; {NOTICE[0].lower()}{NOTICE[1:]}"
    return {
        "series_instance_uid": source.uid(kind, "series"),
        "series_number": NUMBERS[kind],
        "sop_instance_uid": source.uid(kind, 0),
        "instance_number": 1,
        "manufacturer": OWN,
        "series_description": words[:64],
    }


def model_name(findings: Findings) -> str:
    return f"Diptych model {findings.model[:16]}"


def make_segmentation(findings: Findings, source: Source) -> Any:
    """The predicted lesion as a BINARY segmentation; None where none is predicted."""
    hd = require("highdicom")
    if not findings.classes:
        return None
    orientation, spacing, thickness = _directions(findings)
    masks = np.stack([findings.lesion == one.value for one in findings.classes], axis=-1)
    frames = masks.transpose(2, 1, 0, 3)  # [slices, rows, columns, segments]
    with lenient():
        made = hd.seg.Segmentation(
            source_images=list(source.headers),
            pixel_array=frames.astype(np.uint8),
            segmentation_type="BINARY",
            segment_descriptions=[_segment(findings, source, n) for n in range(1, len(findings.classes) + 1)],
            plane_positions=[hd.PlanePositionSequence("PATIENT", tuple(one)) for one in _positions(findings)],
            plane_orientation=hd.PlaneOrientationSequence("PATIENT", orientation),
            pixel_measures=hd.PixelMeasuresSequence(spacing, thickness, thickness),
            manufacturer_model_name=model_name(findings),
            software_versions=version("diptych"),
            device_serial_number=findings.model[:16],
            content_label="LESION",
            content_description=NOTICE,
            content_qualification="RESEARCH",
            **common(findings, source, "seg"),
        )
    return finished(made, source)


def _segment(findings: Findings, source: Source, number: int) -> Any:
    hd = require("highdicom")
    from pydicom.sr.coding import Code

    one = findings.classes[number - 1]
    value, meaning = SPECIAL.get(one.name, LESION)
    algorithm = hd.AlgorithmIdentificationSequence(
        name="Diptych",
        family=Code("123109", "DCM", "Artificial Intelligence"),
        version=version("diptych"),
        source="Diptych",
        parameters={"model": findings.model},
    )
    return hd.seg.SegmentDescription(
        segment_number=number,
        segment_label=f"{one.name}, predicted"[:64],
        segmented_property_category=Code("49755003", "SCT", "Morphologically Abnormal Structure"),
        segmented_property_type=Code(value, "SCT", meaning),
        algorithm_type="AUTOMATIC",
        algorithm_identification=algorithm,
        tracking_uid=source.uid("segment", number),
        tracking_id=f"{findings.volume_key} {one.abbreviation}"[:64],
        display_color=hd.color.CIELabColor(*_lab(one.colour)),
    )


def _lab(colour: tuple[int, int, int]) -> tuple[float, float, float]:
    """sRGB as CIELab."""
    linear = np.array([v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in np.array(colour) / 255])
    matrix = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in matrix @ linear / (0.9505, 1.0, 1.089))
    low, high = -128.0, 127.0
    return (
        float(np.clip(116 * y - 16, 0, 100)),
        float(np.clip(500 * (x - y), low, high)),
        float(np.clip(200 * (y - z), low, high)),
    )


def make_capture(findings: Findings, source: Source) -> Any:
    """The answer's figure as a secondary capture."""
    hd = require("highdicom")
    with lenient():
        made = hd.sc.SCImage.from_ref_dataset(
            ref_dataset=source.first,
            pixel_array=np.asarray(findings.figure.convert("RGB")),
            photometric_interpretation="RGB",
            bits_allocated=8,
            coordinate_system="PATIENT",
            patient_orientation=("L", "P"),
            transfer_syntax_uid=EXPLICIT,
            **common(findings, source, "capture"),
        )
    made.BurnedInAnnotation = "YES"  # the notice and pseudonyms of matches, no name
    made.ImageComments, made.Laterality = NOTICE, ""
    made.ManufacturerModelName, made.SoftwareVersions = model_name(findings), version("diptych")
    return finished(made, source)


def make_twin(findings: Findings, source: Source) -> list[Any]:
    """The healthy twin as a derived MR series: one image for each slice."""
    from pydicom.dataset import Dataset

    orientation, spacing, thickness = _directions(findings)
    names = common(findings, source, "twin")
    images = []
    for k, position in enumerate(_positions(findings)):
        with lenient():
            image = Dataset()
            for keyword in (*PERSON, "StudyInstanceUID", "FrameOfReferenceUID", "SpecificCharacterSet"):
                if keyword in source.first:
                    image[keyword] = source.first[keyword]
            _describe_twin(image, findings, source, names, k)
            image.ImagePositionPatient = [f"{value:.10g}"[:16] for value in position]
            image.ImageOrientationPatient = [f"{value:.10g}"[:16] for value in orientation]
            image.PixelSpacing = [f"{value:.10g}"[:16] for value in spacing]
            image.SliceThickness = image.SpacingBetweenSlices = f"{thickness:.10g}"[:16]
            pixels = np.ascontiguousarray(findings.twin[:, :, k].T)
            image.Rows, image.Columns = pixels.shape
            image.PixelData = pixels.astype("<u2").tobytes()
            image["PixelData"].VR = "OW"
        images.append(finished(image, source))
    return images


def _describe_twin(image: Any, findings: Findings, source: Source, names: dict[str, Any], k: int) -> None:
    image.SOPClassUID, image.SOPInstanceUID = MR_CLASSES[0], source.uid("twin", k)
    image.SeriesInstanceUID, image.SeriesNumber = names["series_instance_uid"], names["series_number"]
    image.SeriesDescription, image.Modality, image.Manufacturer = names["series_description"], "MR", OWN
    image.ManufacturerModelName, image.SoftwareVersions = model_name(findings), version("diptych")
    image.ImageType = ["DERIVED", "SECONDARY", "OTHER"]
    image.DerivationDescription = "Generated by a neural network: what the anatomy might look like without a lesion"
    image.ImageComments = f"GENERATED IMAGE, no measurement. {NOTICE}"
    image.BurnedInAnnotation, image.LossyImageCompression, image.Laterality = "NO", "00", ""
    image.InstanceNumber, image.AcquisitionNumber = k + 1, None
    image.ScanningSequence, image.SequenceVariant, image.ScanOptions = "RM", "NONE", ""
    image.MRAcquisitionType = source.first.get("MRAcquisitionType", "")
    image.RepetitionTime = image.EchoTime = image.EchoTrainLength = None
    image.PositionReferenceIndicator = source.first.get("PositionReferenceIndicator", "")
    image.PatientPosition = source.first.get("PatientPosition", "")
    image.SamplesPerPixel, image.PhotometricInterpretation, image.PixelRepresentation = 1, "MONOCHROME2", 0
    image.BitsAllocated, image.BitsStored, image.HighBit = 16, 16, 15
    top = int(findings.twin.max()) or 1
    image.WindowCenter, image.WindowWidth = top // 2 or 1, top


def finished(made: Any, source: Source) -> Any:
    """With the type 2 elements that every object must have, and a meta header to be stored by."""
    from pydicom.dataset import FileMetaDataset
    from pydicom.uid import PYDICOM_IMPLEMENTATION_UID

    for keyword in ("StudyDate", "StudyTime", "StudyID", "AccessionNumber", "ReferringPhysicianName"):
        if keyword not in made:
            setattr(made, keyword, source.first.get(keyword, ""))
    if "SpecificCharacterSet" in source.first:
        made.SpecificCharacterSet = source.first.SpecificCharacterSet
    if not getattr(made, "file_meta", None):
        made.file_meta = FileMetaDataset()
    meta = made.file_meta
    meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = made.SOPClassUID, made.SOPInstanceUID
    meta.TransferSyntaxUID, meta.ImplementationClassUID = EXPLICIT, PYDICOM_IMPLEMENTATION_UID
    # servers keep what STOW-RS brings byte by byte, and others want to read it: as a whole file
    meta.FileMetaInformationGroupLength, meta.FileMetaInformationVersion = 0, b"\0\1"
    made.preamble = b"\0" * 128
    return made
