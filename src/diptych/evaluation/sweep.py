"""The paper's eight configurations, trained and evaluated alike: grids of 4x4 to 32x32, with and without matching.

    SWEEP/NAME/run       a training run, resumed if it was cut short
    SWEEP/NAME/report    parts of its evaluation, kept like those of any report
    SWEEP/index.html     the comparison (`sweep_page.py`)

Two families. `paper` keeps the paper's K, D, losses, weights and constant step size; layers are narrow, batches small,
steps larger and few, so that minutes suffice. `ours` takes everything but grid and matching from the small CPU preset.
The size of the input is the store's. Knows training and evaluation; nothing about pages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diptych.config import PRESETS, Preset, get_preset
from diptych.errors import StoreError, UsageError
from diptych.evaluation.bootstrap import plain
from diptych.evaluation.context import Context
from diptych.evaluation.part import Part, Section
from diptych.evaluation.parts import load_part
from diptych.evaluation.retrieval_score import score
from diptych.evaluation.runner import run_parts
from diptych.metrics.binary_codes import BINARY_CODES, save_binary_codes
from diptych.model import load_model
from diptych.progress import Progress
from diptych.runs.checkpoint import load_checkpoint
from diptych.slices import SliceStore
from diptych.slices.splits import Split, given_split, read_keys, seeded_split
from diptych.training import Length, TrainingOptions, train
from diptych.training.training_options import override

OURS = "cpu-8x8-small"
"""The preset that our family changes in grid and matching alone."""
OUR_WIDTHS = (8, 16, 32, 64, 64, 64, 64)
NARROWER = 8
"""By this the paper's widths are divided in its family."""
SMALL_STEPS = ("batch_size=8", "learning_rate=1e-3", "critic_learning_rate=1e-3", "ema_decay=0.97")
"""The paper takes 160,000 steps of 112 slices at 1e-4, which here would be a few hundred in a quarter of an hour: so
many small batches, larger steps, and codebooks with a shorter memory. (Codes that nothing uses need 2,500 steps to fade
at a decay of 0.99 and 830 at 0.97, `VectorQuantizer`; the paper does not say its own.)"""
FAMILIES = {"paper": Length(steps=2600), "ours": Length(minutes=20.0)}
"""What can be swept, and for how long if nothing is said."""
PAPER_PRESETS = tuple(name for name in PRESETS if name.startswith("paper-"))
TRAIN_SHARE = 0.7
JUDGES = 10
"""Training patients at most, a tenth of them, that are held back to validate a run."""
METRICS = ("euclidean", "angular", "hamming")
RAW = ", raw sum"
PARTS = ("reconstruction", "segmentation", "codebooks", "hashing", "timing", "twins")
"""Parts of an evaluation that every configuration goes through."""

Show = Callable[[str], AbstractContextManager[Progress]]
Say = Callable[[str], None]


@dataclass(frozen=True)
class SweepOptions:
    """What to compare, on whom, for how long."""

    store: Path
    out: Path
    family: str = "paper"
    presets: tuple[str, ...] = PAPER_PRESETS
    length: Length | None = None
    """How long each one is trained; the family's own length if not said."""
    changes: tuple[str, ...] = ()
    """Further changes to every configuration, each `name=value`."""
    train_only: bool = False
    evaluate_only: bool = False
    """Train nothing: evaluate what is there, unfinished runs as they were at their last look at validation patients."""
    train_list: Path | None = None
    test_list: Path | None = None
    leakiness: bool = False
    seed: int = 0
    threads: int | None = None


@dataclass(frozen=True)
class Configuration:
    """One of the eight: its name, the preset it is made from, and the changes that make it."""

    preset: str
    base: str
    changes: tuple[str, ...]

    @property
    def settings(self) -> Preset:
        """The complete preset."""
        return override(get_preset(self.base), self.changes)

    @property
    def family(self) -> str:
        """Which of `FAMILIES` it belongs to."""
        return "paper" if self.base == self.preset else "ours"

    @property
    def title(self) -> str:
        """As in the paper's tables."""
        grid = get_preset(self.preset).model.latent_size
        return f"{grid[0]}×{grid[1]}" + ("" if self.preset.endswith("-nodm") else " + DM")


@dataclass(frozen=True, eq=False)
class Trained:
    """A configuration with its model and what its evaluation found."""

    configuration: Configuration
    context: Context
    run: dict[str, Any]
    """The report of its training; of an unfinished one, how far it has come."""
    numbers: dict[str, Any]
    """By part."""


