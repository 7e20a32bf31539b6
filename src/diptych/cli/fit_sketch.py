"""`diptych fit-sketch`: a finished model learns to read painted lesions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["fit_sketch"]

DEFAULT_MINUTES = 5.0


def fit_sketch(
    stores: Annotated[list[Path], typer.Argument(metavar="STORE...", help="Slice stores made by 'diptych prepare'.")],
    model: Annotated[Path, typer.Option("--model", help="Folder of the model, which is not changed.")],
    train_list: Annotated[
        Path | None,
        typer.Option(help="Text file of patients to learn from; the others judge. Without it, one in ten judges."),
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Learn for about this long.", show_default="5")] = None,
    steps: Annotated[int | None, typer.Option(help="Learn for so many steps instead, always with one result.")] = None,
    seed: Annotated[int, typer.Option(help="Start of every random draw.")] = 0,
    json_output: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Fit the label encoder that 'diptych search --sketch' needs, and store it beside the model.

    It learns which abnormal codes the model gives to slices with such lesion labels. The model's fingerprint stays
    what it is, so archives stay valid.
    """
    from dataclasses import asdict

    from diptych.cli.console import print_json, progress_bar
    from diptych.model import load_model
    from diptych.retrieval.fitting import divide_patients
    from diptych.retrieval.sketch_fitting import fit_label_encoder, judge_sketches
    from diptych.slices import PAPER_AUGMENTATION, SliceDataset, SliceStore

    network = load_model(model)
    opened = [SliceStore.open(store) for store in stores]
    split = divide_patients(opened, train_list=train_list, seed=seed)
    if steps is None and minutes is None:
        minutes = DEFAULT_MINUTES
    with progress_bar("Fitting") as progress:
        sketcher = fit_label_encoder(
            network,
            SliceDataset(opened, split.train, augmentation=PAPER_AUGMENTATION),
            steps=steps,
            minutes=minutes,
            seed=seed,
            progress=progress,
        )
    path = sketcher.save(model)
    figures = judge_sketches(sketcher, SliceDataset(opened, split.test)) if split.test else None
    if json_output:
        print_json({"file": path, "patients": len(split.train), "judged": figures and asdict(figures)})
        return
    print(f"{path}: learnt from {len(split.train)} patients")
    if figures:
        print(
            f"on {figures.slices} slices of {len(split.test)} others: same code in {figures.agreement:.0%} of cells, "
            f"{figures.lesion_agreement:.0%} of those with lesion; painted and decoded lesion overlap "
            f"{figures.lesion_dice:.2f} (Dice)"
        )
