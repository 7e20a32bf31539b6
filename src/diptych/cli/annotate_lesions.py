"""`diptych annotate lesions train` and `… predict`: an ensemble learns lesions, and labels patients that have none."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diptych.errors import PartialFailure

if TYPE_CHECKING:
    from diptych.annotation.lesions.prediction import PredictReport


app = typer.Typer(
    name="lesions",
    help="Train a five-fold ensemble on labelled patients, and label others with it.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def train(
    out: Annotated[Path, typer.Option("--out", metavar="RUN", help="Folder of the run.", show_default=False)],
    source: Annotated[
        Path | None, typer.Argument(metavar="SOURCE", help="Folder of labelled patients: BraTS of any release.")
    ] = None,
    preset: Annotated[str | None, typer.Option(help="2mm-cpu or 1mm-gpu.", show_default="2mm-cpu")] = None,
    minutes: Annotated[float | None, typer.Option(help="Train for about this long, all folds together.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Train each fold for so many crops per patient.")] = None,
    steps: Annotated[int | None, typer.Option(help="Train each fold for so many updates.")] = None,
    folds: Annotated[
        int | None, typer.Option(help="Models, each holding out its own patients.", show_default="5")
    ] = None,
    keys: Annotated[
        Path | None, typer.Option("--list", help="Text file of the patients to use.", show_default="all in SOURCE")
    ] = None,
    channel: Annotated[
        list[str] | None,
        typer.Option(help="Channel to read, such as t1; repeat for more.", show_default="t1, t1gd, t2, flair"),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Lesion classes 1, 2, … by name: 'lesion', or 'core,PEN=penumbra'.",
            show_default="NET, ED, ET",
        ),
    ] = None,
    lesion_code: Annotated[
        list[str] | None,
        typer.Option(metavar="VALUE=CLASS", help="What a value in lesion files stands for; repeat for more."),
    ] = None,
    disease: Annotated[str | None, typer.Option(metavar="WORD", help="A word for what the patients have.")] = None,
    seed: Annotated[int | None, typer.Option(help="Start of every random draw.", show_default="0")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in RUN, if there is one.")] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads to use.", show_default="all cores")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Train one network per fold of patients and report Dice on the patients that each one never saw.

    Ctrl-C saves; --resume goes on with the same bits. Patients that cannot be used are named and left out.
    """
    from diptych.annotation.lesions import LesionOptions, train_lesions
    from diptych.annotation.lesions.cross_validation import fold_table
    from diptych.cli.console import print_json, progress_bar
    from diptych.cli.description_options import described
    from diptych.runs.run_length import Length

    named = channel or classes or lesion_code or disease
    about = described(disease=disease, classes=classes, codes=lesion_code, channels=channel) if named else None
    bounded = not (minutes is None and epochs is None and steps is None)
    options = LesionOptions(
        out=out,
        source=source,
        keys=keys,
        preset=preset,
        length=Length(steps=steps, epochs=epochs, minutes=minutes) if bounded else None,
        folds=folds,
        seed=seed,
        description=about,
        resume=resume,
        threads=threads,
    )
    with progress_bar("Lesions") as progress:
        report = train_lesions(options, progress=progress, say=lambda line: print(line, file=sys.stderr, flush=True))
    if json_output:
        print_json(report)
    else:
        print(f"{out / 'model'}: {len(report['folds'])} models trained on {report['patients']} patients; held-out Dice")
        print(fold_table(report["folds"], report["held_out"]))
    if report["left_out"]:
        raise PartialFailure(f"{len(report['left_out'])} patients could not be trained on; the others were")


@app.command()
def predict(
    patients: Annotated[Path, typer.Argument(metavar="PATIENTS", help="Folder of patients to label.")],
    model: Annotated[Path, typer.Option("--model", metavar="RUN", help="Run of 'lesions train', or its model folder.")],
    out: Annotated[Path, typer.Option("--out", metavar="PRED", help="Folder for the label maps.")],
    keys: Annotated[
        Path | None, typer.Option("--list", help="Text file of the patients to label.", show_default="all in PATIENTS")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads to use.", show_default="all cores")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Label lesions with the mean of all models, and say how far the models disagree on each patient.

    Patients already labelled from the same images by the same models are left alone. A patient that cannot be read is
    reported and skipped; the exit code is then 4.
    """
    from dataclasses import asdict

    from diptych.annotation.lesions import predict_lesions
    from diptych.annotation.lesions.lesion_cases import chosen_patients
    from diptych.cli.console import print_json, progress_bar

    with progress_bar("Lesions") as progress:
        chosen = chosen_patients(patients, keys)
        report = predict_lesions(chosen, model, out, threads=threads, progress=progress)
    if json_output:
        print_json({"out": out, **asdict(report)})
    else:
        _print_report(out, report)
    if report.failed:
        raise PartialFailure(f"{len(report.failed)} patients failed and have no labels in {out}; the others have")


def _print_report(out: Path, report: PredictReport) -> None:
    print(
        f"{out}: {len(report.written)} patients labelled and {len(report.unchanged)} unchanged in "
        f"{report.seconds:.1f} s; least certain first with 'diptych annotate review'"
    )
    if report.dice:
        dice = ", ".join(f"{name} {values['dice']:.3f} ({values['patients']})" for name, values in report.dice.items())
        print(f"Dice with the labels that patients already had (how many): {dice}")
    for key, reason in report.failed.items():
        print(f"failed: {key}: {reason}", file=sys.stderr)
