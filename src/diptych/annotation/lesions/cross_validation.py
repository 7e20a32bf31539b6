"""Cross-validation from the top: `train_lesions` is the table of contents; the loop of one fold is in `fold.py`.

diptych annotate lesions train BRATS --out RUN --minutes 60

RUN/config.json        everything that decides what the run computes
RUN/cases/             prepared patients (patient data: guard them like images)
RUN/fold-1/ …          checkpoints, log.csv, looks.csv, result.json
RUN/model/             the finished ensemble
RUN/report.json        held-out Dice by fold and patient beside the paper's
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from torch import Tensor

from diptych.annotation.lesions.ensemble_folder import save_ensemble
from diptych.annotation.lesions.fold_training import FoldTrainer
from diptych.annotation.lesions.lesion_cases import Case, chosen_patients, deal_folds, prepare_cases
from diptych.annotation.lesions.lesion_network import PAPER_DICE, get_preset
from diptych.annotation.lesions.lesion_options import (
    CASES,
    LesionOptions,
    LesionRun,
    per_fold,
    require_same,
    stored_run,
)
from diptych.annotation.lesions.prediction import mean_dice
from diptych.errors import InputError, UsageError
from diptych.files import only_writer, program_versions, write_json
from diptych.processes import cores
from diptych.progress import Progress, silent
from diptych.runs.checkpoint import load_checkpoint, without_prefix
from diptych.runs.csv_tables import Say
from diptych.runs.run_length import Interruption, Length, repeatable

CONVENTION = "a compartment that neither map has is left out of the mean; dice_absent_as_0 counts it as 0"


def train_lesions(
    options: LesionOptions,
    *,
    progress: Progress = silent,
    say: Say = lambda line: None,
) -> dict[str, Any]:
    """Train one model per fold into `options.out`; returns the report that is also written there.

    Raises:
        UsageError, InputError: options or patients that cannot be.
        TrainingError: training that cannot go on; the last checkpoint stays.
        KeyboardInterrupt: after Ctrl-C or SIGTERM, when the state has been saved.
    """
    stored = stored_run(options)
    if stored:
        require_same(stored, options)
    options.out.mkdir(parents=True, exist_ok=True)
    with only_writer(options.out):
        run, cases = _begin(options, stored, progress=progress)
        write_json(options.out / "config.json", run.to_dict())
        for key, reason in run.failed.items():
            say(f"left out: {key}: {reason}")
        trainers = [
            FoldTrainer(options.out / f"fold-{number}", run, cases, number, say=say)
            for number in range(1, len(run.folds) + 1)
        ]
        with repeatable(options.threads or run.threads), Interruption() as interruption:
            results = _train_all(trainers, lambda: interruption.asked, progress=progress, say=say)
        return _finish(options.out, run, results)


def _begin(
    options: LesionOptions, stored: LesionRun | None, *, progress: Progress
) -> tuple[LesionRun, dict[str, Case]]:
    """Prepare the patients and deal the folds, or check that they are those the run began with."""
    preset = (
        stored.preset
        if stored
        else get_preset(options.preset or "2mm-cpu", seed=options.seed, description=options.description)
    )
    source = options.source or (Path(stored.source) if stored else None)
    if source is None:
        raise UsageError("no patients; give the folder that holds labelled patients")
    patients = chosen_patients(source, options.keys)
    if stored:
        patients = [files for files in patients if files.patient_key in stored.voxels]
    cases, failed = prepare_cases(
        patients, options.out / CASES, about=preset.about, spacing_mm=preset.spacing_mm, progress=progress
    )
    voxels = {key: case.about["voxels"] for key, case in cases.items()}
    if stored:
        if voxels != stored.voxels:
            raise InputError(f"{source}: not the patients the run in {options.out} began with; start a new run")
        return stored, cases
    count = 5 if options.folds is None else options.folds
    run = LesionRun(
        preset=preset,
        length=per_fold(options.length, count) or Length(epochs=preset.epochs),
        folds=tuple(deal_folds(voxels, count, seed=preset.seed)),
        voxels=voxels,
        source=str(source),
        threads=options.threads or cores(),
        failed=failed,
    )
    return run, cases


def _train_all(
    trainers: list[FoldTrainer], stop: Callable[[], bool], *, progress: Progress, say: Say
) -> list[dict[str, Any]]:
    """One fold after the other; finished ones are taken as they are."""
    results = []
    pending = [trainer for trainer in trainers if trainer.result is None]
    for trainer in trainers:
        if (result := trainer.result) is None:
            behind = pending.index(trainer)

            def report(done: int, total: int, note: str, behind: int = behind) -> None:
                progress(behind * total + done, len(pending) * total, note)

            result = trainer.train(stop, report)
            figures = result["held_out"]
            dice = " ".join(f"{name} {figures[name]['dice']:.3f}" for name in figures)
            say(f"fold {result['fold']}: Dice {dice} on {len(result['patients'])} held-out patients")
        results.append(result)
    return results


def _finish(out: Path, run: LesionRun, results: list[dict[str, Any]]) -> dict[str, Any]:
    """Export the ensemble and write the report."""
    held_out = mean_dice([figures for result in results for figures in result["patients"].values()])
    glioma = run.preset.description is None
    table = fold_table(results, held_out)
    report: dict[str, Any] = {
        "command": sys.argv,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": program_versions("torch", "monai"),
        "preset": run.preset.name,
        "patients": len(run.voxels),
        "left_out": run.failed,
        "convention": CONVENTION,
        "held_out": held_out,
        "paper": PAPER_DICE if glioma else {},
        "classes": run.preset.about.lesion_names,
        "folds": results,
    }
    report["fingerprint"] = save_ensemble(
        out / "model",
        run.preset,
        [_last_weights(out / f"fold-{result['fold']}", result["steps"]) for result in results],
        folds=run.folds,
        figures=held_out,
        card=_card(run, results, table),
    )
    write_json(out / "report.json", report)
    return report


def _last_weights(folder: Path, step: int) -> dict[str, Tensor]:
    checkpoint = load_checkpoint(folder / "checkpoints")
    if checkpoint is None or checkpoint.step != step:
        raise InputError(
            f"{folder}: the checkpoint of step {step} is missing or damaged; delete this folder and --resume"
        )
    return without_prefix("network", checkpoint.tensors)


def _card(run: LesionRun, results: list[dict[str, Any]], table: str) -> str:
    preset = run.preset
    steps, seconds = (sum(result[name] for result in results) for name in ("steps", "seconds"))
    return f"""**Research use only, not a medical device.** A person must look at every label map it draws.

