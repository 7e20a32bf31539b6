"""Label maps of whole volumes: what their codes decode to, made once when a volume is indexed and stored with it.

Knows decoders and records; `diptych.search.label_maps` packs what comes out. An archive whose maps another version of
the decoders made answers with those until they are decoded again.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from diptych.archive import ArchiveWriter, VolumeRecord
from diptych.archive.rows import StoredLabels
from diptych.errors import InputError
from diptych.metrics.decoded_planes import BATCH, LEVELS, PlaneDecoder, StoredModelDecoder
from diptych.metrics.label_decoders import LabelDecoders
from diptych.progress import Progress, silent
from diptych.search.label_maps import LabelMaps, Levels
from diptych.search.label_storage import pack_labels

if TYPE_CHECKING:
    from diptych.model import FeatureDecomposingNetwork


@dataclass(frozen=True, eq=False)
class VolumeDecoder:
    """A decoder that takes whole records, as indexing wants it."""

    decoder: PlaneDecoder | StoredModelDecoder

    def __call__(self, record: VolumeRecord) -> StoredLabels | None:
        """The label maps of a volume; None where they are too varied to be packed, and searches decode them."""
        grids = {"normal": record.normal_ids, "abnormal": record.abnormal_ids}
        try:
            maps = {panel: LabelMaps.pack(self.levels(panel, grids[panel])) for panel in self.decoder.panels}
        except InputError:
            return None
        return pack_labels(maps, self.decoder.version)

    def levels(self, panel: str, ids: NDArray[np.integer]) -> Levels:
        """Levels `[n, C, H, W]` that the probabilities of ids `[n, h, w]` reach."""
        parts = []
        for start in range(0, len(ids), BATCH):
            shares = self.decoder.probabilities(panel, ids[start : start + BATCH])
            parts.append(np.sum([shares >= level for level in LEVELS], axis=0, dtype=np.uint8))
        return np.concatenate(parts)


def volume_decoder(network: FeatureDecomposingNetwork, folder: Path | None) -> VolumeDecoder:
    """What decodes the volumes of a model, with the label decoders in its folder where there are some."""
    return VolumeDecoder(PlaneDecoder(network, LabelDecoders.open(folder, network)))


def decode_archive(writer: ArchiveWriter, decode: VolumeDecoder, *, progress: Progress = silent) -> int:
    """Decode every volume that has no label maps of this version; returns how many that were.

    One transaction each: it may be stopped at any time and goes on where it was.
    """
    listing = writer.listing()
    stale = [
        info.volume_key
        for info, version in zip(listing.volumes, listing.label_versions, strict=True)
        if version != decode.decoder.version
    ]
    for done, key in enumerate(stale, start=1):
        labels = decode(writer.record(key))
        if labels is not None:
            writer.add_labels(key, labels)
        progress(done, len(stale), key)
    return len(stale)
