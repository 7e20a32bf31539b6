"""`diptych fit-labels`: a finished model learns to decode small label maps for searching."""

from __future__ import annotations

from typing import Annotated

import typer

from diptych.cli.fitting import Json, Model, Seed, Steps, Stores, TrainList, gather

__all__ = ["fit_labels"]

DEFAULT_MINUTES = 10.0


def fit_labels(
    stores: Stores,
    model: Model,
    train_list: TrainList = None,
    minutes: Annotated[float | None, typer.Option(help="Learn for about this long.", show_default="10")] = None,
    steps: Steps = None,
    seed: Seed = 0,
    json_output: Json = False,
) -> None:
    """Fit the label decoders that searches by 'overlap' and 'fusion' compare by, and store them beside the model.

    They read more out of the same codes than the model's own decoders, in less time. The model's fingerprint stays what
    it is, so archives stay valid; their label maps are decoded anew.
    """
    from dataclasses import asdict

    from diptych.cli.console import print_json, progress_bar
    from diptych.retrieval.label_fitting import fit_label_decoders, judge_labels

    given = gather(stores, model, train_list=train_list, seed=seed)
    if steps is None and minutes is None:
        minutes = DEFAULT_MINUTES
    with progress_bar("Fitting") as progress:
        decoders = fit_label_decoders(
            given.network, given.train, steps=steps, minutes=minutes, seed=seed, progress=progress
        )
    path = decoders.save(model)
    figures = None if given.test is None else judge_labels(decoders, given.test)
    patients = len(given.train.keys)
    if json_output:
        print_json({"file": path, "patients": patients, "judged": figures and asdict(figures)})
        return
    print(f"{path}: learnt from {patients} patients")
    if figures and given.test:
        for panel, dice in figures.after.items():
            own = f", as the model itself decodes them {figures.before[panel]:.2f}" if panel in figures.before else ""
            others = f"{figures.slices} slices of {len(given.test.keys)} others"
            print(f"{panel} labels on {others}: overlap with the truth {dice:.2f} (Dice){own}")
