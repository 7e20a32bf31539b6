"""What the commands that fit something to a finished model have in common: their options, and what they work on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from diptych.model import FeatureDecomposingNetwork
    from diptych.slices import SliceDataset

__all__ = ["Json", "Material", "Model", "Seed", "Steps", "Stores", "TrainList", "gather"]

Stores = Annotated[list[Path], typer.Argument(metavar="STORE...", help="Slice stores made by 'diptych prepare'.")]
Model = Annotated[Path, typer.Option("--model", help="Folder of the model, which is not changed.")]
TrainList = Annotated[
    Path | None,
    typer.Option(help="Text file of patients to learn from; the others judge. Without it, one in ten judges."),
]
Steps = Annotated[int | None, typer.Option(help="Learn for so many steps instead, always with one result.")]
Seed = Annotated[int, typer.Option(help="Start of every random draw.")]
Json = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]


@dataclass(frozen=True)
class Material:
    """A model, slices to learn from, and slices of others to judge by."""

    network: FeatureDecomposingNetwork
    train: SliceDataset
    """Augmented."""
    test: SliceDataset | None


def gather(stores: list[Path], model: Path, *, train_list: Path | None, seed: int) -> Material:
    """Open stores and model and divide the patients."""
    from diptych.model import load_model
    from diptych.retrieval.fitting import divide_patients
    from diptych.slices import PAPER_AUGMENTATION, SliceDataset, SliceStore

    network = load_model(model)
    opened = [SliceStore.open(store) for store in stores]
    split = divide_patients(opened, train_list=train_list, seed=seed)
    return Material(
        network,
        SliceDataset(opened, split.train, augmentation=PAPER_AUGMENTATION),
        SliceDataset(opened, split.test) if split.test else None,
    )
