"""De-identification at the door: a new data set that holds nothing but what is known to be harmless.

PS3.15 Annex E lists what must go; lists age. Here nothing stays unless `KEPT` names it and its value passes the check
beside it: numbers are numbers, words are of a closed vocabulary, UIDs are made anew with a secret key, dates move by a
number of days that belongs to the patient, descriptions become what intake reads in them. All other elements,
private ones, overlays and unknown sequences are not copied. Compressed pixels are decoded, since streams may carry
comments. Images with text burnt in, and what is no MR image, do not come through. Knows pydicom; no files, no network.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from importlib.metadata import version
from typing import Any

from diptych.errors import InputError
from diptych.intake.series import agent_given
from diptych.intake.series_typing import CONTRASTS, OTHER_CONTRASTS
from diptych.intake.series_words import OTHER_TYPES, in_plain_words
from diptych.pacs.vault import Original, Pseudonyms

MR_CLASSES = ("1.2.840.10008.5.1.4.1.1.4", "1.2.840.10008.5.1.4.1.1.4.1", "1.2.840.10008.5.1.4.1.1.4.4")
EXPLICIT = "1.2.840.10008.1.2.1"
PLAIN = ("1.2.840.10008.1.2", EXPLICIT)
MAX_PIXELS = 512**3
OWN = "Diptych"
"""Manufacturer of what we send: our own results are no input."""


def _listed(words: str) -> frozenset[str]:
    return frozenset(words.split())


METHODS = (
    ("113100", "Basic Application Confidentiality Profile"),
    ("113105", "Clean Descriptors Option"),
    ("113107", "Retain Longitudinal Temporal Information Modified Dates Option"),
)
CHARACTERISTICS = ("113108", "Retain Patient Characteristics Option")
OLDEST = 90
"""Years; ages beyond are one group, as few people reach them."""
WORDS = _listed(
    """ax axial tra transversal cor coronal sag sagittal 2d 3d iso mprage space cube vista tse fse se propeller blade fs
    fatsat head brain skull neuro schaedel kopf hirn"""
)
"""Words of descriptions that stay beside what intake reads in them."""
IMAGE_TYPES = _listed(
    """ORIGINAL DERIVED PRIMARY SECONDARY OTHER M P R I M_SE M_IR M_FFE M_GE NORM ND DIS2D DIS3D FM FIL FFE SE IR FSE
    LOCALIZER MPR MIP MINIP ADC EADC DIFFUSION TRACEW FA CBV CBF MTT TTP MOSAIC NONE MIXED T1 T2 PROTON_DENSITY FLAIR
    VOLUME MAGNITUDE PHASE VELOCITY REAL IMAGINARY ADDITION SUBTRACTION DIVISION MASK REFORMATTED RESAMPLED
    POST_CONTRAST PERFUSION SPIN_ECHO GRADIENT_ECHO"""
)
"""Words of ImageType and FrameType that stay beside those by which intake leaves a series."""
ACQUISITION_CONTRASTS = (*CONTRASTS, *OTHER_CONTRASTS)


class NotTaken(InputError):
    """An instance that stays outside: no MR image, our own, or broken."""


@dataclass(frozen=True, eq=False)
class Deidentified:
    """One instance, and the pseudonyms that name it."""

    dataset: Any
    """Ready to be written; `None` of its texts is the hospital's."""
    person: str
    study: str
    series: str
    instance: str
    original: Original
    series_uid: str
    burnt_in: bool = False
    """To be put aside: its pixels may name the patient."""


def deidentify(dataset: Any, names: Pseudonyms, *, server: str = "", characteristics: bool = True) -> Deidentified:
    """Make a harmless data set of an instance; nothing of the given one is shared or changed but its pixels' decoding.

    Raises:
        NotTaken: it is no MR image that anybody here reads; the message names nobody.
    """
    _check_kind(dataset)
    uids = {name: _uid(dataset, name) for name in ("StudyInstanceUID", "SeriesInstanceUID", "SOPInstanceUID")}
    original = Original(
        server, uids["StudyInstanceUID"], _text(dataset, "PatientID"), _text(dataset, "IssuerOfPatientID")
    )
    person = names.person(*_identity(dataset, original))
    context = _Context(names, names.days(person))
    out = _filtered(dataset, context)
    if agent_given(dataset):
        out.ContrastBolusAgent = "YES"  # that there was one, not its name
    _write_pixels(dataset, out)
    _write_person(dataset, out, person, characteristics, context)
    _write_method(out, characteristics)
    _write_meta(out)
    return Deidentified(
        out,
        person,
        names.study(uids["StudyInstanceUID"]),
        names.series(uids["SeriesInstanceUID"]),
        names.instance(uids["SOPInstanceUID"]),
        original,
        uids["SeriesInstanceUID"],
        burnt_in=_text(dataset, "BurnedInAnnotation").strip().upper() not in ("", "NO"),
    )


