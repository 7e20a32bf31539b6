"""`diptych annotate review …`: experts see the least certain labels first, correct them, and hand them back."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diptych.errors import PartialFailure, UsageError

if TYPE_CHECKING:
    from diptych.annotation.review.review_list import Kind


app = typer.Typer(
    name="review",
    help="List the least certain labels, export them for correction, and take corrections back.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Labels = Annotated[
    Path,
    typer.Argument(
        metavar="LABELS", help="Folder that 'annotate lesions' or 'annotate anatomy' wrote to.", show_default=False
    ),
]
KindOption = Annotated[str, typer.Option("--kind", help="Which labels: lesion or anatomy.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@app.command("list")
def list_patients(labels: Labels, kind: KindOption = "lesion", json_output: Json = False) -> None:
    """List patients, least certain first: where the ensemble disagrees, or where registration is doubtful."""
    from dataclasses import asdict

    from diptych.annotation.review import review_list as uncertain
    from diptych.cli.console import print_json

    doubts = uncertain.list_patients(labels, _kind(kind))
    if json_output:
        print_json([asdict(doubt) for doubt in doubts])
    else:
        for doubt in doubts:
            print(f"{doubt.patient_key}  {doubt.reason}")


@app.command("export")
def export(
    labels: Labels,
    out: Annotated[Path, typer.Option("--out", help="New folder for the expert.", show_default=False)],
    kind: KindOption = "lesion",
    images: Annotated[
        list[Path] | None,
        typer.Option(help="Folder with the patients' images, copied along; repeat for more.", show_default=False),
    ] = None,
    patients: Annotated[int, typer.Option(min=1, help="How many patients, least certain first.")] = 10,
    patient: Annotated[
        list[str] | None, typer.Option(help="Only this patient; repeat for more.", show_default=False)
    ] = None,
) -> None:
    """Copy labels and images into a new folder, with colour tables for ITK-SNAP and 3D Slicer."""
    from diptych.annotation.review import review_list as uncertain
    from diptych.annotation.review.review_export import export_review
    from diptych.cli.console import progress_bar

    doubts = uncertain.list_patients(labels, _kind(kind))
    if patient:
        known = {doubt.patient_key for doubt in doubts}
        if unknown := [key for key in patient if key not in known]:
            raise UsageError(f"--patient {unknown[0]}: has no {kind} labels in {labels}; 'review list' shows all")
        doubts = [doubt for doubt in doubts if doubt.patient_key in patient]
    with progress_bar("Exporting") as progress:
        manifest = export_review(
            doubts if patient else doubts[:patients], labels, out, images=images or (), progress=progress
        )
    print(f"{out}: {len(manifest.patients)} patients; edit the {kind} labels in place, then run")
    print(f"  diptych annotate review import {out} --by NAME")


@app.command("import")
def import_edits(
    review: Annotated[Path, typer.Argument(help="Folder that 'review export' wrote.", show_default=False)],
    by: Annotated[str, typer.Option("--by", help="Who made the edits; goes into the log.", show_default=False)],
    note: Annotated[str, typer.Option(help="A remark for the log.", show_default=False)] = "",
    json_output: Json = False,
) -> None:
    """Take edited labels back, each checked for shape, place and label values, and log who changed what.

    The log is edits.jsonl beside the labels; labels before each edit are kept in .history. An edit that fails its
    checks is reported and left out; the exit code is then 4.
    """
    from dataclasses import asdict

    from diptych.annotation.review.review_import import import_review
    from diptych.cli.console import print_json

    report = import_review(review, who=by, note=note)
    if json_output:
        print_json(asdict(report))
    else:
        for key, voxels in report.changed.items():
            print(f"{key}  {voxels} voxels changed")
        counts = (
            f"{len(report.changed)} edits taken back, {len(report.unchanged)} unchanged, {len(report.failed)} refused"
        )
        print(f"{counts}; log: {report.log}")
        for key, reason in report.failed.items():
            print(f"failed: {key}: {reason}", file=sys.stderr)
    if report.failed:
        raise PartialFailure(f"{len(report.failed)} edits were refused; the others are in place")


def _kind(text: str) -> Kind:
    from diptych.annotation.review.review_list import KINDS

    for kind in KINDS:
        if text == kind:
            return kind
    raise UsageError(f"--kind {text}: choose lesion or anatomy")
