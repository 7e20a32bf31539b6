"""`diptych intake`: what a scanner gives becomes patients that models here read; `intake back` is the way back."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from diptych.errors import PartialFailure, UsageError

if TYPE_CHECKING:
    from diptych.intake import IntakeRecord
    from diptych.intake.many_patients import IntakeReport

DEFAULT = "take"


class TakeByDefault(TyperGroup):
    """`diptych intake FOLDER` means `diptych intake take FOLDER`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="intake",
    cls=TakeByDefault,
    help="Take in DICOM studies or raw NIfTI heads: typed, skull stripped, registered, in atlas space; and back.",
    no_args_is_help=True,
)


@app.command()
def take(
    sources: Annotated[
        list[Path],
        typer.Argument(
            help="DICOM folders, DICOMDIRs, ZIPs, or folders of raw NIfTI files; each may hold several patients.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder in which patients' folders are made.", show_default=False)],
    t1: Annotated[str | None, typer.Option(help="Series to take as T1, or none.", show_default="told by tags")] = None,
    t1gd: Annotated[
        str | None, typer.Option(help="Series to take as T1Gd, or none.", show_default="told by tags")
    ] = None,
    t2: Annotated[str | None, typer.Option(help="Series to take as T2, or none.", show_default="told by tags")] = None,
    flair: Annotated[str | None, typer.Option(help="Series to take as FLAIR.", show_default="told by tags")] = None,
    key: Annotated[
        str | None, typer.Option(help="Key of the patient, where there is only one.", show_default="a pseudonym")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Patients at a time; each takes up to 3 GB.")] = 1,
    json_output: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Bring patients into SRI24 space, with a record and a picture of everything done.

    Takes about a minute of processor time per patient. A second run leaves alone who was taken in before from the same
    series; one who fails is reported and skipped, and the exit code is then 4. Research use only, not a medical device.
    """
    from diptych.cli.console import print_json, progress_bar
    from diptych.intake.many_patients import intake_sources

    named = {"t1": t1, "t1gd": t1gd, "t2": t2, "flair": flair}
    overrides = {channel: series for channel, series in named.items() if series is not None}
    with progress_bar("Intake") as progress:
        report = intake_sources(sources, out, overrides=overrides, patient_key=key, workers=workers, progress=progress)
    if json_output:
        print_json(_as_json(report))
    else:
        print_report(report)
    if report.failed:
        raise PartialFailure(f"{len(report.failed)} studies failed and were skipped; the others are in {out}")


@app.command()
def back(
    patient: Annotated[Path, typer.Argument(help="A patient's folder made by intake.", show_default=False)],
    to: Annotated[
        str, typer.Option("--to", help="Series whose own grid to go to: key or channel.", show_default=False)
    ],
    labels: Annotated[
        Path | None,
        typer.Option(help="NIfTI file in atlas space: a label map, or with --image an image.", show_default="KEY-seg"),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="NIfTI file to write.", show_default="beside it")] = None,
    image: Annotated[bool, typer.Option("--image", help="It is an image such as a healthy twin, not labels.")] = False,
) -> None:
    """Bring what was drawn in atlas space back to the grid of a series as the scanner gave it."""
    from diptych.intake import file_back, read_record

    record = read_record(patient)
    file = labels or patient / f"{record.patient_key}-seg.nii.gz"
    if not file.is_file():
        raise UsageError(f"--labels: {file} is not there; name the file to bring back")
    name = file.name.removesuffix(".gz").removesuffix(".nii")
    target = out or file.with_name(f"{name}-on-{record.find(to).key}.nii.gz")
    series = file_back(file, record, to, target, as_image=image)
    print(f"{target}: on the grid of {series.key} ({series.channel}), {' x '.join(map(str, series.shape))} voxels")


def taken_in(sources: Sequence[Path], archive: Path) -> tuple[list[Path], dict[str, str]]:
    """Sources with raw ones replaced by what intake made of them, kept beside the archive; and who failed, with why."""
    from diptych.cli.console import progress_bar
    from diptych.intake.many_patients import intake_sources, needs_intake

    raw = [source for source in sources if needs_intake(source)]
    if not raw:
        return list(sources), {}
    out = archive.absolute().with_name(f"{archive.absolute().name}-intake")
    print(f"Intake first: about a minute of processor time per patient; results are kept in {out}", file=sys.stderr)
    with progress_bar("Intake") as progress:
        report = intake_sources(raw, out, progress=progress)
    for record in (*report.done, *report.unchanged):
        for warning in record.warnings:
            print(f"warning: {record.patient_key}: {warning}", file=sys.stderr)
    return [*(source for source in sources if source not in raw), *report.folders], report.failed


def print_report(report: IntakeReport) -> None:
    """What became of everybody, for people."""
    for record in report.done:
        _print_record(record)
    for record in report.unchanged:
        print(f"{record.folder}: taken in before, unchanged")
    for source, reason in report.failed.items():
        print(f"failed: {source}: {reason}", file=sys.stderr)


def _print_record(record: IntakeRecord) -> None:
    seconds = sum(record.seconds.values())
    print(f"{record.folder}: {', '.join(record.channels)}; brain {record.brain_ml:.0f} ml, {seconds:.0f} s")
    for one in record.series:
        print(f"  {one.channel:<5} {one.key:<5} {'; '.join(one.reasons)}")
    for left in record.left:
        print(f"  left  {left['key']:<5} {left['reason']}")
    for warning in record.warnings:
        print(f"warning: {warning}", file=sys.stderr)


def _as_json(report: IntakeReport) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "done": [asdict(record) for record in report.done],
        "unchanged": [record.patient_key for record in report.unchanged],
        "failed": report.failed,
    }
