"""`diptych prepare` and `diptych split`: folders of patients become a slice store; its patients are divided."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diptych.errors import PartialFailure, UsageError

if TYPE_CHECKING:
    from diptych.slices import SliceStore
    from diptych.slices.preparation import PrepareReport


SHOWN = 10
"""Warnings printed; the manifest has all of them."""


def prepare(
    sources: Annotated[
        list[Path],
        typer.Argument(
            metavar="SOURCE", help="Folders with patients: BraTS of any release, or phantoms.", show_default=False
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="STORE", help="The slice store to make or to add to.", show_default=False)
    ],
    size: Annotated[
        str, typer.Option(metavar="PIXELS", help="Slice size in pixels: 128, or rows x columns such as 128x96.")
    ] = "128",
    field: Annotated[
        str,
        typer.Option(
            metavar="MM",
            help="Height x width in mm of the box around the brain that a slice shows; 'full' shows the whole frame, "
            "as the paper does.",
        ),
    ] = "200x160",
    channel: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CHANNEL",
            help="Take only this channel (t1, t1gd, t2, flair); repeat for more.",
            show_default="all that patients have",
        ),
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
        typer.Option(
            metavar="VALUE=CLASS",
            help="What a value in lesion files stands for, such as 255=1; 0 drops it; repeat for more.",
            show_default=False,
        ),
    ] = None,
    disease: Annotated[
        str | None, typer.Option(metavar="WORD", help="A word for what the patients have.", show_default=False)
    ] = None,
    blank: Annotated[
        bool, typer.Option("--blank", help="Keep slices that show no brain as well, as the paper does.")
    ] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes to use.", show_default="one per core")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Normalise, resize and store the axial slices of every patient in SOURCE.

    Patients already in the store are left alone, so a stopped run is resumed by running it again. A patient that
    cannot be read is reported and skipped; the exit code is then 4.
    """
    from dataclasses import asdict

    from diptych.cli.console import print_json, progress_bar
    from diptych.cli.description_options import described
    from diptych.processes import cores
    from diptych.slices import SliceGeometry, SliceStore
    from diptych.slices.preparation import prepare as prepare_store

    geometry = SliceGeometry(size=_size(size), field=_field(field))
    with progress_bar("Preparing") as progress:
        report = prepare_store(
            sources,
            out,
            geometry=geometry,
            channels=_channels(channel),
            description=described(disease=disease, classes=classes, codes=lesion_code),
            blank=blank,
            workers=workers or cores(),
            progress=progress,
        )
    if json_output:
        print_json({"store": out, **asdict(report)})
    else:
        _print_report(SliceStore.open(out), report)
    if report.failed:
        raise PartialFailure(f"{len(report.failed)} patients failed and are not in {out}; the others are")


def _print_report(store: SliceStore, report: PrepareReport) -> None:
    rows, columns = store.geometry.size
    print(
        f"{store.path}: {len(store.patients)} patients, {report.slices} slices of {rows}x{columns} pixels "
        f"({', '.join(store.channels)}); {len(report.written)} written and {len(report.unchanged)} unchanged "
        f"in {report.seconds:.1f} s"
    )
    lines = [f"{key}: {warning}" for key, warnings in report.warnings.items() for warning in warnings]
    for line in lines[:SHOWN]:
        print(f"warning: {line}", file=sys.stderr)
    if len(lines) > SHOWN:
        print(f"warning: {len(lines) - SHOWN} more in {store.path / 'manifest.json'}", file=sys.stderr)
    for key, reason in report.failed.items():
        print(f"failed: {key}: {reason}", file=sys.stderr)


def _size(text: str) -> tuple[int, int]:
    numbers = text.lower().split("x")
    if len(numbers) not in (1, 2) or not all(number.isdecimal() for number in numbers):
        raise UsageError(f"--size {text}: must be a number of pixels such as 128, or rows x columns such as 128x96")
    return int(numbers[0]), int(numbers[-1])


def _field(text: str) -> tuple[float, float] | None:
    if text.lower() == "full":
        return None
    try:
        height, width = (float(number) for number in text.lower().split("x"))
    except ValueError:
        raise UsageError(f"--field {text}: must be height x width in mm such as 200x160, or full") from None
    return height, width


def _channels(names: list[str] | None) -> tuple[str, ...] | None:
    from diptych.volumes import CHANNELS

    unknown = [name for name in names or () if name not in CHANNELS]
    if unknown:
        raise UsageError(f"--channel {unknown[0]}: channels are {', '.join(CHANNELS)}")
    return tuple(name for name in CHANNELS if name in names) if names else None


def split(
    store: Annotated[
        Path, typer.Argument(metavar="STORE", help="A slice store made by 'diptych prepare'.", show_default=False)
    ],
    train: Annotated[float, typer.Option(help="Fraction of the patients that go into training.")] = 0.8,
    seed: Annotated[int, typer.Option(help="Which of the possible divisions to take.")] = 0,
    train_list: Annotated[
        Path | None, typer.Option(help="Text file of training patient keys, instead of a fraction.")
    ] = None,
    test_list: Annotated[Path | None, typer.Option(help="Text file of test patient keys.")] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write the split.", show_default="STORE/split.json")
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print the split as JSON.")] = False,
) -> None:
    """Divide patients by a seed or by given lists; a person on both sides is refused.

    Time points of one subject, and scans with the same voxels under two keys, count as one person.
    """
    from dataclasses import asdict

    from diptych.cli.console import print_json
    from diptych.slices import SliceStore
    from diptych.slices.splits import given_split, read_keys, seeded_split

    if (train_list is None) != (test_list is None):
        raise UsageError("--train-list and --test-list go together; give both or neither")
    patients = SliceStore.open(store).patients
    if train_list is not None and test_list is not None:
        result = given_split(patients, read_keys(train_list), read_keys(test_list))
    else:
        result = seeded_split(patients, train=train, seed=seed)
    out = out or store / "split.json"
    result.save(out)
    if json_output:
        print_json({"split": out, **asdict(result)})
    else:
        left_out = len(patients) - len(result.train) - len(result.test)
        print(f"{out}: {len(result.train)} training and {len(result.test)} test patients, {left_out} in neither")
