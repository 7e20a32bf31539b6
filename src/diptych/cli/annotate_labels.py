"""`diptych annotate anatomy`: the six anatomy labels from an atlas."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diptych.errors import PartialFailure

if TYPE_CHECKING:
    from diptych.annotation.anatomy_labels import AnatomyReport


def anatomy(
    patients: Annotated[
        list[Path],
        typer.Argument(help="Patient folders, or folders that hold many: BraTS of any release.", show_default=False),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for the labels, one folder per patient.", show_default="beside the images"),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Make labels again where there are some, a person's included.")
    ] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes to use.", show_default="one per core")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Label left and right cerebrum, cerebellum and lateral ventricle by registering an atlas.

    Each patient gets KEY-anatomy.nii.gz, a contact sheet and a quality record; patients that have labels are left
    alone, so a stopped run is resumed by running it again. Needs skull-stripped T1; a lesion map, where there is one,
    is left out of the comparison. A patient that fails is reported and skipped; the exit code is then 4.
    """
    from dataclasses import asdict

    from diptych.annotation.anatomy_labels import annotate_anatomy
    from diptych.cli.console import print_json, progress_bar
    from diptych.processes import cores

    with progress_bar("Labelling") as progress:
        report = annotate_anatomy(patients, out=out, replace=replace, workers=workers or cores(), progress=progress)
    if json_output:
        print_json(asdict(report))
    else:
        _print_report(report)
    if report.failed:
        raise PartialFailure(f"{len(report.failed)} patients have no labels; the others have")


def _print_report(report: AnatomyReport) -> None:
    for key, quality in report.written.items():
        print(f"{key}  {quality.verdict}  similarity {quality.similarity:.2f}, outline {quality.outline:.2f}")
    print(
        f"{len(report.written)} patients labelled, {len(report.to_check)} of them to be checked; "
        f"{len(report.unchanged)} had labels; {len(report.failed)} failed; {report.seconds:.0f} s"
    )
    for key, quality in report.to_check.items():
        print(f"check: {key}: {' '.join(quality.remarks)}", file=sys.stderr)
    for key, reason in report.failed.items():
        print(f"failed: {key}: {reason}", file=sys.stderr)


def import_labels(
    patients: Annotated[
        list[Path],
        typer.Argument(help="Patient folders, or folders that hold many: BraTS of any release.", show_default=False),
    ],
    labels: Annotated[
        Path,
        typer.Option("--labels", help="Label file of one patient, or folder with a file per patient."),
    ],
    mapping: Annotated[
        Path | None,
        typer.Option(help="File that tells what each id means.", show_default="ids of FreeSurfer and SynthSeg"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for the labels, one folder per patient.", show_default="beside the images"),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace labels that are there already.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Turn FreeSurfer or SynthSeg segmentations, or any with a mapping file, into the six anatomy labels.

    The files are named KEY….nii.gz or KEY/aseg.nii.gz and may have a grid of their own. A mapping file has lines such
    as '1000-1035 left cerebrum'. A patient that fails is reported and skipped; the exit code is then 4.
    """
    from dataclasses import asdict

    from diptych.annotation import imported_labels as elsewhere
    from diptych.annotation.label_mapping import FREESURFER, read_mapping
    from diptych.cli.console import print_json, progress_bar

    meaning = FREESURFER if mapping is None else read_mapping(mapping)
    with progress_bar("Importing") as progress:
        report = elsewhere.import_labels(patients, labels, mapping=meaning, out=out, replace=replace, progress=progress)
    if json_output:
        print_json(asdict(report))
    else:
        for key, volumes in report.written.items():
            print(f"{key}  " + ", ".join(f"{name} {volume:.0f} ml" for name, volume in volumes.items()))
        print(f"{len(report.written)} imported, {len(report.unchanged)} had labels, {len(report.failed)} failed")
        for key, reason in report.failed.items():
            print(f"failed: {key}: {reason}", file=sys.stderr)
    if report.failed:
        raise PartialFailure(f"{len(report.failed)} patients have no labels; the others have")
