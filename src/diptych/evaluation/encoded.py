"""Ids of labelled patients, encoded once: kept in a file that may be deleted at any time. Knows stores and caches."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import numpy as np

from diptych.model import FeatureDecomposingNetwork
from diptych.progress import Progress, silent
from diptych.retrieval.labelled import LabelledSlices, encode_labelled
from diptych.search import load_arrays, save_arrays
from diptych.slices import SliceStore

__all__ = ["encode_once"]

CACHE_VERSION = 1


def encode_once(
    network: FeatureDecomposingNetwork,
    stores: Sequence[SliceStore],
    keys: Sequence[str],
    path: Path,
    *,
    progress: Progress = silent,
) -> LabelledSlices:
    """What `encode_labelled` gives, with the ids from the file `path` where they are those of this model and data."""
    homes = {key: store for store in stores for key in store.patients}
    content = [network.fingerprint, *(homes[key].patients[key].files["images"].sha256 for key in keys)]
    key = f"ids {CACHE_VERSION} of {sha256(repr(content).encode()).hexdigest()}"
    counts = [homes[key].patients[key].slices for key in keys]
    rows, columns = network.config.latent_size
    kept = load_arrays(path, key=key)
    if kept is None or any(kept[panel].shape != (sum(counts), rows * columns) for panel in ("normal", "abnormal")):
        slices = encode_labelled(network, stores, keys, progress=progress)
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            save_arrays(path, {panel: ids.astype(np.int32) for panel, ids in slices.ids.items()}, key=key)
        return slices
    labels = {"abnormal": np.concatenate([np.asarray(homes[key].lesion(key)) for key in keys])}
    anatomy = [homes[key].anatomy(key) for key in keys]
    if all(part is not None for part in anatomy):
        labels["normal"] = np.concatenate([np.asarray(part) for part in anatomy])
    return LabelledSlices(
        grid=network.config.latent_size,
        ids={panel: kept[panel].astype(np.int64) for panel in ("normal", "abnormal")},
        labels=labels,
        volume=np.repeat(np.arange(len(keys)), counts),
        keys=tuple(keys),
    )
