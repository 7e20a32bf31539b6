"""`diptych fit-sketch`: a finished model learns to read painted lesions."""

from __future__ import annotations

from typing import Annotated

import typer

from diptych.cli.fitting import Json, Model, Seed, Steps, Stores, TrainList, gather

__all__ = ["fit_sketch"]

DEFAULT_MINUTES = 5.0


def fit_sketch(
    stores: Stores,
    model: Model,
    train_list: TrainList = None,
    minutes: Annotated[float | None, typer.Option(help="Learn for about this long.", show_default="5")] = None,
    steps: Steps = None,
    seed: Seed = 0,
    json_output: Json = False,
) -> None:
    """Fit the label encoder that 'diptych search --sketch' needs, and store it beside the model.

    It learns which abnormal codes the model gives to slices with such lesion labels. The model's fingerprint stays
    what it is, so archives stay valid.
    """
    from dataclasses import asdict

    from diptych.cli.console import print_json, progress_bar
    from diptych.retrieval.sketch_fitting import fit_label_encoder, judge_sketches

    given = gather(stores, model, train_list=train_list, seed=seed)
    if steps is None and minutes is None:
        minutes = DEFAULT_MINUTES
    with progress_bar("Fitting") as progress:
        sketcher = fit_label_encoder(
            given.network, given.train, steps=steps, minutes=minutes, seed=seed, progress=progress
        )
    path = sketcher.save(model)
    figures = None if given.test is None else judge_sketches(sketcher, given.test)
    patients = len(given.train.keys)
    if json_output:
        print_json({"file": path, "patients": patients, "judged": figures and asdict(figures)})
        return
    print(f"{path}: learnt from {patients} patients")
    if figures and given.test:
        print(
            f"on {figures.slices} slices of {len(given.test.keys)} others: same code in {figures.agreement:.0%} of "
            f"cells, {figures.lesion_agreement:.0%} of those with lesion; painted and decoded lesion overlap "
            f"{figures.lesion_dice:.2f} (Dice)"
        )
