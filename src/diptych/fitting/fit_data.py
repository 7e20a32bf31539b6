"""What fittings to a finished model have in common: who is learnt from, ids with known labels, and when to end."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from diptych.config import ModelConfig
from diptych.description import GLIOMA
from diptych.errors import StoreError, UsageError
from diptych.model import FeatureDecomposingNetwork
from diptych.progress import Progress, silent
from diptych.slices import PAPER_AUGMENTATION, SliceDataset, SliceStore
from diptych.slices.augment import Augmentation
from diptych.slices.splits import Split, given_split, read_keys, seeded_split

TRAIN_SHARE = 0.9


def divide_patients(
    stores: Sequence[SliceStore],
    *,
    train_list: Path | None = None,
    validation_list: Path | None = None,
    seed: int = 0,
) -> Split:
    """Who is learnt from and who judges: those on the two lists; without any, nine tenths and the rest.

    Whoever says who is learnt from says who judges, too: what a store holds beside them may be test patients.
    """
    if (train_list is None) != (validation_list is None):
        said, missing = ("--train-list", "--val-list") if validation_list is None else ("--val-list", "--train-list")
        raise UsageError(
            f"{said} needs {missing} beside it: name those who are learnt from and those who judge; patients on "
            "neither list, such as test patients, then do neither"
        )
    labelled = {
        key: record for store in stores for key, record in store.patients.items() if record.lesion_pixels is not None
    }
    if not labelled:
        raise StoreError(f"{stores[0].path}: no patient with lesion labels to learn from; prepare some")
    if train_list is not None and validation_list is not None:
        return given_split(labelled, read_keys(train_list), read_keys(validation_list))
    if len(labelled) == 1:
        return Split(tuple(labelled), ())
    return seeded_split(labelled, train=min(TRAIN_SHARE, 1 - 1 / len(labelled)), seed=seed)


def under_other_conditions(config: ModelConfig) -> Augmentation:
    """What a model that can do without channels is shown: some slices lack them, some come from poorer scanners.

    Label decoders then read its codes of such patients, too. Any other model is shown slices as they are.
    """
    if not config.sufficient_channels:
        return PAPER_AUGMENTATION
    return replace(
        PAPER_AUGMENTATION,
        degradations=1.0,
        degraded_share=0.3,
        channel_dropout=0.25,
        sufficient_channels=config.sufficient_channels,
    )


def require_anatomy(stores: Sequence[SliceStore], keys: Sequence[str]) -> None:
    """Refuse patients without anatomy labels before any work is done: the normal code's table is learnt from them."""
    home = {key: store for store in stores for key in store.patients}
    bare = [key for key in keys if key in home and "anatomy" not in home[key].patients[key].files]
    if bare:
        raise StoreError(
            f"patient {bare[0]} and {len(bare) - 1} more: no anatomy labels, which the normal code's table is learnt "
            "from; make them with 'diptych annotate anatomy' and prepare again, or list others with --train-list"
        )


def require_fitting_slices(network: FeatureDecomposingNetwork, dataset: SliceDataset) -> None:
    """Refuse slices of another geometry than the network takes."""
    config = network.config
    if (dataset.geometry.size, dataset.geometry.field) != (config.image_size, config.field_mm):
        raise StoreError(
            f"{dataset.stores[0].path}: has slices of {dataset.geometry}, the model takes "
            f"{config.image_size[0]}x{config.image_size[1]} pixels; prepare them with the model's preset"
        )


class FittingLength:
    """How far a fitting is, by steps or by the clock."""

    def __init__(self, steps: int | None, minutes: float | None) -> None:
        if (steps is None) == (minutes is None):
            raise UsageError("length of fitting: give either steps or minutes")
        if not (steps or minutes or 0) > 0:
            raise UsageError(f"length of fitting {minutes if steps is None else steps}: must be above 0")
        self.steps, self.seconds = steps, None if minutes is None else 60 * minutes
        self.taken, self.started = 0, time.monotonic()

    def step(self) -> None:
        """Count one step."""
        self.taken += 1

    def share(self) -> float:
        """How much is done, from 0 to 1 or a little above."""
        if self.seconds is None:
            return self.taken / (self.steps or 1)
        return (time.monotonic() - self.started) / self.seconds

    def falling(self, peak: float) -> float:
        """A step size that falls from its peak to zero along a cosine."""
        return peak * 0.5 * (1 + math.cos(math.pi * min(self.share(), 1)))

    def done(self) -> tuple[int, int]:
        """For a progress report: steps of steps, or seconds of seconds."""
        if self.seconds is None:
            return self.taken, self.steps or 1
        return min(round(time.monotonic() - self.started), round(self.seconds)), max(round(self.seconds), 1)


BATCH = 64


@dataclass(frozen=True, eq=False)
class LabelledSlices:
    """N slices of some patients, patient by patient from bottom to top."""

    grid: tuple[int, int]
    """Rows and columns of an id grid, h × w."""
    ids: Mapping[str, NDArray[np.int64]]
    """By panel, `[N, h*w]`."""
    labels: Mapping[str, NDArray[np.uint8]]
    """What the ids of each panel ought to tell, `[N, H, W]`: lesion for `abnormal`, anatomy for `normal` where every
    patient has it."""
    volume: NDArray[np.int64]
    """Number of the patient, `[N]`."""
    keys: tuple[str, ...]
    classes: Mapping[str, int] = field(default_factory=lambda: GLIOMA.panel_classes)
    """Labels that each panel tells apart, background left out."""

    def __len__(self) -> int:
        return len(self.volume)

    @property
    def lesion_area(self) -> NDArray[np.int64]:
        """Lesion pixels, `[N]`."""
        return np.asarray(np.count_nonzero(self.labels["abnormal"], axis=(1, 2)))


def encode_labelled(
    network: FeatureDecomposingNetwork,
    stores: Sequence[SliceStore],
    keys: Sequence[str],
    *,
    progress: Progress = silent,
) -> LabelledSlices:
    """Encode patients with lesion labels; anatomy labels are used if every one of them has some."""
    home = {key: store for store in stores for key in store.patients}
    normal, abnormal, lesion, anatomy = [], [], [], []
    for done, key in enumerate(keys, start=1):
        if key not in home or home[key].lesion(key) is None:
            raise StoreError(f"patient {key}: not in the store, or without lesion labels; take it off the list")
        images = home[key].images(key)
        for start in range(0, len(images), BATCH):
            ids = network.encode(torch.from_numpy(images[start : start + BATCH].astype(np.float32)))
            normal.append(ids.normal.flatten(1).numpy())
            abnormal.append(ids.abnormal.flatten(1).numpy())
        lesion.append(np.asarray(home[key].lesion(key)))
        anatomy.append(home[key].anatomy(key))
        progress(done, len(keys), key)
    if not lesion:
        raise StoreError("no patient is given; name at least two, with lesion labels")
    labels = {"abnormal": np.concatenate(lesion)}
    if all(part is not None for part in anatomy):
        labels["normal"] = np.concatenate([np.asarray(part) for part in anatomy])
    return LabelledSlices(
        grid=network.config.latent_size,
        ids={"normal": np.concatenate(normal), "abnormal": np.concatenate(abnormal)},
        labels=labels,
        volume=np.repeat(np.arange(len(keys)), [len(part) for part in lesion]),
        keys=tuple(keys),
        classes=network.description.panel_classes,
    )
