"""`diptych edit`: what a slice would look like with its lesion removed, moved, mirrored or grown."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from diptych.cli.help_types import complete_model
from diptych.errors import InputError, UsageError


def edit(
    archive: Annotated[
        Path,
        typer.Argument(
            metavar="ARCHIVE",
            help="The archive; its lesion-free slices tell what usually stands there.",
            show_default=False,
        ),
    ],
    patient: Annotated[
        str, typer.Argument(metavar="QUERY", help="Folder of a patient, or an archived volume.", show_default=False)
    ],
    model: Annotated[
        Path | None,
        typer.Option(
            help="The model that made the archive.", show_default="the shipped one", autocompletion=complete_model
        ),
    ] = None,
    figure: Annotated[Path, typer.Option("--figure", help="The picture to write, a .png file.")] = Path("edited.png"),
    slice_number: Annotated[
        int | None,
        typer.Option("--slice", help="Index of the axial slice.", show_default="largest predicted lesion"),
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Take the lesion away.")] = False,
    move: Annotated[
        str | None,
        typer.Option(metavar="ROWS,COLUMNS", help="Move the lesion by cells: further back, further to the left."),
    ] = None,
    mirror: Annotated[bool, typer.Option("--mirror", help="Take the lesion to the other side of the head.")] = False,
    grow: Annotated[int | None, typer.Option(metavar="CELLS", help="Let the lesion grow to each side.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print the edited codes as JSON.")] = False,
) -> None:
    """Edit the lesion of a slice in its abnormal code, decode, and draw both side by side.

    For teaching: the pictures are made up by the model. Give exactly one of --remove, --move, --mirror and --grow.
    """
    from diptych.cli.console import print_json
    from diptych.retrieval import Archive
    from diptych.retrieval.edit import grow_lesion, mirror_lesion, move_lesion, remove_lesion
    from diptych.retrieval.edit_figure import draw_edit

    if figure.suffix.lower() != ".png":
        raise UsageError(f"--figure {figure}: pictures are written as PNG; give a name that ends in .png")
    if sum((remove, move is not None, mirror, grow is not None)) != 1:
        raise UsageError("what to do: give exactly one of --remove, --move, --mirror and --grow")
    rows, columns = _pair(move) if move is not None else (0, 0)
    opened = Archive.open(archive, model=model)
    is_folder = Path(patient).is_dir()
    before = (opened.encode if is_folder else opened.stored)(patient, z_index=slice_number)
    if remove:
        after = remove_lesion(opened, before)
    elif move is not None:
        after = move_lesion(opened, before, rows=rows, columns=columns)
    elif mirror:
        after = mirror_lesion(opened, before)
    else:
        after = grow_lesion(opened, before, cells=grow or 0)
    for warning in (*opened.problems, *after.warnings):
        print(f"warning: {warning}", file=sys.stderr)
    try:
        draw_edit(opened, before, after).save(figure, optimize=True)
    except OSError as error:
        raise InputError(f"{figure}: cannot be written ({error.strerror or error}); choose another place") from None
    if json_output:
        print_json(
            {
                "slice": before.z_index,
                "edited": after.name,
                "normal_ids": after.normal_ids.tolist(),
                "abnormal_ids": after.abnormal_ids.tolist(),
                "figure": figure,
                "notice": "Research use only, not a medical device",
            }
        )
    else:
        changed = int((before.abnormal_ids != after.abnormal_ids).sum())
        print(f"{figure}: {after.name} ({changed} of {before.abnormal_ids.size} cells changed)")


def _pair(text: str) -> tuple[int, int]:
    try:
        rows, columns = (int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--move {text}: give two whole numbers, rows and columns, such as 0,2 or -1,0") from None
    return rows, columns