def _check_kind(dataset: Any) -> None:
    if _text(dataset, "SOPClassUID") not in MR_CLASSES or _text(dataset, "Modality") not in ("", "MR"):
        raise NotTaken("is no MR image")
    if _text(dataset, "Manufacturer").strip() == OWN:
        raise NotTaken("is a result of Diptych")
    if int(_number(dataset.get("SamplesPerPixel")) or 1) != 1:
        raise NotTaken("is a colour picture, not a measurement")


def _identity(dataset: Any, original: Original) -> tuple[str, str]:
    """What tells a person: number and who gave it, else name and birth date, else the study."""
    if original.patient_id.strip():
        return original.patient_id.strip(), original.issuer.strip()
    name, born = _text(dataset, "PatientName").strip(" ^"), _text(dataset, "PatientBirthDate").strip()
    return (f"{name}|{born}", "name") if name and born else (original.study_uid, "study")


def _uid(dataset: Any, keyword: str) -> str:
    text = _text(dataset, keyword).strip(" \0")
    if not text:
        raise NotTaken(f"has no {keyword}, so nobody knows what it belongs to")
    return text


def _text(dataset: Any, keyword: str) -> str:
    try:
        value = dataset.get(keyword)
        return "" if value is None else str(value)[:1024]
    except Exception:  # pydicom converts late, and raises nearly everything on damaged values
        return ""


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if number == number and abs(number) < 1e15 else None


@dataclass(frozen=True)
class _Context:
    names: Pseudonyms
    days: int


Check = Callable[[Any, _Context], Any]
"""A value as it may stay, or None."""


def shifted_date(text: str, days: int) -> str | None:
    """A DICOM date moved by some days; None for what is no date.

    >>> shifted_date("20190813", 20), shifted_date("2019.08.13", 20), shifted_date("20191301", 20)
    ('20190902', None, None)
    """
    if not re.fullmatch(r"\d{8}", text.strip()):
        return None
    try:
        return (date(int(text[:4]), int(text[4:6]), int(text[6:8])) + timedelta(days=days)).strftime("%Y%m%d")
    except (ValueError, OverflowError):
        return None


def _day(value: Any, context: _Context) -> str | None:
    return shifted_date(str(value), context.days)


def _time(value: Any, context: _Context) -> str | None:
    match = re.fullmatch(r"([01]\d|2[0-3])([0-5]\d)?([0-5]\d)?(\.\d{1,6})?", str(value).strip())
    return match[0] if match else None


def _new_uid(value: Any, context: _Context) -> str | None:
    text = str(value).strip(" \0")
    return context.names.uid(text) if text else None


def _numbers(value: Any, context: _Context) -> Any:
    many = list(value) if hasattr(value, "__len__") and not isinstance(value, str | bytes) else [value]
    found = [_number(one) for one in many]
    if not found or len(found) > 256 or any(one is None for one in found):
        return None
    whole = [
        int(one) if one == int(one) and isinstance(given, int) else one
        for one, given in zip(found, many, strict=True)
        if one is not None
    ]
    written = [one if isinstance(one, int) else _decimal(one) for one in whole]
    return written if len(written) > 1 else written[0]


def _decimal(number: float) -> float | int:
    """As it fits into the 16 characters of a DICOM decimal string."""
    return float(f"{number:.10g}") if number != int(number) or abs(number) > 1e9 else int(number)


def _one_of(*allowed: str) -> Check:
    def check(value: Any, context: _Context) -> Any:
        many = [value] if isinstance(value, str) else list(value or ())
        kept = [word for word in (str(one).strip().upper() for one in many[:16]) if word in allowed]
        return kept if len(kept) > 1 else next(iter(kept), None)

    return check


