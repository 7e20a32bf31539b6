"""`diptych show`: patients as a contact sheet in one PNG."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diptych.errors import InputError, UsageError

if TYPE_CHECKING:
    from diptych.volumes import PatientFiles


LARGEST_SHEET = 8
"""Patients that fit side by side."""


def show(
    patients: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="PATIENT", help="Patient folders: BraTS of any release, or phantoms.", show_default=False
        ),
    ] = None,
    figure: Annotated[Path, typer.Option("--figure", help="The picture to write, a .png file.")] = Path("sheet.png"),
    out: Annotated[Path | None, typer.Option("--out", hidden=True, help="The same as --figure.")] = None,
    slices: Annotated[int, typer.Option(min=1, max=24, help="Axial slices per patient.")] = 6,
    t1: Annotated[
        Path | None, typer.Option(metavar="FILE", help="T1 image of one more patient, as a NIfTI file.")
    ] = None,
    t1gd: Annotated[Path | None, typer.Option(metavar="FILE", help="T1 with gadolinium of that patient.")] = None,
    t2: Annotated[Path | None, typer.Option(metavar="FILE", help="T2 image of that patient.")] = None,
    flair: Annotated[Path | None, typer.Option(metavar="FILE", help="FLAIR image of that patient.")] = None,
    lesion: Annotated[Path | None, typer.Option(metavar="FILE", help="Lesion labels of that patient.")] = None,
    anatomy: Annotated[Path | None, typer.Option(metavar="FILE", help="Anatomy labels of that patient.")] = None,
) -> None:
    """Draw patients' channels and labels side by side to a PNG.

    Each row is a channel, each column an axial slice (the patient's right is on the left); below come lesion and
    anatomy labels and, for phantoms, the healthy twin.
    """
    from diptych.drawing.sheet import draw_contact_sheet
    from diptych.volumes import patient_from_files, read_patient

    figure = out or figure
    if figure.suffix.lower() != ".png":
        raise UsageError(f"--figure {figure}: pictures are written as PNG; give a name that ends in .png")
    found = _find(patients or [])
    if t1 or t1gd or t2 or flair:
        found.append(patient_from_files(t1=t1, t1gd=t1gd, t2=t2, flair=flair, lesion=lesion, anatomy=anatomy))
    elif lesion or anatomy:
        raise UsageError("--lesion and --anatomy belong to a patient given by files; add --t1, --t1gd, --t2 or --flair")
    if not 0 < len(found) <= LARGEST_SHEET:
        raise UsageError(f"{len(found)} patients given: a sheet shows 1 to {LARGEST_SHEET}; name some patient folders")
    volumes = [read_patient(files) for files in found]
    for volume in volumes:
        for warning in volume.warnings:
            print(f"warning: {volume.patient_key}: {warning}", file=sys.stderr)
    sheet = draw_contact_sheet(volumes, slices=slices)
    try:
        sheet.save(figure, optimize=True)
    except OSError as error:
        raise InputError(f"{figure}: cannot be written ({error.strerror or error}); choose another place") from None
    print(f"{figure}: {', '.join(volume.patient_key for volume in volumes)} ({sheet.width}x{sheet.height} pixels)")


def _find(folders: list[Path]) -> list[PatientFiles]:
    """The patients of all folders; the limit is checked per folder, before anything is read."""
    from diptych.volumes import find_patients

    found: list[PatientFiles] = []
    for folder in folders:
        here = find_patients(folder)
        if len(here) > LARGEST_SHEET:
            first = here[0].patient_key
            raise UsageError(
                f"{folder}: holds {len(here)} patients; name up to {LARGEST_SHEET}, such as {folder / first}"
            )
        found += here
    return found