Background and {", ".join(preset.about.lesion_names.values())} by softmax,
mean over {len(results)} networks: MONAI SegResNet, {preset.filters} filters,
blocks {preset.blocks_down}, at {preset.spacing_mm:g} mm; preset `{preset.name}`, seed {preset.seed}.
Trained on {len(run.voxels)} patients, {steps} steps in all, {seconds / 60:.0f} minutes.

Dice on patients that a model never saw, on the working grid; {CONVENTION}:

{table}

Input: {", ".join(preset.about.channels)}, skull-stripped and co-registered. Not tried on children, after surgery, or on
anything but {preset.about.disease}."""


def fold_table(results: Sequence[dict[str, Any]], held_out: dict[str, dict[str, float]]) -> str:
    """A row per fold, one for all patients, and for gliomas one for the paper."""
    regions = list(dict.fromkeys(name for result in results for one in result["patients"].values() for name in one))
    rows = [
        ["held out", "patients", *regions],
        ["---"] * (2 + len(regions)),
        *(_row(f"fold {result['fold']}", len(result["patients"]), result["held_out"], regions) for result in results),
        _row("all folds", sum(len(result["patients"]) for result in results), held_out, regions),
    ]
    if set(PAPER_DICE) <= set(regions):
        paper = [f"{PAPER_DICE[name]:.2f}" if name in PAPER_DICE else "–" for name in regions]
        rows.append(["paper, 1 mm", "355", *paper])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _row(name: str, patients: int, figures: dict[str, dict[str, float]], regions: Sequence[str]) -> list[str]:
    cells = [f"{figures[region]['dice']:.3f}" if region in figures else "–" for region in regions]
    return [name, str(patients), *cells]