def _description(value: Any, context: _Context) -> str | None:
    """What intake reads in a description, in words of ours, and the plane.

    >>> _description("FLAIR cor Mr Smith", None), _description("AX T1 W/O CONTRAST", None)
    ('flair cor', 't1 pre contrast ax')
    """
    text = str(value)[:256]
    words = [word for word in dict.fromkeys(re.split(r"[\W_]+", text.lower())) if word in WORDS]
    return " ".join([*in_plain_words(text), *words])[:64] or None


def _digits(value: Any, context: _Context) -> str | None:
    text = str(value).strip()
    return text if re.fullmatch(r"\d{1,6}", text) else None


def _class(value: Any, context: _Context) -> str | None:
    return str(value) if str(value) in MR_CLASSES else None


NUMBERS = _listed(
    """SliceThickness RepetitionTime EchoTime InversionTime NumberOfAverages EchoNumbers MagneticFieldStrength
    SpacingBetweenSlices EchoTrainLength FlipAngle TriggerTime DiffusionBValue SeriesNumber AcquisitionNumber
    InstanceNumber ImagePositionPatient ImageOrientationPatient TemporalPositionIdentifier SamplesPerPixel
    NumberOfFrames Rows Columns PixelSpacing BitsAllocated BitsStored HighBit PixelRepresentation RescaleIntercept
    RescaleSlope EffectiveEchoTime InversionTimes TemporalPositionIndex InStackPositionNumber"""
)
SEQUENCES = _listed(
    """SharedFunctionalGroupsSequence PerFrameFunctionalGroupsSequence PlanePositionSequence PlaneOrientationSequence
    PixelMeasuresSequence PixelValueTransformationSequence MREchoSequence MRModifierSequence FrameContentSequence
    MRTimingAndRelatedParametersSequence MRImageFrameTypeSequence MRDiffusionSequence"""
)
"""Sequences that are looked into, by the same rules."""
KEPT: dict[str, Check] = {
    **dict.fromkeys(NUMBERS, _numbers),
    **dict.fromkeys(("StudyInstanceUID", "SeriesInstanceUID", "SOPInstanceUID", "FrameOfReferenceUID"), _new_uid),
    **dict.fromkeys(("StudyDate", "SeriesDate", "AcquisitionDate", "ContentDate"), _day),
    **dict.fromkeys(("SeriesDescription", "ProtocolName"), _description),
    "ContentTime": _time,
    "SOPClassUID": _class,
    "Modality": _one_of("MR"),
    "ImageType": _one_of(*IMAGE_TYPES, *OTHER_TYPES),
    "FrameType": _one_of(*IMAGE_TYPES, *OTHER_TYPES),
    "AcquisitionContrast": _one_of(*ACQUISITION_CONTRASTS),
    "AngioFlag": _one_of("Y", "N"),
    "ComplexImageComponent": _one_of("MAGNITUDE", "PHASE", "REAL", "IMAGINARY", "MIXED"),
    "ScanningSequence": _one_of("SE", "IR", "GR", "EP", "RM"),
    "SequenceVariant": _one_of("SK", "MTC", "SS", "TRSS", "SP", "MP", "OSP", "NONE"),
    "MRAcquisitionType": _one_of("2D", "3D"),
    "PhotometricInterpretation": _one_of("MONOCHROME1", "MONOCHROME2"),
    "BurnedInAnnotation": _one_of("YES", "NO"),
    "StackID": _digits,
}
"""Everything that may stay, and how its value is checked."""


def _filtered(dataset: Any, context: _Context) -> Any:
    """A copy of what may stay, nested sequences included."""
    from pydicom.dataset import Dataset
    from pydicom.sequence import Sequence

    out = Dataset()
    for keyword, check in KEPT.items():
        if keyword not in dataset:
            continue
        try:
            value = dataset.get(keyword)
            kept = None if value is None or value == "" else check(value, context)
            if kept is not None:
                setattr(out, keyword, kept)
        except Exception:  # a value that cannot even be read does not stay
            continue
    for keyword in SEQUENCES:
        items = dataset.get(keyword) if keyword in dataset else None
        if items:
            setattr(out, keyword, Sequence([_filtered(item, context) for item in items]))
    return out


