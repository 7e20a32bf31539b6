"""From ids to planes: the label maps that codes stand for, small and packed, for one slice or a whole archive.

The model's label decoders are asked where it has some. Without them the abnormal code goes through the segmentation
decoder and the normal code through the anatomy head, and probabilities are averaged down to a grid of 32 × 32. They are
kept at three levels: 384 bytes per class. An archive's planes are decoded once and kept in its cache folder, which may
be deleted at any time. Knows decoders and caches; nothing about queries.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from diptych.config import LABEL_GRID as GRID
from diptych.metrics.label_decoders import LABEL_DECODERS, LabelDecoders
from diptych.metrics.label_planes import Planes
from diptych.metrics.label_rows import LabelRows
from diptych.model.stored_model import StoredModel
from diptych.progress import Progress, silent
from diptych.search import SearchIndex, load_arrays, save_arrays

if TYPE_CHECKING:
    from diptych.model import FeatureDecomposingNetwork

LEVELS = (1 / 6, 1 / 2, 5 / 6)
"""Each plane stands for a third of the probability, this being its middle. One plane alone finds a little less."""

CACHE_FILE = "planes-{panel}.arrays"
CACHE_VERSION = 2
"""Raise it whenever grid, levels or decoding change."""

BATCH = 32


class PlaneDecoder:
    """Decodes ids with one network, or with the label decoders that were fitted to it."""

    def __init__(self, network: FeatureDecomposingNetwork, labels: LabelDecoders | None = None) -> None:
        self.network = network.eval()
        self.labels = labels
        self.device = network.normal_quantizer.codebook.device

    @property
    def panels(self) -> tuple[str, ...]:
        """Panels whose ids decode to labels."""
        fitted = self.labels is not None and "normal" in self.labels.decoders
        return ("normal", "abnormal") if fitted or self.network.anatomy_head is not None else ("abnormal",)

    @property
    def fitted(self) -> bool:
        """Whether label decoders were fitted to the model."""
        return self.labels is not None

    @property
    def version(self) -> str:
        """Which of several ways to decode this model's ids it is."""
        return f"{CACHE_VERSION} {'by the network' if self.labels is None else self.labels.version}"

    def __call__(self, panel: str, ids: NDArray[np.integer]) -> Planes:
        """Planes of ids `[n, h, w]`."""
        return Planes.of_probabilities(self.probabilities(panel, ids), LEVELS)

    def probabilities(self, panel: str, ids: NDArray[np.integer]) -> NDArray[np.float32]:
        """Probabilities of the classes, background left out, `[n, C, 32, 32]`."""
        import torch
        import torch.nn.functional as F

        grids = torch.from_numpy(np.ascontiguousarray(ids, dtype=np.int64)).to(self.device)
        if self.labels is not None and panel in self.labels.decoders:
            return np.asarray(self.labels.shares(panel, grids).cpu().numpy())
        decode = self.network.decode_lesion if panel == "abnormal" else self.network.decode_anatomy
        with torch.no_grad():
            shares = F.adaptive_avg_pool2d(decode(grids).softmax(dim=1)[:, 1:], GRID)
        return np.asarray(shares.cpu().numpy())


class StoredModelDecoder:
    """The same for a model on disk; its network is made when the first ids are decoded, which most searches never do.

    Args:
        model: its folder may hold label decoders.
    """

    def __init__(self, model: StoredModel) -> None:
        self.model = model
        found = LABEL_DECODERS.read(model.folder, fingerprint=model.fingerprint)
        self._fitted = set() if found is None else {name.partition(".")[0] for name in found[0]}

    @property
    def panels(self) -> tuple[str, ...]:
        """Panels whose ids decode to labels."""
        anatomy = "normal" in self._fitted or bool(self.model.config.anatomy_classes)
        return ("normal", "abnormal") if anatomy else ("abnormal",)

    @property
    def fitted(self) -> bool:
        """Whether label decoders were fitted to the model."""
        return bool(self._fitted)

    @property
    def version(self) -> str:
        """Which of several ways to decode this model's ids it is."""
        return self._decoder.version

    @cached_property
    def _decoder(self) -> PlaneDecoder:
        network = self.model.network
        return PlaneDecoder(network, LabelDecoders.open(self.model.folder, network))

    def probabilities(self, panel: str, ids: NDArray[np.integer]) -> NDArray[np.float32]:
        """Probabilities of the classes, background left out, `[n, C, 32, 32]`."""
        return self._decoder.probabilities(panel, ids)

    def __call__(self, panel: str, ids: NDArray[np.integer]) -> Planes:
        """Planes of ids `[n, h, w]`."""
        return self._decoder(panel, ids)


