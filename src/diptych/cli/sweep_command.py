"""`diptych sweep`: the paper's eight configurations trained, evaluated and compared on one page."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from diptych.errors import UsageError


class Family(StrEnum):
    """Whose settings are made small."""

    PAPER = "paper"
    OURS = "ours"


def sweep(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the sweep.", show_default=False)],
    store: Annotated[
        Path | None,
        typer.Argument(metavar="STORE", help="Slice store with labels, made by 'diptych prepare'.", show_default=False),
    ] = None,
    same_store: Annotated[Path | None, typer.Option("--store", hidden=True, help="The same as STORE.")] = None,
    family: Annotated[
        Family, typer.Option(help="paper: the paper's own settings, made small; ours: those of our small preset.")
    ] = Family.PAPER,
    presets: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Names of paper presets, separated by commas.", show_default="all eight"),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Train each configuration for so many updates.", show_default="2600 of paper")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Train each configuration for about this long.", show_default="20 of ours")
    ] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Change a setting of every configuration.")
    ] = None,
    train_only: Annotated[
        bool, typer.Option("--train-only", help="Leave the evaluation to the same command without this option.")
    ] = False,
    evaluate_only: Annotated[
        bool,
        typer.Option("--evaluate-only", help="Train nothing: evaluate what is there, unfinished runs as they are."),
    ] = False,
    train_list: Annotated[
        Path | None, typer.Option(help="Text file of patients to train on.", show_default="seven tenths of the store")
    ] = None,
    test_list: Annotated[
        Path | None, typer.Option(help="Text file of patients to evaluate on.", show_default="the others")
    ] = None,
    leakiness: Annotated[
        bool, typer.Option("--leakiness", help="Measure leakiness too, minutes more for each configuration.")
    ] = False,
    page: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.md",
            help="Markdown page to write as well, each figure beside the paper's.",
            show_default=False,
        ),
    ] = None,
    beside: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of a sweep with another seed, for that page.", show_default=False),
    ] = None,
    phantoms: Annotated[
        Path | None,
        typer.Option(
            metavar="STORE", help="Slice store of phantoms to decode in a picture of that page.", show_default=False
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Start of every random draw.")] = 0,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads to use.", show_default="all cores")] = None,
) -> None:
    """Train and evaluate the paper's configurations at a size that fits the machine, and compare them on one page.

    Grids of 4x4 to 32x32, with and without distribution matching, small networks for the store's slices; grids too fine
    for the slices are left out. The same command run again goes on where it stopped; two commands with different
    --presets may work on one DIR at a time. DIR/index.html compares what is finished. The paper's family wants a store
    with blank slices and whole frames: 'diptych prepare SOURCE --out STORE --size 64 --field full --blank'.
    """
    from diptych.cli.console import progress_bar
    from diptych.evaluation.sweep import PAPER_PRESETS, SweepOptions, Trained
    from diptych.evaluation.sweep import sweep as run_sweep
    from diptych.evaluation.sweep_page import write_comparison
    from diptych.slices import SliceStore
    from diptych.training import Length

    store = store or same_store
    if store is None:
        raise UsageError("STORE: name a slice store with labels, made by 'diptych prepare'")
    if page is not None and family is not Family.PAPER:
        raise UsageError("--page shows the paper's figures beside those of --family paper; leave one of the two out")
    bounded = not (steps is None and minutes is None)
    names = PAPER_PRESETS if presets is None else tuple(name.strip() for name in presets.split(","))
    options = SweepOptions(
        store=store,
        out=out,
        presets=names,
        family=family.value,
        length=Length(steps=steps, minutes=minutes) if bounded else None,
        changes=tuple(changes or ()),
        train_only=train_only,
        evaluate_only=evaluate_only,
        train_list=train_list,
        test_list=test_list,
        leakiness=leakiness,
        seed=seed,
        threads=threads,
    )
    drawn = None if phantoms is None else SliceStore.open(phantoms)
    trained: list[Trained] = []
    for trained in run_sweep(options, show=progress_bar, say=lambda line: print(line, file=sys.stderr, flush=True)):
        print(f"{write_comparison(trained, out)}: {len(trained)} configurations", flush=True)
    if page is not None and trained:
        from diptych.evaluation.paper_page import write_page

        print(write_page(trained, page, phantoms=drawn, beside=beside), flush=True)
