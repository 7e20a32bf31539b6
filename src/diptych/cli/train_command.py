"""`diptych train`: slice stores become a network."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from diptych.cli.help_types import complete_model
from diptych.config import PRESETS


def train(
    out: Annotated[Path, typer.Option("--out", metavar="RUN", help="Folder of the run.", show_default=False)],
    stores: Annotated[
        list[Path] | None, typer.Argument(metavar="STORE", help="Slice stores made by 'diptych prepare'.")
    ] = None,
    preset: Annotated[str | None, typer.Option(help=f"What to train: {', '.join(PRESETS)}.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Train for about this long.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Train for so many passes over the slices.")] = None,
    steps: Annotated[int | None, typer.Option(help="Train for so many updates.")] = None,
    train_list: Annotated[Path | None, typer.Option(help="Text file of patients to train on.")] = None,
    val_list: Annotated[
        Path | None,
        typer.Option(help="Text file of patients to validate on; without it, a part of the training patients."),
    ] = None,
    start_from: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="MODEL",
            help="Begin with a model: all of it, or the layers in common.",
            autocompletion=complete_model,
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Start of every random draw.")] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Change a setting of the preset.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in RUN, if there is one.")] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads to use.", show_default="all cores")] = None,
    precision: Annotated[
        str | None, typer.Option(help="float32, or bfloat16 (on GPUs; slower on CPUs).", show_default="float32")
    ] = None,
    compiled: Annotated[
        bool | None,
        typer.Option(
            "--compile", help="Run encoder and segmentation decoder through torch.compile.", show_default=False
        ),
    ] = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard events too.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Train a network on slice stores, with validation, pictures and checkpoints.

    Without --minutes, --epochs or --steps the preset's epochs are trained. Ctrl-C saves; --resume goes on with the
    same bits. RUN/model holds the best network so far, with a paper preset the last one. Under torchrun, all processes
    share each batch.
    """
    from diptych.cli.console import print_json, progress_bar
    from diptych.training import Length, TrainingOptions
    from diptych.training import train as run_training

    bounded = not (minutes is None and epochs is None and steps is None)
    options = TrainingOptions(
        out=out,
        stores=tuple(stores or ()),
        preset=preset,
        overrides=tuple(changes or ()),
        length=Length(steps=steps, epochs=epochs, minutes=minutes) if bounded else None,
        train_list=train_list,
        validation_list=val_list,
        start_from=start_from,
        seed=seed,
        precision=precision,
        compiled=compiled,
        resume=resume,
        threads=threads,
        tensorboard=tensorboard,
    )
    with progress_bar("Training") as progress:
        report = run_training(options, progress=progress, say=lambda line: print(line, file=sys.stderr, flush=True))
    if "best" not in report:  # one of torchrun's other processes
        return
    if json_output:
        print_json(report)
    else:
        _print_report(out, report)


def _print_report(out: Path, report: dict[str, Any]) -> None:
    best, figures = report["best"], report["all_validation_patients"]
    kind = f"best network, of step {best['step']} of {report['steps']} ({report['criterion']})"
    if report["exported"] == "last":
        kind = f"last network, of step {report['steps']}"
    print(
        f"{out / 'model'}: {kind}; "
        f"on {report['validation_patients']} validation patients Dice {figures['dice_whole']:.3f}, "
        f"reconstruction error {figures['reconstruction_error']:.3f}, codes used "
        f"{figures['normal_usage']:.0%}/{figures['abnormal_usage']:.0%}"
    )
