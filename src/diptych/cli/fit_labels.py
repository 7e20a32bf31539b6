"""`diptych fit-labels`: a finished model learns to decode small label maps for searching."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["fit_labels"]

DEFAULT_MINUTES = 10.0


def fit_labels(
    stores: Annotated[list[Path], typer.Argument(metavar="STORE...", help="Slice stores made by 'diptych prepare'.")],
    model: Annotated[Path, typer.Option("--model", help="Folder of the model, which is not changed.")],
    train_list: Annotated[
        Path | None,
        typer.Option(help="Text file of patients to learn from; the others judge. Without it, one in ten judges."),
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Learn for about this long.", show_default="10")] = None,
    steps: Annotated[int | None, typer.Option(help="Learn for so many steps instead, always with one result.")] = None,
    seed: Annotated[int, typer.Option(help="Start of every random draw.")] = 0,
    json_output: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Fit the label decoders that searches by 'overlap' and 'fusion' compare by, and store them beside the model.

    They read more out of the same codes than the model's own decoders, in less time. The model's fingerprint stays what
    it is, so archives stay valid; their label maps are decoded anew.
    """
    from dataclasses import asdict

    from diptych.cli.console import print_json, progress_bar
    from diptych.model import load_model
    from diptych.retrieval.fitting import divide_patients
    from diptych.retrieval.label_fitting import fit_label_decoders, judge_labels
    from diptych.slices import PAPER_AUGMENTATION, SliceDataset, SliceStore

    network = load_model(model)
    opened = [SliceStore.open(store) for store in stores]
    split = divide_patients(opened, train_list=train_list, seed=seed)
    if steps is None and minutes is None:
        minutes = DEFAULT_MINUTES
    with progress_bar("Fitting") as progress:
        decoders = fit_label_decoders(
            network,
            SliceDataset(opened, split.train, augmentation=PAPER_AUGMENTATION),
            steps=steps,
            minutes=minutes,
            seed=seed,
            progress=progress,
        )
    path = decoders.save(model)
    figures = judge_labels(decoders, SliceDataset(opened, split.test)) if split.test else None
    if json_output:
        print_json({"file": path, "patients": len(split.train), "judged": figures and asdict(figures)})
        return
    print(f"{path}: learnt from {len(split.train)} patients")
    if figures:
        for panel, dice in figures.after.items():
            print(
                f"{panel} labels on {figures.slices} slices of {len(split.test)} others: overlap with the truth "
                f"{dice:.2f} (Dice), as the model itself decodes them {figures.before[panel]:.2f}"
            )
