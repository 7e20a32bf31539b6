"""`diptych search`: ask an archive for slices, comparators or volumes like a given one."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diptych.cli.cluster_command import CLUSTER, open_any
from diptych.cli.help_types import complete_model
from diptych.cli.search_output import check_figure, finish, show_patients, show_slices, show_volumes
from diptych.errors import InputError, UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from diptych.retrieval import Answer, Archive, EncodedSlice, Question


ASKED, PLACE, FOUND = "The question", "Where in the slice", "Which matches"
"""Groups of options in `--help`."""


class Find(StrEnum):
    """What is looked for."""

    SLICES = "slices"
    COMPARATORS = "comparators"
    VOLUMES = "volumes"
    PATIENTS = "patients"


class Panel(StrEnum):
    """What is compared; the paper's words are understood, too."""

    ANATOMY = "anatomy"
    LESION = "lesion"
    BOTH = "both"
    NORMAL = "normal"
    ABNORMAL = "abnormal"


class Anywhere(StrEnum):
    SHIFTED = "shifted"
    MIRRORED = "mirrored"
    BOTH = "both"
    HISTOGRAM = "histogram"


class Preset(StrEnum):
    DEFAULT = "default"
    PAPER = "paper"


def _complete_metric(incomplete: str) -> list[str]:
    names = ("euclidean", "angular", "hamming", "learned", "overlap", "fusion")
    return [name for name in names if name.startswith(incomplete)]


