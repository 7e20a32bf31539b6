"""`LabelledSlices`: the ids of patients whose labels are known, for fitting and judging what compares ids.

Knows slice stores and the network's encoder; nothing about tables or archives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from diptych.errors import StoreError
from diptych.model import FeatureDecomposingNetwork
from diptych.progress import Progress, silent
from diptych.slices import SliceStore

__all__ = ["CLASSES", "LabelledSlices", "encode_labelled"]

BATCH = 64

CLASSES = {"normal": 6, "abnormal": 3}
"""Labels that a panel tells apart, background left out."""


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
    )