def _write_pixels(dataset: Any, out: Any) -> None:
    """The pixels as plain numbers, exactly as many bytes as the header says."""
    pixels = int(out.get("Rows") or 0) * int(out.get("Columns") or 0) * max(1, int(out.get("NumberOfFrames") or 1))
    if not 0 < pixels <= MAX_PIXELS or int(out.get("BitsAllocated") or 0) not in (8, 16, 32):
        raise NotTaken(f"announces {pixels} pixels of {out.get('BitsAllocated')} bits, which cannot be")
    out.SamplesPerPixel, out.PhotometricInterpretation = 1, out.get("PhotometricInterpretation", "MONOCHROME2")
    syntax = str(getattr(getattr(dataset, "file_meta", None), "TransferSyntaxUID", EXPLICIT))
    wanted = pixels * int(out.BitsAllocated) // 8
    try:
        if syntax in PLAIN:
            data = bytes(dataset.PixelData)
        else:
            from pydicom.pixels import pixel_array

            data = pixel_array(dataset).tobytes()
    except Exception as error:  # decoders raise anything
        raise NotTaken(f"has pixels that cannot be decoded ({type(error).__name__})") from None
    if len(data) < wanted:
        raise NotTaken(f"has {len(data)} bytes of pixels, its header says {wanted}: it was cut off")
    out.add_new("PixelData", "OB" if out.BitsAllocated == 8 else "OW", data[:wanted] + b"\0" * (wanted % 2))


def _write_person(dataset: Any, out: Any, person: str, characteristics: bool, context: _Context) -> None:
    out.PatientID = out.PatientName = person
    out.PatientBirthDate = out.PatientSex = ""
    out.StudyID = out.AccessionNumber = out.ReferringPhysicianName = out.StudyTime = ""
    if not characteristics:
        return
    sex = _text(dataset, "PatientSex").strip().upper()
    out.PatientSex = sex if sex in ("F", "M", "O") else ""
    years = age_years(_text(dataset, "PatientAge"), _text(dataset, "PatientBirthDate"), _text(dataset, "StudyDate"))
    if years is not None:
        out.PatientAge = f"{min(years, OLDEST):03d}Y"


def age_years(age: str, born: str, day: str) -> int | None:
    """Years of age as the header has it, or from two dates; None where neither can be.

    >>> age_years("063Y", "", ""), age_years("007M", "", ""), age_years("0000", "19570302", "20190813")
    (63, 0, 62)
    """
    if match := re.fullmatch(r"(\d{3})([DWMY])", age.strip()):
        return int(int(match[1]) / {"D": 365.25, "W": 52.18, "M": 12, "Y": 1}[match[2]])
    if shifted_date(born, 0) and shifted_date(day, 0):
        first, then = (date(int(t[:4]), int(t[4:6]), int(t[6:8])) for t in (born.strip(), day.strip()))
        years = then.year - first.year - ((then.month, then.day) < (first.month, first.day))
        return years if 0 <= years < 130 else None
    return None


def _write_method(out: Any, characteristics: bool) -> None:
    """Say what was done, as PS3.15 wants it said."""
    from pydicom.dataset import Dataset
    from pydicom.sequence import Sequence

    out.PatientIdentityRemoved = "YES"
    out.LongitudinalTemporalInformationModified = "MODIFIED"
    out.DeidentificationMethod = f"Diptych {version('diptych')}: closed list of attributes"[:64]
    items = []
    for value, meaning in (*METHODS, *((CHARACTERISTICS,) if characteristics else ())):
        item = Dataset()
        item.CodeValue, item.CodingSchemeDesignator, item.CodeMeaning = value, "DCM", meaning
        items.append(item)
    out.DeidentificationMethodCodeSequence = Sequence(items)


def _write_meta(out: Any) -> None:
    from pydicom.dataset import FileMetaDataset
    from pydicom.uid import PYDICOM_IMPLEMENTATION_UID

    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = out.SOPClassUID, out.SOPInstanceUID
    meta.TransferSyntaxUID, meta.ImplementationClassUID = EXPLICIT, PYDICOM_IMPLEMENTATION_UID
    out.file_meta = meta