def search(
    archive: Annotated[Path, typer.Argument(metavar="ARCHIVE", help="The archive's folder.", show_default=False)],
    query: Annotated[
        str | None,
        typer.Argument(
            metavar="QUERY",
            help="Folder of a patient (NIfTI, or a DICOM folder or ZIP, which is taken in), or an archived volume; "
            "may be left out with --sketch.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="The model that made the archive.", show_default="the shipped one", autocompletion=complete_model
        ),
    ] = None,
    slice_number: Annotated[
        int | None,
        typer.Option(
            "--slice",
            help="Axial plane of the query, from the bottom.",
            show_default="largest predicted lesion",
            rich_help_panel=ASKED,
        ),
    ] = None,
    find: Annotated[
        Find,
        typer.Option(
            metavar="WHAT",
            help="slices; comparators: lesion-free slices of others with the nearest anatomy; volumes: whole ones, by "
            "their codes; patients: whole ones, by overlap of their labels in three dimensions.",
            rich_help_panel=ASKED,
        ),
    ] = Find.SLICES,
    by: Annotated[
        Panel,
        typer.Option(
            metavar="anatomy|lesion|both",
            help="What to compare; the paper's words normal and abnormal are understood, too.",
            rich_help_panel=ASKED,
        ),
    ] = Panel.BOTH,
    weight: Annotated[
        float, typer.Option(help="Share of the anatomy in a search by both, 0 to 1.", rich_help_panel=ASKED)
    ] = 0.5,
    metric: Annotated[
        str,
        typer.Option(
            help="euclidean, angular, hamming, learned, overlap or fusion.",
            show_default="the best that model and archive have",
            autocompletion=_complete_metric,
            rich_help_panel=ASKED,
        ),
    ] = "default",
    rerank: Annotated[
        int | None,
        typer.Option(
            help="Let the metric choose this many volumes and order them by overlap of decoded labels.",
            show_default=False,
            rich_help_panel=ASKED,
        ),
    ] = None,
    preset: Annotated[
        Preset,
        typer.Option(
            metavar="default|paper",
            help="paper takes Euclidean distances, added raw in a search by both; default makes them comparable.",
            rich_help_panel=ASKED,
        ),
    ] = Preset.DEFAULT,
    top: Annotated[int, typer.Option(help="How many matches to return at most.", rich_help_panel=FOUND)] = 10,
    where: Annotated[
        str | None,
        typer.Option(
            help="Condition on metadata, such as \"sex = 'F' and age > 60\".", show_default=False, rich_help_panel=FOUND
        ),
    ] = None,
    per_volume: Annotated[
        bool,
        typer.Option("--per-volume", help="One match per volume instead of one per patient.", rich_help_panel=FOUND),
    ] = False,
    include_own: Annotated[
        bool,
        typer.Option("--include-own", help="Let slices of the query's own patient be found.", rich_help_panel=FOUND),
    ] = False,
    lesion_of: Annotated[
        str | None,
        typer.Option(
            metavar="QUERY",
            help="Take the lesion from this patient or volume; add :N to choose its slice.",
            show_default=False,
            rich_help_panel=ASKED,
        ),
    ] = None,
    sketch: Annotated[
        Path | None,
        typer.Option(
            help="Take the lesion from this painted label map: PNG with values 0 to 3, or NIfTI with one painted "
            "plane. Without QUERY, search --by lesion.",
            metavar="FILE",
            show_default=False,
            rich_help_panel=ASKED,
        ),
    ] = None,
    cells: Annotated[
        str | None,
        typer.Option(
            help='Compare only these grid cells, such as "3,4 3,5" (row,column).',
            metavar="CELLS",
            show_default=False,
            rich_help_panel=PLACE,
        ),
    ] = None,
    box: Annotated[
        str | None,
        typer.Option(
            help="Compare only this rectangle of the slice: top,left,bottom,right in pixels.",
            metavar="BOX",
            show_default=False,
            rich_help_panel=PLACE,
        ),
    ] = None,
    mask: Annotated[
        Path | None,
        typer.Option(
            help="Compare only where this PNG, as large as the slice, is not black.",
            metavar="FILE.png",
            show_default=False,
            rich_help_panel=PLACE,
        ),
    ] = None,
    inside_lesion: Annotated[
        bool,
        typer.Option(
            "--inside-lesion", help="Compare only where a lesion is predicted in the query.", rich_help_panel=PLACE
        ),
    ] = False,
    anywhere: Annotated[
        Anywhere | None,
        typer.Option(
            metavar="HOW",
            help="Find the lesion (--by lesion) in any place of the slice: shifted, mirrored, both, or histogram, "
            "which counts codes wherever they are.",
            show_default=False,
            rich_help_panel=PLACE,
        ),
    ] = None,
    level: Annotated[
        float | None,
        typer.Option(
            metavar="MM",
            help="Find only slices within so many millimetres of the query's level; 40 is a good width.",
            show_default="any level",
            rich_help_panel=PLACE,
        ),
    ] = None,
    figure: Annotated[
        Path | None, typer.Option(help="Draw the query and its matches in a row to this PNG.", show_default=False)
    ] = None,
    cluster: Annotated[str | None, CLUSTER] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Find what is most like a slice: the best slice of each patient, nearest first.

    The query's own patient is left out. Warnings say when a query does not look like what the model knows. Research
    use only, not a medical device.
    """
    from dataclasses import replace

    from diptych.retrieval import Question
    from diptych.search import Query
    from diptych.search.query import panel_named

    if level is not None and find in (Find.VOLUMES, Find.PATIENTS):
        raise UsageError(
            f"--level {level:g}: limits slices; whole {find.value} are compared at all levels, leave it out"
        )
    query = query if query is None else _taken_in(query, archive)
    check_figure(figure, of_volumes=find in (Find.VOLUMES, Find.PATIENTS))
    opened = open_any(archive, model=model, cluster=cluster)
    question = Question(
        by=panel_named(by.value),
        weight=weight,
        combine="paper" if preset is Preset.PAPER else "normalised",
        metric=metric,
        rerank=rerank,
        region=_region(opened, cells, box, mask),
        inside_lesion=inside_lesion,
        anywhere=None if anywhere is None else anywhere.value,
        level_mm=level,
        top=top,
        group="volume" if per_volume else "patient",
        where=where,
        include_own=include_own,
    )
    if sketch is not None:
        if lesion_of is not None or find is not Find.SLICES:
            raise UsageError("--sketch: the painted lesion finds slices; leave --lesion-of and --find out")
        answer = _ask_sketch(opened, sketch, query, slice_number, question)
        show_slices(opened, answer, figure, json_output)
        missing = list(answer.missing)
    elif query is None:
        raise UsageError("QUERY: name a patient's folder or an archived volume, or paint a lesion and give --sketch")
    elif find is Find.VOLUMES:
        if slice_number is not None:
            raise UsageError(
                f"--slice {slice_number}: whole volumes are compared with --find volumes; leave one of them out"
            )
        settled = opened.searcher.settle_codes(Query(by=question.by, metric=metric), "for whole volumes")
        question = replace(question, metric=settled.metric if preset is Preset.DEFAULT else "euclidean")
        record = opened.whole(Path(query)) if _is_folder(query) else opened.store.record(query)
        with opened.noting() as missing:
            volumes = opened.similar_volumes(record, question)
        show_volumes(opened, record, question, volumes, json_output, missing)
    elif find is Find.PATIENTS:
        if slice_number is not None or lesion_of is not None:
            raise UsageError("--find patients: compares whole patients; leave --slice and --lesion-of out")
        record = opened.whole(Path(query)) if _is_folder(query) else opened.store.record(query)
        with opened.noting() as missing:
            patients = opened.similar_patients(record, question)
        show_patients(opened, record, question, patients, json_output, missing)
    else:
        subject = _subject(opened, query, slice_number)
        if lesion_of is not None:
            subject = _with_lesion(opened, subject, lesion_of)
        ask = opened.comparators if find is Find.COMPARATORS else opened.query
        answer = ask(subject, question)
        show_slices(opened, answer, figure, json_output)
        missing = list(answer.missing)
    finish(opened.problems, missing)


def _taken_in(query: str, archive: Path) -> str:
    """What a scanner gave goes through intake first."""
    from diptych.cli.intake_command import taken_in

    if not Path(query).exists():
        return query
    folders, failed = taken_in([Path(query)], archive)
    if failed or len(folders) != 1:
        raise InputError(next(iter(failed.values()), f"{query}: holds {len(folders)} patients; ask with one of them"))
    return str(folders[0])


def _subject(archive: Archive, name: str, z_index: int | None) -> EncodedSlice:
    """A patient's folder where there is one, else an archived volume."""
    if _is_folder(name):
        return archive.encode(Path(name), z_index=z_index)
    return archive.stored(name, z_index=z_index)


def _is_folder(name: str) -> bool:
    """Whether a query names a folder; what can only be meant as a path and is not there is said to be so."""
    if Path(name).is_dir():
        return True
    if "/" in name or name in (".", "..") or Path(name).exists():
        raise InputError(f"{name}: no such folder; give the folder of a patient, or the key of an archived volume")
    return False


def _ask_sketch(archive: Archive, sketch: Path, query: str | None, z_index: int | None, question: Question) -> Answer:
    from diptych.retrieval.sketch import Sketcher, ask_sketch, read_sketch

    anatomy = None if query is None else _subject(archive, query, z_index)
    return ask_sketch(archive, Sketcher.of(archive), read_sketch(sketch), question, anatomy=anatomy)


def _with_lesion(archive: Archive, subject: EncodedSlice, lesion_of: str) -> EncodedSlice:
    from diptych.retrieval import compose

    name, colon, number = lesion_of.rpartition(":")
    if colon and number.isdigit():
        return compose(subject, _subject(archive, name, int(number)))
    return compose(subject, _subject(archive, lesion_of, None))


def _region(archive: Archive, cells: str | None, box: str | None, mask: Path | None) -> NDArray[np.bool_] | None:
    from diptych.retrieval import region_of_cells, region_of_mask, region_of_rectangle

    if sum(given is not None for given in (cells, box, mask)) > 1:
        raise UsageError("--cells, --box, --mask: give one of them")
    grid, size = archive.catalogue.index.grid, archive.model.config.image_size
    if cells is not None:
        pairs = [_numbers(cell, 2, f"--cells {cell}: each is row,column, such as 3,4") for cell in cells.split()]
        return region_of_cells([(row, column) for row, column in pairs], grid=grid)
    if box is not None:
        top, left, bottom, right = _numbers(box, 4, f"--box {box}: give top,left,bottom,right, such as 40,40,80,96")
        return region_of_rectangle((top, left, bottom, right), image_size=size, grid=grid)
    return None if mask is None else region_of_mask(_read_mask(mask), image_size=size, grid=grid)


def _numbers(text: str, count: int, complaint: str) -> list[int]:
    parts = text.split(",")
    if len(parts) != count or not all(part.strip().isdigit() for part in parts):
        raise UsageError(complaint)
    return [int(part) for part in parts]


def _read_mask(path: Path) -> NDArray[np.uint8]:
    import numpy as np
    from PIL import Image

    try:
        with Image.open(path, formats=["PNG"]) as image:
            return np.asarray(image.convert("L"))
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(
            f"{path}: cannot be read as a PNG ({error}); draw the mask on a picture of the slice"
        ) from None
