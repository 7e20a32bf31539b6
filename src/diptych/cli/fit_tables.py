"""`diptych fit-tables`: a finished model gets the metric `learned`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from diptych.cli.fitting import Json, Model, Seed, Stores, TrainList

if TYPE_CHECKING:
    from diptych.evaluation.retrieval_score import RetrievalScore

__all__ = ["fit_tables"]

METRICS = ("euclidean", "angular", "hamming", "learned")


def fit_tables(
    stores: Stores,
    model: Model,
    train_list: TrainList = None,
    steps: Annotated[int, typer.Option(min=0, help="Steps of learning to rank.")] = 400,
    seed: Seed = 0,
    json_output: Json = False,
) -> None:
    """Learn distance tables that rank as label overlap does, and store them beside the model.

    The normal code learns from anatomy labels, the abnormal code from lesion labels. Searching with them costs what any
    other table costs. The model's fingerprint stays what it is, so archives stay valid.
    """
    from diptych.cli.console import print_json, progress_bar
    from diptych.evaluation.compare_metrics import Trial
    from diptych.model import load_model
    from diptych.retrieval.fit_tables import FitSettings
    from diptych.retrieval.fit_tables import fit_tables as fit
    from diptych.retrieval.fitting import divide_patients
    from diptych.retrieval.labelled import encode_labelled
    from diptych.retrieval.learned import save_learned_tables
    from diptych.retrieval.metrics import model_tables
    from diptych.slices import SliceStore

    network = load_model(model)
    opened = [SliceStore.open(store) for store in stores]
    split = divide_patients(opened, train_list=train_list, seed=seed)
    with progress_bar("Encoding") as progress:
        slices = encode_labelled(network, opened, split.train, progress=progress)
    with progress_bar("Fitting") as progress:
        tables = fit(network, slices, settings=FitSettings(steps=steps, seed=seed), progress=progress)
    path = save_learned_tables(tables, model)
    scores: dict[str, dict[str, RetrievalScore]] = {}
    if len(split.test) > 1:
        with progress_bar("Judging") as progress:
            others = encode_labelled(network, opened, split.test, progress=progress)
        scores = Trial(others, model_tables(network, learned=tables)).scores(METRICS)
    if json_output:
        shares = {by: {metric: one.of_oracle() for metric, one in row.items()} for by, row in scores.items()}
        print_json({"file": path, **tables.report, "judged_patients": len(split.test), "share_of_oracle": shares})
    else:
        print(f"{path}: learnt from {len(split.train)} patients")
        _print_scores(scores, len(split.test))


def _print_scores(scores: dict[str, dict[str, RetrievalScore]], patients: int) -> None:
    """One line for each metric and way of searching."""
    if not scores:
        return
    first = next(iter(next(iter(scores.values())).values()))
    print(f"label Dice in % of the oracle on {patients} others, absent classes left out")
    print(f"{'':20}" + "".join(f"{f'top {top}':>8}" for top in first.dice))
    for by, row in scores.items():
        for metric, score in row.items():
            print(f"{f'{by} {metric}':20}" + "".join(f"{share:8.1%}" for share in score.of_oracle().values()))
