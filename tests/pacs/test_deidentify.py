"""Nothing of a patient comes through the door: canaries in every text element, dates, UIDs, odd values."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from pydicom.datadict import DicomDictionary, dictionary_VR, keyword_for_tag
from pydicom.dataelem import DataElement
from pydicom.dataset import Dataset
from pydicom.sequence import Sequence
from pydicom.uid import RLELossless

from diptych.intake.dicom_files import lenient
from diptych.intake.series import _frame, _tags
from diptych.intake.series_typing import type_series
from diptych.intake.series_words import agent_by_words
from diptych.pacs.deidentify import KEPT, NotTaken, deidentify
from diptych.pacs.incoming import Incoming
from diptych.pacs.vault import Pseudonyms
from diptych.phantom.phantom_dicom import DicomStyle, write_series
from tests.intake.test_scanners import TABLE, a_series
from tests.pacs.making import series_of

NAMES = Pseudonyms(bytes(range(32)))
CANARY = "CANARY"
TEXTS = {
    **dict.fromkeys(("AE", "CS", "LO", "LT", "SH", "ST", "UC", "UT", "AS", "DA", "DT", "TM"), "{}"),
    "PN": "{}^X",
    "UR": "http://{}",
    "UI": "1.2.{}",
}
BYTES = ("OB", "OW", "UN")
KEYWORDS = {"flip_angle": "FlipAngle", "sequence_variant": "SequenceVariant", "sequence_name": "SequenceName",
            "angio": "AngioFlag", "contrast_agent": "ContrastBolusAgent", "inversion_time": "InversionTime",
            "b_value": "DiffusionBValue", "acquisition_contrast": "AcquisitionContrast"}  # fmt: skip
"""Of what a scanner says about a series: the names of our `Tags` and DICOM's."""


@pytest.fixture(scope="module")
def image(study: Path) -> Path:
    return sorted((study / "flair").glob("*.dcm"))[0]


def open_image(path: Path) -> Any:
    with lenient():
        return pydicom.dcmread(path)


def as_bytes(dataset: Any) -> bytes:
    buffer = io.BytesIO()
    with lenient():
        dataset.save_as(buffer, enforce_file_format=True)
    return buffer.getvalue()


def full_of_canaries(path: Path) -> Any:
    """The image with a mark in every text and byte element of the dictionary that it can do without, thrice nested."""
    dataset = open_image(path)
    needed = {"SOPClassUID", "Modality", "SOPInstanceUID", "SeriesInstanceUID", "StudyInstanceUID", "PixelData"}
    numbers = {name for name, check in KEPT.items() if check.__name__ == "_numbers"}
    marked = Dataset()
    with lenient():
        for tag, (vr, *_) in DicomDictionary.items():
            keyword = keyword_for_tag(tag)
            if tag >> 16 < 8 or not keyword or keyword in needed | numbers:
                continue
            if vr in TEXTS:
                marked.add_new(tag, vr, TEXTS[vr].format(CANARY))
            elif vr in BYTES:
                marked.add_new(tag, vr, CANARY.encode())
        inner = Dataset()
        inner.update(marked)
        middle = Dataset()
        middle.PlanePositionSequence, middle.RequestAttributesSequence = Sequence([inner]), Sequence([inner])
        for element in marked:
            dataset.add(element)
        dataset.SharedFunctionalGroupsSequence = Sequence([middle])
        dataset.ReferencedStudySequence = Sequence([middle])
        block = dataset.private_block(0x0029, "CANARY PRIVATE", create=True)
        block.add_new(0x01, "LO", CANARY)
        dataset.PatientID, dataset.BurnedInAnnotation, dataset.SamplesPerPixel = CANARY, "NO", 1
        dataset.Manufacturer = CANARY
        dataset.PixelData += CANARY.encode()
    return dataset


def test_no_canary_comes_through(image: Path) -> None:
    marked = full_of_canaries(image)
    assert sum(1 for _ in marked) > 1000
    with lenient():
        made = deidentify(marked, NAMES)
    assert CANARY.encode() not in as_bytes(made.dataset)
    assert (made.dataset.PatientIdentityRemoved, made.dataset.LongitudinalTemporalInformationModified) == (
        "YES",
        "MODIFIED",
    )
    codes = [item.CodeValue for item in made.dataset.DeidentificationMethodCodeSequence]
    assert codes == ["113100", "113105", "113107", "113108"]


def test_what_an_image_is_stays(image: Path) -> None:
    before = open_image(image)
    with lenient():
        after = deidentify(before, NAMES).dataset
    assert after.PixelData == before.PixelData
    for keyword in ("Rows", "EchoTime", "InversionTime", "ImagePositionPatient", "PixelSpacing", "ScanningSequence"):
        assert after[keyword].value == before[keyword].value, keyword
    assert after.SeriesDescription == "flair cor"
    assert after.SOPInstanceUID != before.SOPInstanceUID
    assert after.SOPInstanceUID.is_valid
    assert (after.PatientSex, after.PatientAge, after.PatientBirthDate) == ("O", "062Y", "")


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row[0]}-{row[4]}-{row[5]}")
def test_a_series_means_the_same_as_before(row: tuple[Any, ...], image: Path) -> None:
    description, image_type, sequence, tr, te, ti, _, more = row
    given = dict.fromkeys((*KEYWORDS.values(), "ProtocolName"))
    given |= {"SeriesDescription": description, "ImageType": image_type, "ScanningSequence": sequence}
    given |= {"RepetitionTime": tr, "EchoTime": te, "InversionTime": ti}
    given |= {KEYWORDS[name]: {"angio": "Y", "contrast_agent": "Gadovist"}.get(name, more[name]) for name in more}
    before = open_image(image)
    for keyword, value in given.items():
        if keyword in before:
            del before[keyword]
        if value is not None and value != ():
            setattr(before, keyword, list(value) if isinstance(value, tuple) else value)
    with lenient():
        after = deidentify(before, NAMES).dataset
    assert meaning(after) == meaning(before)