def sweep(options: SweepOptions, *, show: Show, say: Say) -> Iterator[list[Trained]]:
    """Train and evaluate every configuration that fits the store; what is finished is not done again.

    Two sweeps into one folder may run beside each other if they have different presets. Yields all configurations so
    far after each one, so that a long sweep can be looked at before its end.
    """
    store = SliceStore.open(options.store)
    fitting, left_out = configurations(options.presets, store, family=options.family, changes=options.changes)
    for name, reason in left_out.items():
        say(f"{name}: left out ({reason})")
    if not fitting:
        raise UsageError(f"{options.store}: none of the configurations fits; prepare slices of 128x128 pixels")
    split = _split(options, store)
    lists = _write_lists(options.out, split)
    trained: list[Trained] = []
    for number, configuration in enumerate(fitting, start=1):
        say(f"configuration {number} of {len(fitting)}: {configuration.title}")
        if options.evaluate_only:
            run = _so_far(options.out / configuration.preset / "run")
        else:
            run = _train(configuration, options, lists, show=show, say=say)
        if run is None:
            say(f"{configuration.title}: not trained yet")
        elif not options.train_only:
            trained.append(_evaluate(configuration, options, store, split, run, show=show))
            yield trained


def configurations(
    presets: Sequence[str], store: SliceStore, *, family: str = "paper", changes: Sequence[str] = ()
) -> tuple[list[Configuration], dict[str, str]]:
    """Those that fit the store's slices, and why the others do not."""
    if family not in FAMILIES:
        raise UsageError(f"--family {family}: there is none of that name; choose {' or '.join(FAMILIES)}")
    fitting, left_out = [], {}
    for name in presets:
        if name not in PAPER_PRESETS:
            raise UsageError(f"preset {name!r}: a sweep compares the paper's, {', '.join(PAPER_PRESETS)}")
        try:
            base, made = (name, _paper_changes(name, store)) if family == "paper" else (OURS, _our_changes(name, store))
            override(get_preset(base), made)
        except UsageError as error:
            left_out[name] = str(error)
            continue
        fitting.append(Configuration(name, base, (*made, *changes)))
        override(get_preset(base), fitting[-1].changes)  # a change that cannot be is the user's, not the store's
    return fitting, left_out


