"""`diptych phantom`: synthetic patients with a glioma or a stroke, written as BraTS folders."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from diptych.errors import UsageError


class Kind(StrEnum):
    """What phantoms can have."""

    GLIOMA = "glioma"
    STROKE = "stroke"


def phantom(
    folder: Annotated[Path | None, typer.Argument(hidden=True, help="The same as --out.")] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for the patients; made if it is not there.", show_default=False),
    ] = None,
    patients: Annotated[int, typer.Option(min=1, help="How many patients to make.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="Names the series: the same seed gives the same patients.")] = 0,
    disease: Annotated[Kind, typer.Option(help="What the patients have.")] = Kind.GLIOMA,
    voxel_mm: Annotated[float, typer.Option(help="Voxel edge in millimetres, 1 to 8.")] = 2.0,
    healthy: Annotated[float, typer.Option(help="Share of patients without a lesion, 0 to 1.")] = 0.0,
    low_grade: Annotated[float, typer.Option(help="Share of lesions that do not enhance, 0 to 1.")] = 0.15,
    multifocal: Annotated[float, typer.Option(help="Share of lesions with several foci, 0 to 1.")] = 0.2,
    before: Annotated[
        bool, typer.Option("--before", help="Also write each brain as it was before the tumour.")
    ] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes to use.", show_default="one per core")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Make synthetic patients, with a glioma or a chronic stroke, with exact labels and their true healthy twins.

    Each is a folder in the layout of BraTS 2023, so every other command reads it. Patients already there are left
    alone: a stopped run is resumed by running it again. Nothing is downloaded.
    """
    from dataclasses import asdict

    from diptych.cli.console import print_json, progress_bar
    from diptych.phantom import PhantomConfig, write_phantoms
    from diptych.processes import cores

    out = out or folder
    if out is None:
        raise UsageError("--out: name a folder for the patients, such as --out patients")
    config = PhantomConfig(
        disease=disease.value, voxel_mm=voxel_mm, healthy=healthy, low_grade=low_grade, multifocal=multifocal
    )
    with progress_bar("Making phantoms") as progress:
        report = write_phantoms(
            out,
            patients=patients,
            seed=seed,
            config=config,
            before=before,
            workers=workers or cores(),
            progress=progress,
        )
    if json_output:
        print_json({"folder": str(out), **asdict(report)})
    else:
        made, kept = len(report.written), len(report.unchanged)
        print(f"{out}: {made} phantoms made, {kept} already there, in {report.seconds:.1f} s")