class Decoder(Protocol):
    """What turns ids into planes, such as a `PlaneDecoder`."""

    @property
    def panels(self) -> tuple[str, ...]: ...
    @property
    def version(self) -> str: ...
    def __call__(self, panel: str, ids: NDArray[np.integer]) -> Planes: ...


class ArchivePlanes:
    """Planes of every slice of an index, decoded when first asked for, or taken from the cache folder.

    Args:
        index: the slices.
        decoder: made of the archive's own model.
        cache: folder of the archive's cache; without one, planes are kept in memory only.
        version: names the archive's content and model.
        stored: label maps that were made when volumes were indexed; with those of all panels nothing is decoded.
        waits: whether searches may wait until maps are decoded, as an evaluation may; users are answered at once.
    """

    def __init__(
        self,
        index: SearchIndex,
        decoder: Decoder,
        *,
        cache: Path | None,
        version: str,
        stored: Mapping[str, LabelRows] | None = None,
        waits: bool = False,
    ) -> None:
        self.index = index
        self.decoder = decoder
        self.cache = cache
        self.version = version
        self._planes: dict[str, Planes] | None = None
        self.stored = stored if stored is not None and set(decoder.panels) <= stored.keys() else None
        self.fitted = (waits or self.stored is not None) and getattr(decoder, "fitted", False)
        """Whether the maps are there, or waited for, and made by label decoders that were fitted to the model."""
        self._decoding = Lock()

    @property
    def panels(self) -> tuple[str, ...]:
        """Panels whose ids decode to labels."""
        return self.decoder.panels

    @property
    def ready(self) -> bool:
        """Whether `planes` answers at once."""
        return self.stored is not None or self._planes is not None

    def maps(self, progress: Progress = silent) -> Mapping[str, Planes | LabelRows]:
        """What there is to compare by panel: stored maps, or else planes that are decoded now."""
        return self.planes(progress) if self.stored is None else self.stored

    def planes(self, progress: Progress = silent) -> dict[str, Planes]:
        """By panel; `progress` is told after each batch of different slices."""
        with self._decoding:
            if self._planes is None:
                self._planes = {panel: self._panel(panel, progress) for panel in self.panels}
            return self._planes

    def _panel(self, panel: str, progress: Progress) -> Planes:
        if self.cache is None:
            return _decode_all(self.index, panel, self.decoder, progress)
        path = self.cache / CACHE_FILE.format(panel=panel)
        key = f"planes {self.decoder.version} of {self.version}"
        arrays = load_arrays(path, key=key)
        if arrays is not None and arrays.keys() == {"words", "areas"} and len(arrays["areas"]) == len(self.index):
            height, width = len(LEVELS) * GRID[0], GRID[1]
            return Planes((height, width), arrays["words"].view("<u8"), arrays["areas"], len(LEVELS))
        planes = _decode_all(self.index, panel, self.decoder, progress)
        with suppress(OSError):  # the cache is a convenience: a folder that cannot be written costs time only
            self.cache.mkdir(mode=0o700, exist_ok=True)
            save_arrays(path, {"words": planes.words.view(np.uint8), "areas": planes.areas}, key=key)
        return planes


def _decode_all(index: SearchIndex, panel: str, decoder: Decoder, progress: Progress) -> Planes:
    """Decode each different grid of ids once: lesion-free slices often have the same."""
    ids = index.codes[panel].ids(np.arange(len(index)))
    different, place = np.unique(ids, axis=0, return_inverse=True)
    grids = different.reshape(-1, *index.grid)
    parts = []
    for start in range(0, len(grids), BATCH):
        parts.append(decoder(panel, grids[start : start + BATCH]))
        progress(min(start + BATCH, len(grids)), len(grids), f"{panel} planes")
    return Planes.join(parts).take(place.reshape(-1))