def _paper_changes(name: str, store: SliceStore) -> tuple[str, ...]:
    """What makes a preset of the paper small: the store's size, narrow layers, batches and steps.

    As in the paper the layers at the grid have the same width, however few halvings lead there.
    """
    first, second, *_, last = (width // NARROWER for width in get_preset(name).model.widths)
    return (*_sizes(name, store, lambda halvings: (*[first, second, *[last] * 5][:halvings], last)), *SMALL_STEPS)


def _our_changes(name: str, store: SliceStore) -> tuple[str, ...]:
    """What turns our small preset into this grid, with or without matching, at the store's size."""
    matching = ("regulariser_weight=0",) if name.endswith("-nodm") else ()
    return (*_sizes(name, store, lambda halvings: OUR_WIDTHS[: halvings + 1]), *matching)


def _sizes(name: str, store: SliceStore, widths: Callable[[int], Sequence[int]]) -> tuple[str, ...]:
    H, W = store.geometry.size
    side = get_preset(name).model.latent_size[0]
    halvings = max(0, (H // side).bit_length() - 1)
    field = store.geometry.field
    return (
        f"image_size={H}x{W}",
        "field_mm=full" if field is None else f"field_mm={field[0]:g}x{field[1]:g}",
        f"latent_size={side}x{max(1, W * side // H)}",
        "widths=" + ",".join(map(str, widths(halvings))),
    )


def _split(options: SweepOptions, store: SliceStore) -> Split:
    """Who is trained on and who is evaluated: the lists, or seven tenths and the rest."""
    patients = {key: record for key, record in store.patients.items() if record.lesion_pixels is not None}
    if options.train_list is None and options.test_list is None:
        split = seeded_split(patients, train=TRAIN_SHARE, seed=options.seed)
    elif options.train_list is None or options.test_list is None:
        raise UsageError("a sweep takes both --train-list and --test-list, or neither")
    else:
        split = given_split(patients, read_keys(options.train_list), read_keys(options.test_list))
    if len(split.train) < 2 or len(split.test) < 2:
        raise StoreError(f"{options.store}: {len(split.train)} patients to train on and {len(split.test)} to test on; "
                         "a sweep needs two of each at least")  # fmt: skip
    return split


def _write_lists(out: Path, split: Split) -> tuple[Path, Path]:
    """Text files of training patients and of those that choose the best network of a run."""
    judges = min(JUDGES, max(1, len(split.train) // 10))
    paths = out / "train.txt", out / "validation.txt"
    try:
        out.mkdir(parents=True, exist_ok=True)
        for path, keys in zip(paths, (split.train[judges:], split.train[:judges]), strict=True):
            path.write_text("\n".join(keys) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{out}: cannot be written to ({error.strerror}); give another --out") from None
    return paths


def _train(
    configuration: Configuration, options: SweepOptions, lists: tuple[Path, Path], *, show: Show, say: Say
) -> dict[str, Any]:
    """The report of the finished run, which is begun, resumed or read."""
    run = options.out / configuration.preset / "run"
    length = options.length or FAMILIES[options.family]
    if (report := _finished(run)) is not None and report["steps"] >= (length.steps or 0):
        return report
    with show(f"Training {configuration.title}") as progress:
        return train(
            TrainingOptions(
                out=run,
                stores=(options.store,),
                preset=configuration.base,
                overrides=configuration.changes,
                length=length,
                train_list=lists[0],
                validation_list=lists[1],
                seed=options.seed,
                resume=True,
                threads=options.threads,
            ),
            progress=progress,
            say=say,
        )


def _finished(run: Path) -> dict[str, Any] | None:
    """The report of a run that has come to its end."""
    try:
        report: dict[str, Any] = json.loads((run / "report.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return report if "best" in report and (run / "model").is_dir() else None


def _so_far(run: Path) -> dict[str, Any] | None:
    """The report of a finished run, how far an unfinished one has come, or None where nothing can be looked at."""
    if (report := _finished(run)) is not None:
        return report
    checkpoint = load_checkpoint(run / "checkpoints") if run.is_dir() else None
    if checkpoint is None or not checkpoint.state["best"] or not (run / "model").is_dir():
        return None
    best, planned = checkpoint.state["best"], checkpoint.state["planned_steps"]
    return {"steps": best["step"], "planned": planned, "seconds": checkpoint.state["seconds"], "best": best}


def _evaluate(
    configuration: Configuration,
    options: SweepOptions,
    store: SliceStore,
    split: Split,
    run: dict[str, Any],
    *,
    show: Show,
) -> Trained:
    folder = options.out / configuration.preset
    if configuration.family == "paper":
        _keep_literal_codes(folder / "run" / "model")
    context = Context.open(
        [store], folder / "run" / "model", cache=folder / "report" / "cache", queries=split.test, seed=options.seed
    )
    names = [*PARTS, *(["leakiness_paper"] if options.leakiness else [])]
    parts = [*map(load_part, names), RETRIEVAL]
    finished = run_parts(context, parts, folder / "report", show=show)
    return Trained(configuration, context, run, {done.part.name: dict(done.section.numbers) for done in finished})


def _keep_literal_codes(model: Path) -> None:
    """Let searches by Hamming distance have the paper's own binary codes, without identical codes merged."""
    if not (model / BINARY_CODES.file).exists():
        save_binary_codes(load_model(model), model, form="literal")


def _retrieve(context: Context, progress: Progress) -> Section:
    """Mean Dice of the first volumes found by each panel and distance of the paper, beside oracle and chance.

    By both panels also as the paper adds them, raw, under the metric's name and `RAW`.
    """
    trial = context.trial(progress)
    tops = range(1, trial.longest + 1)
    numbers: dict[str, Any] = {"top": trial.longest}
    for done, by in enumerate(trial.bys, start=1):
        truth = trial.truths()[by]
        found = {metric: trial.search(metric, by) for metric in METRICS}
        if by == "both":
            found |= {f"{metric}{RAW}": trial.search(metric, by, raw_sum=True) for metric in METRICS}
        numbers[by] = {
            name: list(score(slices, truth, tops=tuple(tops)).mean().values()) for name, slices in found.items()
        }
        numbers[by]["oracle"] = [float(truth.oracle[:, :top].mean()) for top in tops]
        numbers[by]["chance"] = float(truth.chance.mean())
        progress(done, len(trial.bys), by)
    return Section((), plain(numbers))


RETRIEVAL = Part(
    "sweep_retrieval", "Retrieval", "What searches by the paper's distances find.", _retrieve, settings={"version": 2}
)