def meaning(header: Any) -> tuple[Any, ...]:
    """The channel of a series with this header, and what its words say of a contrast agent."""
    with lenient():
        tags = _tags(header, _frame(Path("image"), 0, 1, header, (None, None)))
    agent = agent_by_words(tags.description)
    return type_series(a_series(tags))[0], agent and agent[0], tags.contrast_agent


def test_one_patient_one_shift_one_name(image: Path, study: Path) -> None:
    first, second = open_image(image), open_image(sorted((study / "t2").glob("*.dcm"))[0])
    second.StudyDate, second.StudyInstanceUID = "20190823", "1.2.3"
    with lenient():
        one, two = (deidentify(image, NAMES) for image in (first, second))
        other = deidentify(first, Pseudonyms(bytes(32)))
    assert one.person == two.person != other.person
    days = [pydicom.valuerep.DA(made.dataset.StudyDate) for made in (one, two)]
    assert (days[1] - days[0]).days == 10
    assert days[0] != pydicom.valuerep.DA("20190813")
    assert one.study != two.study


@pytest.mark.parametrize(
    ("keyword", "value", "kept"),
    [
        ("PatientSex", "0000", ""),
        ("StudyDate", "2019-08-13", None),
        ("StudyDate", "20191341", None),
        ("ContentTime", "noon", None),
        ("ImageType", ["ORIGINAL", "SMITH", "M"], ["ORIGINAL", "M"]),
        ("ContrastBolusAgent", "Smith's Gadovist", "YES"),
        ("EchoTime", "ninety", None),
        ("ScanningSequence", "SMITH", None),
    ],
)
def test_odd_values_do_not_stay(keyword: str, value: Any, kept: Any, image: Path) -> None:
    dataset = open_image(image)
    with lenient():
        dataset.add(DataElement(keyword, dictionary_VR(keyword), value, already_converted=True))
        assert deidentify(dataset, NAMES).dataset.get(keyword) == kept


@pytest.mark.parametrize(
    ("keyword", "value", "reason"),
    [
        ("SOPClassUID", "1.2.840.10008.5.1.4.1.1.7", "no MR image"),
        ("Modality", "CT", "no MR image"),
        ("SamplesPerPixel", 3, "colour"),
        ("SOPInstanceUID", "", "has no SOPInstanceUID"),
        ("Rows", 60000, "cannot be"),
        ("Rows", 200, "cut off"),
        ("Manufacturer", "Diptych", "result of Diptych"),
    ],
)
def test_what_is_no_image_stays_outside(keyword: str, value: Any, reason: str, image: Path) -> None:
    dataset = open_image(image)
    with lenient():
        setattr(dataset, keyword, value)
        if keyword == "Rows":
            dataset.Columns = 60000 if value == 60000 else dataset.Columns
        with pytest.raises(NotTaken, match=reason):
            deidentify(dataset, NAMES)


def test_compressed_pixels_are_plain_behind_the_door(image: Path) -> None:
    dataset = open_image(image)
    plain = dataset.PixelData
    dataset.compress(RLELossless, generate_instance_uid=False)
    with lenient():
        made = deidentify(dataset, NAMES).dataset
    assert made.PixelData == plain
    assert not made.file_meta.TransferSyntaxUID.is_compressed


def test_burnt_in_text_goes_to_quarantine(quiet_door: Incoming, tmp_path: Path) -> None:
    (path, *_) = write_series(series_of()["t2"], tmp_path / "burnt", style=DicomStyle(burnt_in=True))
    study = quiet_door.take(open_image(path), "scanner")
    assert not quiet_door.study_folder(study).exists()
    assert len(list(quiet_door.vault.quarantine.rglob("*.dcm"))) == 1
    assert "burnt" in quiet_door.ledger.aside()[0][2]


def test_canaries_are_nowhere_after_indexing(quiet_door: Incoming, study: Path, tmp_path: Path) -> None:
    """Archive, ledger, what intake made, incoming files and everything else but the vault, as bytes and unpacked."""
    import gzip

    for number, path in enumerate(sorted(study.rglob("*.dcm"))):
        dataset = open_image(path) if number != 1 else full_of_canaries(path)
        dataset.PatientID, dataset.PatientName, dataset.IssuerOfPatientID = CANARY, f"{CANARY}^X", CANARY
        key = quiet_door.take(dataset, "hospital")
    quiet_door.ledger.begin(key, "hospital", "")
    folder = quiet_door.study_folder(key)
    seen = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    outcome = quiet_door.admit(key)
    assert outcome.state == "done", outcome
    for path in (path for path in tmp_path.rglob("*") if path.is_file() and "vault" not in path.parts):
        data = path.read_bytes()
        seen += data + (gzip.decompress(data) if path.name.endswith(".gz") else b"")
    original = str(open_image(sorted(study.rglob("*.dcm"))[1]).StudyInstanceUID)
    assert len(seen) > 10_000
    for mark in (CANARY, CANARY.lower(), "Phantomina", "19570302", "20190813", original):
        assert mark.encode() not in seen, mark
    assert np.any([CANARY.encode() in path.read_bytes() for path in quiet_door.vault.folder.glob("*.sqlite")])
