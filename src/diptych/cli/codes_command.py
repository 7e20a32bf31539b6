"""`diptych codes`: what each code of a model looks like and where it occurs, and which slices hold one."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diptych.cli.help_types import complete_model
from diptych.errors import ArchiveError, InputError, UsageError

if TYPE_CHECKING:
    from diptych.archive import ArchiveCodes


SHOWN = 40
"""Slices printed; `--json` has all of them."""


class PanelName(StrEnum):
    """One of the two codes of a slice; the paper's words are understood, too."""

    ANATOMY = "anatomy"
    LESION = "lesion"
    NORMAL = "normal"
    ABNORMAL = "abnormal"


def codes(
    archive: Annotated[Path, typer.Argument(metavar="ARCHIVE", help="The archive's folder.", show_default=False)],
    model: Annotated[
        Path | None,
        typer.Option(
            help="The model that made the archive, for --out.",
            show_default="the shipped one",
            autocompletion=complete_model,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE.html", help="Write the atlas of all codes to this file.", show_default=False
        ),
    ] = None,
    panel: Annotated[
        PanelName, typer.Option(metavar="anatomy|lesion", help="Which codebook --id belongs to.")
    ] = PanelName.LESION,
    code: Annotated[int | None, typer.Option("--id", help="List the slices that hold this code.")] = None,
    cell: Annotated[
        str | None,
        typer.Option(
            metavar="ROW,COLUMN", help="Only slices that hold it in this cell, counted from 0 at the top left."
        ),
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print the slices as JSON.")] = False,
) -> None:
    """Draw an atlas of all codes (--out), or list the slices that hold one of them (--id).

    The atlas shows what each code decodes to, where in the head it occurs, how often, and which codes are dead. It is
    one file without scripts, to be opened in any browser.
    """
    from diptych.archive import ArchiveStore

    if (out is None) == (code is None):
        raise UsageError("what to do: give --out FILE for the atlas, or --id NUMBER for the slices with a code")
    if cell is not None and code is None:
        raise UsageError(f"--cell {cell}: belongs to --id; say which code to look for there")
    stored = ArchiveStore.open(archive)
    found = stored.codes()
    if not len(found):
        raise ArchiveError(f"{archive}: holds no slice; add volumes with 'diptych index'")
    for problem in found.problems:
        print(f"warning: {problem}", file=sys.stderr)
    if out is not None:
        _write_atlas(archive, found, model, out)
    else:
        _list_slices(found, panel, code or 0, cell, json_output=json_output)
    if found.problems:
        raise ArchiveError(
            f"{archive}: {len(found.problems)} damaged volumes are left out; see 'diptych archive verify'"
        )


def _write_atlas(archive: Path, found: ArchiveCodes, model: Path | None, out: Path) -> None:
    from diptych.cli.console import progress_bar
    from diptych.retrieval import Archive
    from diptych.retrieval.code_atlas_page import draw_code_atlas

    if out.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--out {out}: the atlas is a web page; give a name that ends in .html")
    network = Archive.open(archive, model=model).network
    with progress_bar("Decoding") as progress:
        page = draw_code_atlas(found, network, title=archive.name, progress=progress)
    try:
        out.write_text(page, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{out}: cannot be written ({error.strerror or error}); choose another place") from None
    print(f"{out}: {len(page) / 1e6:.1f} MB, open it in a browser")


def _list_slices(found: ArchiveCodes, panel: PanelName, code: int, cell: str | None, *, json_output: bool) -> None:
    from dataclasses import asdict

    from diptych.cli.console import print_json
    from diptych.retrieval.code_atlas import find_code
    from diptych.search.query import panel_named

    places = find_code(
        found,
        "normal" if panel_named(panel.value) == "normal" else "abnormal",
        code,
        cell=None if cell is None else _cell(cell),
    )
    if json_output:
        print_json([asdict(place) for place in places])
        return
    where = "" if cell is None else f" at {cell}"
    volumes = len({place.volume_key for place in places})
    print(
        f"{panel} id {code}{where}: {len(places)} of {len(found)} slices, in {volumes} of {len(found.volumes)} volumes"
    )
    for place in places[:SHOWN]:
        cells = " ".join(f"{row},{column}" for row, column in place.cells)
        print(f"{place.volume_key}  slice {place.slice}  {place.z_mm:.0f} mm  cells {cells}")
    if len(places) > SHOWN:
        print(f"… {len(places) - SHOWN} more with --json")


def _cell(text: str) -> tuple[int, int]:
    try:
        row, column = (int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--cell {text}: give row and column, such as 3,4") from None
    return row, column
