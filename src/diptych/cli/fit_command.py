"""`diptych fit tables | labels | sketch | refiner | worth | references`: what is fitted to a finished model and kept.

A model that comes with Diptych, given by its name, is copied first (`--out`). `diptych.fitting` does the fitting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diptych.cli.help_types import complete_model
from diptych.errors import UsageError

if TYPE_CHECKING:
    from diptych.evaluation.retrieval_score import RetrievalScore
    from diptych.model import FeatureDecomposingNetwork
    from diptych.slices import SliceDataset


Stores = Annotated[list[Path], typer.Argument(metavar="STORE", help="Slice stores made by 'diptych prepare'.")]
Model = Annotated[
    Path,
    typer.Option(
        "--model",
        help="Folder of the model; the name of a shipped one goes with --out.",
        show_default=False,
        autocompletion=complete_model,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", help="Copy the model into this new folder and fit the copy.", show_default="the model itself"
    ),
]
TrainList = Annotated[
    Path | None,
    typer.Option(
        help="Text file of patients to learn from.", show_default="nine tenths of the labelled patients of all stores"
    ),
]
ValList = Annotated[
    Path | None,
    typer.Option(
        "--val-list", help="Text file of patients who judge; goes with --train-list.", show_default="the other tenth"
    ),
]
Steps = Annotated[int | None, typer.Option(help="Learn for so many steps instead, always with one result.")]
Seed = Annotated[int, typer.Option(help="Start of every random draw.")]
Json = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]


@dataclass(frozen=True)
class Target:
    """The model that is fitted, and the folder that gets what was fitted."""

    model: Path
    folder: Path

    @classmethod
    def of(cls, model: Path, out: Path | None) -> Target:
        """Refuses what would be overwritten before any work is done."""
        from diptych.model.shipped import named_model

        source = named_model(model)
        if out is None and source != model:
            raise UsageError(f"--model {model}: comes with Diptych and stays as it is; add --out FOLDER to fit a copy")
        if out is not None and out.exists():
            raise UsageError(f"--out {out}: is there already; give a new folder, or --model {out} to fit that one")
        return cls(source, out or source)

    def ready(self) -> Path:
        """The folder, with a copy of the model in it where it is a new one."""
        from shutil import copytree

        if self.folder != self.model:
            copytree(self.model, self.folder)
        return self.folder


@dataclass(frozen=True)
class Material:
    """A model, slices to learn from, and slices of others to judge by."""

    network: FeatureDecomposingNetwork
    train: SliceDataset
    """Augmented."""
    test: SliceDataset | None


def gather(
    stores: list[Path],
    model: Path,
    *,
    train_list: Path | None,
    validation_list: Path | None,
    seed: int,
    other_conditions: bool = False,
) -> Material:
    """Open stores and model and divide the patients; `other_conditions` also shows a model what it can do without."""
    from diptych.fitting.fit_data import divide_patients, under_other_conditions
    from diptych.model import load_model
    from diptych.slices import PAPER_AUGMENTATION, SliceDataset, SliceStore

    network = load_model(model)
    opened = [SliceStore.open(store) for store in stores]
    split = divide_patients(opened, train_list=train_list, validation_list=validation_list, seed=seed)
    changes = under_other_conditions(network.config) if other_conditions else PAPER_AUGMENTATION
    return Material(
        network,
        SliceDataset(opened, split.train, augmentation=changes),
        SliceDataset(opened, split.test) if split.test else None,
    )


LABEL_MINUTES = 10.0


def fit_labels(
    stores: Stores,
    model: Model,
    out: Out = None,
    train_list: TrainList = None,
    validation_list: ValList = None,
    minutes: Annotated[float | None, typer.Option(help="Learn for about this long.", show_default="10")] = None,
    steps: Steps = None,
    go_on: Annotated[
        bool, typer.Option("--go-on", help="Begin with those that lie beside the model, as a run may leave them.")
    ] = False,
    seed: Seed = 0,
    json_output: Json = False,
) -> None:
    """Fit the label decoders that searches by 'overlap' and 'fusion' compare by, and store them beside the model.

    They read more out of the same codes than the model's own decoders, in less time. The model's fingerprint stays what
    it is, so archives stay valid; their label maps are decoded anew.
    """
    from dataclasses import asdict

    from diptych.cli.console import print_json, progress_bar
    from diptych.fitting.label_fit import fit_label_decoders, judge_labels
    from diptych.metrics.label_decoders import LabelDecoders

    target = Target.of(model, out)
    given = gather(
        stores,
        target.model,
        train_list=train_list,
        validation_list=validation_list,
        seed=seed,
        other_conditions=True,
    )
    if steps is None and minutes is None:
        minutes = LABEL_MINUTES
    start = LabelDecoders.open(target.model, given.network) if go_on else None
    if go_on and (start is None or set(start.decoders) != set(given.network.description.panel_classes)):
        raise UsageError(f"{target.model}: has no label decoders of both panels to go on with; leave --go-on out")
    with progress_bar("Fitting") as progress:
        decoders = fit_label_decoders(
            given.network, given.train, steps=steps, minutes=minutes, seed=seed, start=start, progress=progress
        )
    path = decoders.save(target.ready())
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


SKETCH_MINUTES = 5.0


def fit_sketch(
    stores: Stores,
    model: Model,
    out: Out = None,
    train_list: TrainList = None,
    validation_list: ValList = None,
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
    from diptych.fitting.sketch_fit import fit_label_encoder, judge_sketches

    target = Target.of(model, out)
    given = gather(stores, target.model, train_list=train_list, validation_list=validation_list, seed=seed)
    if steps is None and minutes is None:
        minutes = SKETCH_MINUTES
    with progress_bar("Fitting") as progress:
        sketcher = fit_label_encoder(
            given.network, given.train, steps=steps, minutes=minutes, seed=seed, progress=progress
        )
    path = sketcher.save(target.ready())
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


REFINER_MINUTES = 15.0


def fit_refiner(
    stores: Stores,
    model: Model,
    out: Out = None,
    train_list: TrainList = None,
    validation_list: ValList = None,
    minutes: Annotated[float | None, typer.Option(help="Learn for about this long.", show_default="15")] = None,
    steps: Steps = None,
    seed: Seed = 0,
    json_output: Json = False,
) -> None:
    """Fit the refiner that paints healthy tissue over lesions in a patient's own image; it is stored beside the model.

    It learns from healthy tissue that is taken out in the shape of other patients' lesions. The model's fingerprint
    stays what it is, so archives stay valid.
    """
    from dataclasses import asdict

    from diptych.cli.console import print_json, progress_bar
    from diptych.fitting import refiner_fit

    target = Target.of(model, out)
    given = gather(stores, target.model, train_list=train_list, validation_list=validation_list, seed=seed)
    if steps is None and minutes is None:
        minutes = REFINER_MINUTES
    with progress_bar("Fitting") as progress:
        refiner = refiner_fit.fit_refiner(
            given.network, given.train, steps=steps, minutes=minutes, seed=seed, progress=progress
        )
    path = refiner.save(target.ready())
    figures = None if given.test is None else refiner_fit.judge_refiner(refiner, given.test)
    patients = len(given.train.keys)
    if json_output:
        print_json({"file": path, "patients": patients, "judged": figures and asdict(figures)})
        return
    print(f"{path}: learnt from {patients} patients")
    if figures and given.test:
        print(f"in voids of healthy tissue of {len(given.test.keys)} others:")
        for channel, ssim, psnr in zip(given.network.description.channels, figures.ssim, figures.psnr, strict=True):
            print(f"  {channel}: SSIM {ssim:.2f}, PSNR {psnr:.1f} dB")


METRICS = ("euclidean", "angular", "hamming", "learned")


def fit_tables(
    stores: Stores,
    model: Model,
    out: Out = None,
    train_list: TrainList = None,
    validation_list: ValList = None,
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
    from diptych.fitting.fit_data import divide_patients, encode_labelled, require_anatomy
    from diptych.fitting.table_fit import FitSettings
    from diptych.fitting.table_fit import fit_tables as fit
    from diptych.metrics.learned_tables import save_learned_tables
    from diptych.metrics.model_tables import model_tables
    from diptych.model import load_model
    from diptych.slices import SliceStore

    target = Target.of(model, out)
    network = load_model(target.model)
    opened = [SliceStore.open(store) for store in stores]
    split = divide_patients(opened, train_list=train_list, validation_list=validation_list, seed=seed)
    require_anatomy(opened, split.train)
    with progress_bar("Encoding") as progress:
        slices = encode_labelled(network, opened, split.train, progress=progress)
    with progress_bar("Fitting") as progress:
        tables = fit(network, slices, settings=FitSettings(steps=steps, seed=seed), progress=progress)
    path = save_learned_tables(tables, target.ready())
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


WORTH_METRICS = ("euclidean", "angular", "hamming", "learned", "overlap", "fusion")


def fit_worth(
    stores: Stores,
    model: Model,
    out: Out = None,
    patients: Annotated[
        Path | None,
        typer.Option("--list", help="Text file of patients that the model was not trained on.", show_default="all"),
    ] = None,
    seed: Seed = 0,
    json_output: Json = False,
) -> None:
    """Measure what matches are worth, and store it beside the model: searches then say how well labels will agree.

    The patients search one another. What a distance meant for their labels is kept by metric and panel, with an
    interval that holds nine in ten matches. Give patients the model has not learnt from, or it will promise too much.
    """
    from tempfile import TemporaryDirectory

    from diptych.cli.console import print_json, progress_bar
    from diptych.evaluation.context import Context
    from diptych.evaluation.worth_trial import costs_of_missing, known_matches
    from diptych.retrieval.match_worth import WorthTables, fit_curve, speaks
    from diptych.slices import SliceStore
    from diptych.slices.splits import read_keys

    target = Target.of(model, out)
    opened = [SliceStore.open(store) for store in stores]
    with TemporaryDirectory() as cache:
        keys = None if patients is None else read_keys(patients)
        context = Context.open(opened, target.model, cache=Path(cache), queries=keys, seed=seed)
        with progress_bar("Encoding") as progress:
            trial = context.trial(progress)
        metrics = [metric for metric in WORTH_METRICS if metric in trial.searcher.offered("abnormal")]
        with progress_bar("Searching") as progress:
            known = known_matches(trial, metrics, progress=progress)
            missing = costs_of_missing(context, trial, progress=progress)
    curves = {key: fit_curve(pairs, seed=seed) for key, pairs in known.items() if speaks(*key)}
    tables = WorthTables(curves, missing)
    path = tables.save(target.ready(), context.network.fingerprint)
    counts = {f"{metric} {panel}": len(pairs.dice) for (metric, panel), pairs in known.items()}
    if json_output:
        print_json({"file": path, "patients": len(context.queries), "matches": counts})
        return
    print(f"{path}: measured on {len(context.queries)} patients, {sum(counts.values())} matches")
    for (metric, panel), curve in tables.curves.items():
        print(
            f"{metric:10} {panel:9} nearest: agrees {curve.at(float(curve.distance[0]))}, "
            f"farthest: {curve.at(float(curve.distance[-1]))}"
        )
    for channels in missing:
        print(tables.cost_of_missing(channels.split(",")))


def fit_references(
    sources: Annotated[
        list[Path],
        typer.Argument(metavar="SOURCE...", help="Folders of the patients that the model learnt from."),
    ],
    model: Model,
    out: Out = None,
    train_list: Annotated[
        Path | None,
        typer.Option("--train-list", help="Text file of the training patients.", show_default="all in SOURCE"),
    ] = None,
    json_output: Json = False,
) -> None:
    """Measure what the training patients look like, and store it beside the model: others are compared with that.

    Indexing, searches and uploads then say when channels look exchanged, when images are unlike all that the model
    learnt from, and when its codes do not hold them. Means over patients are kept, nobody's own data.
    """
    from diptych.cli.console import print_json, progress_bar
    from diptych.fitting.reference_fit import fit_model_reference, training_patients
    from diptych.model import load_model
    from diptych.retrieval.model_reference import save_reference

    target = Target.of(model, out)
    network = load_model(target.model)
    patients = training_patients(sources, train_list)
    with progress_bar("Measuring") as progress:
        reference, failed = fit_model_reference(network, patients, progress=progress)
    path = save_reference(reference, target.ready(), fingerprint=network.fingerprint)
    if json_output:
        print_json({"file": path, "patients": reference.patients, "limit": reference.limit, "failed": failed})
        return
    print(
        f"{path}: measured on {reference.patients} patients; strange above {reference.limit:.0f}, badly held above an "
        f"error of {reference.error_limit:.2f}"
    )
    for key, reason in failed.items():
        print(f"left out: {key}: {reason}")


PARTS: dict[str, Callable[..., None]] = {
    "tables": fit_tables,
    "labels": fit_labels,
    "sketch": fit_sketch,
    "refiner": fit_refiner,
    "worth": fit_worth,
    "references": fit_references,
}
"""The parts by the name that `diptych fit` gives them."""

app = typer.Typer(
    name="fit",
    help="Fit something to a finished model: tables, label decoders, sketches, refined twins, worth, usual looks.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _name, _part in PARTS.items():
    app.command(_name)(_part)
