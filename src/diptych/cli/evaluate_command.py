"""`diptych evaluate`: patients with labels and a model in, one page of figures out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from diptych.cli.help_types import complete_model
from diptych.model.shipped import DEFAULT_MODEL


def evaluate(
    out: Annotated[Path, typer.Option("--out", metavar="REPORT", help="Folder of the report.", show_default=False)],
    stores: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="STORE", help="Slice stores with labels, made by 'diptych prepare'.", show_default=False
        ),
    ] = None,
    more_stores: Annotated[list[Path] | None, typer.Option("--store", hidden=True, help="The same as STORE.")] = None,
    archive: Annotated[
        Path | None,
        typer.Option(
            help="Archive of the same model; without a store, its patients with labels are evaluated.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            help="Folder of the model, or the name of a shipped one.",
            show_default=DEFAULT_MODEL,
            autocompletion=complete_model,
        ),
    ] = None,
    test_list: Annotated[
        Path | None, typer.Option(help="Text file of patients to ask about.", show_default="all with labels")
    ] = None,
    reference_list: Annotated[
        Path | None, typer.Option(help="Text file of patients to search.", show_default="those of the test list")
    ] = None,
    parts: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="Names of parts, separated by commas, or 'all'.", show_default="the quick ones"
        ),
    ] = None,
    autoencoder_images: Annotated[
        int, typer.Option(min=8, help="Images to train the autoencoder among the baselines on.")
    ] = 800,
    seed: Annotated[int, typer.Option(help="Start of every random draw.")] = 0,
    json_output: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Measure a model on patients with labels, beside the oracle, chance and what else one could use.

    Every part's result is kept: the same command run again goes on where it stopped, and a part is run again only when
    the model, the data, the seed or the part itself has changed. REPORT/index.html is one page that holds everything.
    """
    from diptych.cli.console import print_json, progress_bar
    from diptych.errors import UsageError
    from diptych.evaluation.context import Context
    from diptych.evaluation.evaluation_data import store_of_archive
    from diptych.evaluation.parts import NAMES, find_parts
    from diptych.evaluation.report import results, terminal_lines, write_report
    from diptych.evaluation.runner import kept_parts, report_folder, run_parts
    from diptych.model.shipped import named_model, shipped_model
    from diptych.slices import SliceStore
    from diptych.slices.splits import read_keys

    asked = find_parts(
        None if parts is None else NAMES if parts == "all" else [part.strip() for part in parts.split(",")]
    )
    stores = [*(stores or ()), *(more_stores or ())]
    if not stores and archive is None:
        raise UsageError("nothing to evaluate: give a slice store or an archive with labels (--archive)")
    folder, cache = named_model(model) if model else shipped_model(), report_folder(out) / "cache"
    opened = [SliceStore.open(store) for store in stores]
    if not opened and archive is not None:
        with progress_bar("Reading the archive") as progress:
            opened.append(store_of_archive(archive, folder, cache / "store", progress=progress))
    context = Context.open(
        opened,
        folder,
        cache=cache,
        queries=None if test_list is None else read_keys(test_list),
        references=None if reference_list is None else read_keys(reference_list),
        seed=seed,
        archive=archive,
        autoencoder_images=autoencoder_images,
    )
    finished = run_parts(context, asked, out, show=progress_bar)
    everything = kept_parts(context, out)
    page = write_report(everything, context, out)
    if json_output:
        print_json(results(everything, context))
        return
    print("\n".join(terminal_lines(finished)))
    print(f"{page}: {len(everything)} parts")
