"""`diptych split`: divide the patients of a slice store into training and test patients."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from diptych.errors import UsageError

__all__ = ["split"]


def split(
    store: Annotated[Path, typer.Argument(help="A slice store made by 'diptych prepare'.", show_default=False)],
    train: Annotated[float, typer.Option(help="Fraction of the patients that go into training.")] = 0.8,
    seed: Annotated[int, typer.Option(help="Which of the possible divisions to take.")] = 0,
    train_list: Annotated[
        Path | None, typer.Option(help="Text file of training patient keys, instead of a fraction.")
    ] = None,
    test_list: Annotated[Path | None, typer.Option(help="Text file of test patient keys.")] = None,
    out: Annotated[Path | None, typer.Option(help="Where to write the split.", show_default="STORE/split.json")] = None,
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
