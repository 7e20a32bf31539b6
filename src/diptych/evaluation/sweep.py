"""The paper's eight configurations, trained and evaluated alike: grids of 4x4 to 32x32, with and without matching.

    SWEEP/NAME/run       a training run, resumed if it was cut short
    SWEEP/NAME/report    parts of its evaluation, kept like those of any report
    SWEEP/index.html     the comparison (`sweep_page.py`)

Grid and distribution matching are the paper's. Everything else is the small CPU preset's, so that minutes suffice: the
paper's own settings (N(0, 1) codebooks, no expiry, small steps) leave most codes dead for a long time. The size of the
input is the store's. Knows training and evaluation; nothing about pages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diptych.config import PRESETS, get_preset
from diptych.errors import StoreError, UsageError
from diptych.evaluation.bootstrap import plain
from diptych.evaluation.context import Context
from diptych.evaluation.part import Part, Section
from diptych.evaluation.parts import load_part
from diptych.evaluation.retrieval_score import score
from diptych.evaluation.runner import run_parts
from diptych.progress import Progress
from diptych.slices import SliceStore
from diptych.slices.splits import Split, given_split, read_keys, seeded_split
from diptych.training import Length, TrainingOptions, train
from diptych.training.training_options import override

BASE = "cpu-8x8-small"
"""The preset whose training every configuration shares."""
WIDTHS = (8, 16, 32, 64, 64, 64, 64)
PAPER_PRESETS = tuple(name for name in PRESETS if name.startswith("paper-"))
TRAIN_SHARE = 0.7
JUDGES = 3
"""Training patients that are held back to choose the best network of a run."""
METRICS = ("euclidean", "angular", "hamming")

Show = Callable[[str], AbstractContextManager[Progress]]
Say = Callable[[str], None]


@dataclass(frozen=True)
class SweepOptions:
    """What to compare, on whom, for how long."""

    store: Path
    out: Path
    presets: tuple[str, ...] = PAPER_PRESETS
    minutes: float = 20.0
    train_list: Path | None = None
    test_list: Path | None = None
    leakiness: bool = False
    seed: int = 0
    threads: int | None = None


@dataclass(frozen=True)
class Configuration:
    """One of the eight: its preset, and the changes to the common one that make it."""

    preset: str
    changes: tuple[str, ...]

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
    """The report of its training."""
    numbers: dict[str, Any]
    """By part."""


def sweep(options: SweepOptions, *, show: Show, say: Say) -> Iterator[list[Trained]]:
    """Train and evaluate every configuration that fits the store; what is finished is not done again.

    Yields all configurations so far after each one, so that a long sweep can be looked at before its end.
    """
    store = SliceStore.open(options.store)
    fitting, left_out = configurations(options.presets, store)
    for name, reason in left_out.items():
        say(f"{name}: left out ({reason})")
    if not fitting:
        raise UsageError(f"{options.store}: none of the configurations fits; prepare slices of 128x128 pixels")
    split = _split(options, store)
    lists = _write_lists(options.out, split)
    trained: list[Trained] = []
    for number, configuration in enumerate(fitting, start=1):
        say(f"configuration {number} of {len(fitting)}: {configuration.title}")
        run = _train(configuration, options, lists, show=show, say=say)
        trained.append(_evaluate(configuration, options, store, split, run, show=show))
        yield trained


def configurations(presets: Sequence[str], store: SliceStore) -> tuple[list[Configuration], dict[str, str]]:
    """Those that fit the store's slices, and why the others do not."""
    fitting, left_out = [], {}
    for name in presets:
        if name not in PAPER_PRESETS:
            raise UsageError(f"preset {name!r}: a sweep compares the paper's, {', '.join(PAPER_PRESETS)}")
        try:
            configuration = Configuration(name, _changes(name, store))
            override(get_preset(BASE), configuration.changes)
        except UsageError as error:
            left_out[name] = str(error)
        else:
            fitting.append(configuration)
    return fitting, left_out


def _changes(name: str, store: SliceStore) -> tuple[str, ...]:
    """What turns the common preset into this configuration at the store's size."""
    H, W = store.geometry.size
    side = get_preset(name).model.latent_size[0]
    halvings = max(0, (H // side).bit_length() - 1)
    field = store.geometry.field
    return (
        f"image_size={H}x{W}",
        "field_mm=full" if field is None else f"field_mm={field[0]:g}x{field[1]:g}",
        f"latent_size={side}x{max(1, W * side // H)}",
        "widths=" + ",".join(map(str, WIDTHS[: halvings + 1])),
        f"channels={len(store.channels)}",
        *(("regulariser_weight=0",) if name.endswith("-nodm") else ()),
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
    if (report := _finished(run)) is not None:
        return report
    with show(f"Training {configuration.title}") as progress:
        return train(
            TrainingOptions(
                out=run,
                stores=(options.store,),
                preset=BASE,
                overrides=configuration.changes,
                length=Length(minutes=options.minutes),
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
    context = Context.open(
        [store], folder / "run" / "model", cache=folder / "report" / "cache", queries=split.test, seed=options.seed
    )
    names = ["reconstruction", "segmentation", "codebooks", "twins", *(["leakiness"] if options.leakiness else [])]
    parts = [*map(load_part, names), RETRIEVAL]
    finished = run_parts(context, parts, folder / "report", show=show)
    return Trained(configuration, context, run, {done.part.name: dict(done.section.numbers) for done in finished})


def _retrieve(context: Context, progress: Progress) -> Section:
    """Mean Dice of the first volumes found by each panel and distance of the paper, beside oracle and chance."""
    trial = context.trial(progress)
    top = trial.longest
    numbers: dict[str, Any] = {"top": top}
    for done, by in enumerate(trial.bys, start=1):
        truth = trial.truths()[by]
        scores = {metric: score(trial.search(metric, by), truth, tops=(top,)) for metric in METRICS}
        numbers[by] = {metric: value.mean()[top] for metric, value in scores.items()}
        numbers[by] |= {"oracle": float(truth.oracle[:, :top].mean()), "chance": float(truth.chance.mean())}
        progress(done, len(trial.bys), by)
    return Section((), plain(numbers))


RETRIEVAL = Part(
    "sweep_retrieval", "Retrieval", "What searches by the paper's distances find.", _retrieve, settings={"version": 1}
)
