"""`diptych compare`: two studies of one patient, and what has changed between them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diptych.cli.help_types import complete_model
from diptych.errors import InputError, UsageError

if TYPE_CHECKING:
    from diptych.retrieval.change import StudyChange
    from diptych.volumes import Volume


def compare(
    old: Annotated[
        str, typer.Argument(metavar="OLD", help="The earlier study: a patient folder, or a key of --archive.")
    ],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The later study, likewise.")],
    archive: Annotated[
        Path | None, typer.Option(help="Archive whose volumes OLD and NEW name.", show_default=False)
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="The model to read them with.", show_default="the shipped one", autocompletion=complete_model
        ),
    ] = None,
    figure: Annotated[Path | None, typer.Option(help="Picture to write, a .png file.", show_default=False)] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print volumes, slices and cells as JSON.")] = False,
    register: Annotated[
        bool, typer.Option("--register/--no-register", help="Bring the old study onto the new one first.")
    ] = True,
) -> None:
    """Compare two studies of one patient: lesion volumes by kind, and the cells whose code changed.

    Volumes are the model's prediction. The words increased, stable and decreased follow RANO's thresholds for volumes;
    they are no diagnosis. Research use only, not a medical device.
    """
    if figure is not None and figure.suffix.lower() != ".png":
        raise UsageError(f"--figure {figure}: pictures are written as PNG; give a name that ends in .png")
    from diptych.archive.encoding import NetworkEncoder
    from diptych.cli.console import print_json, progress_bar
    from diptych.model import load_model
    from diptych.model.shipped import shipped_model
    from diptych.retrieval.change import compare_studies

    network = load_model(model or shipped_model())
    first, second = _read(old, archive), _read(new, archive)
    with progress_bar("Comparing") as progress:
        change = compare_studies(first, second, NetworkEncoder(network), network, register=register, progress=progress)
    if figure is not None:
        _draw(change, figure)
    if json_output:
        print_json(change.to_json())
        return
    print(f"{change.old_key} → {change.new_key}: {change.words}")
    for one in change.classes:
        percent = "" if one.percent is None else f"{one.percent:+6.0f} %"
        print(f"  {one.name:<14}{one.old_ml:8.1f} → {one.new_ml:6.1f} ml  {percent:>8}  {one.rano}")
    print("Predicted by the model. Research use only, not a medical device.")
    if figure is not None:
        print(f"{figure}: both studies, what was subtracted, and what changed")


def _draw(change: StudyChange, figure: Path) -> None:
    from diptych.retrieval.change_figure import draw_change

    try:
        draw_change(change).save(figure, optimize=True)
    except OSError as error:
        raise InputError(f"{figure}: cannot be written ({error.strerror or error}); choose another place") from None


def _read(name: str, archive: Path | None) -> Volume:
    """A study from its folder, or from an archive that keeps its images."""
    from dataclasses import replace

    from diptych.archive import ArchiveStore
    from diptych.archive.copies import patient_files
    from diptych.retrieval.encoded_slice import read_one
    from diptych.volumes import read_patient

    if archive is None:
        return read_one(Path(name))
    store = ArchiveStore.open(archive)
    info = store.record(name).info
    if not info.files:
        raise InputError(f"{name}: the archive keeps its codes only; compare the patient folders")
    return replace(read_patient(patient_files(store.path, info)), patient_key=info.volume_key)
