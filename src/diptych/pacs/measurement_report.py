"""Matches and volumes as a TID 1500 measurement report (Comprehensive SR), through `highdicom`.

    a group for each class of lesion    volume in mL, the segment it was counted in
    a group for each match              rank, distance, expected agreement with its interval, level; side as a code

Codes that no standard has are ours, of the scheme 99DIPTYCH. Knows findings and headers; no server.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from diptych.intake.dicom_files import lenient
from diptych.pacs.dicom_results import NOTICE, SPECIAL, Source, common, finished, model_name
from diptych.pacs.remote import require
from diptych.pacs.study_findings import Findings, MatchFinding

SCHEME = "99DIPTYCH"
SIDES = {
    "right": ("24028007", "Right"),
    "left": ("7771000", "Left"),
    "both": ("51440002", "Bilateral"),
}
OWN_CODES = {
    "match": "Similar case",
    "rank": "Rank of match",
    "distance": "Distance of codes",
    "anatomy": "Expected agreement of anatomy",
    "lesion": "Expected agreement of lesion",
    "low": "lower end of nine in ten",
    "high": "upper end of nine in ten",
    "level": "Level of matched slice in the atlas",
    "slice": "Number of matched slice",
}


def make_report(findings: Findings, source: Source, segmentation: Any) -> Any:
    """The report; without groups of volumes where no lesion was found."""
    hd = require("highdicom")
    from pydicom.sr.coding import Code

    with lenient():
        context = _observer(findings, source)
        groups = [*_volumes(findings, source, segmentation), *_matches(findings, source)]
        content = hd.sr.MeasurementReport(
            observation_context=context,
            procedure_reported=Code("816077007", "SCT", "MRI of brain"),
            imaging_measurements=groups,
            title=Code("126000", "DCM", "Imaging Measurement Report"),
            referenced_images=list(source.headers[:1]),
        )
        _remark(content, findings)
        made = hd.sr.ComprehensiveSR(
            evidence=[*source.headers, *([] if segmentation is None else [segmentation])],
            content=content[0],
            is_complete=True,
            content_qualification="RESEARCH",
            coding_schemes=[_scheme()],
            **common(findings, source, "sr"),
        )
    made.ManufacturerModelName, made.SoftwareVersions = model_name(findings), version("diptych")
    return finished(made, source)


def _scheme() -> Any:
    return require("highdicom.coding_schemes").CodingSchemeIdentificationItem(
        designator=SCHEME, name="Diptych", version="1", responsible_organization="Diptych"
    )


def _observer(findings: Findings, source: Source) -> Any:
    hd = require("highdicom")
    from pydicom.sr.coding import Code

    device = hd.sr.DeviceObserverIdentifyingAttributes(
        uid=source.uid("device", findings.model), name="Diptych", manufacturer_name="Diptych",
        model_name=model_name(findings), serial_number=findings.model[:16],
    )  # fmt: skip
    return hd.sr.ObservationContext(
        observer_device_context=hd.sr.ObserverContext(
            observer_type=Code("121007", "DCM", "Device"), observer_identifying_attributes=device
        )
    )


def _remark(content: Any, findings: Findings) -> None:
    """What the report must not be used for, and what was asked, in words."""
    hd = require("highdicom")
    from pydicom.sr.coding import Code

    lesion = "" if findings.classes else " No lesion is predicted."
    text = (
        f"{NOTICE}. Matches are pseudonymous cases of a research archive, nearest first by {findings.metric}; asked "
        f"with {findings.asked}. Lesion and volumes are predicted by a model.{lesion}"
    )
    content[0].ContentSequence.append(
        hd.sr.TextContentItem(Code("121106", "DCM", "Comment"), text, relationship_type="CONTAINS")
    )


def _own(name: str, *more: str) -> Any:
    from pydicom.sr.coding import Code

    return Code("-".join((name, *more)).upper()[:16], SCHEME, ", ".join(OWN_CODES[one] for one in (name, *more))[:64])


def _number(name: Any, value: float, unit: Sequence[str]) -> Any:
    from pydicom.sr.coding import Code

    return require("highdicom").sr.Measurement(name=name, value=round(float(value), 6), unit=Code(*unit))


def _volumes(findings: Findings, source: Source, segmentation: Any) -> list[Any]:
    hd = require("highdicom")
    from pydicom.sr.coding import Code

    groups = []
    millilitres = findings.millilitres
    for number, one in enumerate(findings.classes, start=1):
        value, meaning = SPECIAL.get(one.name, ("52988006", "Lesion"))
        groups.append(
            hd.sr.VolumetricROIMeasurementsAndQualitativeEvaluations(
                tracking_identifier=hd.sr.TrackingIdentifier(source.uid("segment", number), f"predicted {one.name}"),
                referenced_segment=hd.sr.ReferencedSegment(
                    sop_class_uid=segmentation.SOPClassUID,
                    sop_instance_uid=segmentation.SOPInstanceUID,
                    segment_number=number,
                    source_images=[
                        hd.sr.SourceImageForSegmentation(image.SOPClassUID, image.SOPInstanceUID)
                        for image in source.headers
                    ],
                ),
                finding_type=Code(value, "SCT", meaning),
                finding_sites=[hd.sr.FindingSite(Code("12738006", "SCT", "Brain"))],
                algorithm_id=hd.sr.AlgorithmIdentification("Diptych", version("diptych"), [f"model {findings.model}"]),
                measurements=[
                    _number(Code("118565006", "SCT", "Volume"), millilitres[one.value], ("mL", "UCUM", "milliliter"))
                ],
            )
        )
    return groups


def _matches(findings: Findings, source: Source) -> list[Any]:
    return [_match(one, source) for one in findings.matches]


def _match(match: MatchFinding, source: Source) -> Any:
    hd = require("highdicom")
    from pydicom.sr.coding import Code

    plain, share = ("1", "UCUM", "no units"), ("%", "UCUM", "percent")
    numbers = [
        _number(_own("rank"), match.rank, plain),
        _number(_own("distance"), match.distance, plain),
        _number(_own("slice"), match.z_index, plain),
        _number(_own("level"), match.level_mm, ("mm", "UCUM", "millimeter")),
    ]
    for panel, expected, low, high in match.agreements:
        numbers.append(_number(_own(panel), 100 * expected, share))
        numbers.append(_number(_own(panel, "low"), 100 * low, share))
        numbers.append(_number(_own(panel, "high"), 100 * high, share))
    sides = []
    if match.side in SIDES:
        value, meaning = SIDES[match.side]
        name = Code("272741003", "SCT", "Laterality")
        sides.append(hd.sr.QualitativeEvaluation(name, Code(value, "SCT", meaning)))
    return hd.sr.MeasurementsAndQualitativeEvaluations(
        tracking_identifier=hd.sr.TrackingIdentifier(
            source.uid("match", match.rank, match.volume_key), f"match {match.rank}: {match.volume_key}"
        ),
        finding_type=_own("match"),
        measurements=numbers,
        qualitative_evaluations=sides or None,
    )
