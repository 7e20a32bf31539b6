"""The label maps of one volume as bytes, for the archive's truth, and back.

One safetensors blob with the arrays of each panel's `LabelMaps`, named `panel.array`. Knows arrays and bytes; whoever
reads them back has checked their checksum, but not that they fit the volume: that is done here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from diptych.archive.rows import StoredLabels
from diptych.search.label_maps import LabelMaps


def pack_labels(maps: Mapping[str, LabelMaps], version: str) -> StoredLabels:
    """Maps of all slices of a volume, by panel, as the decoders of that version made them."""
    arrays = {
        f"{panel}.{name}": np.ascontiguousarray(a) for panel, one in maps.items() for name, a in one.arrays().items()
    }
    return StoredLabels(version, save(arrays))


def unpack_labels(labels: StoredLabels, slices: int) -> dict[str, LabelMaps]:
    """The maps by panel; nothing where they are not maps of that many slices."""
    panels: dict[str, dict[str, NDArray[Any]]] = {}
    try:
        for name, array in load(labels.content).items():
            panel, _, rest = name.partition(".")
            panels.setdefault(panel, {})[rest] = array
        maps = {panel: LabelMaps.restore(arrays) for panel, arrays in panels.items()}
    except (SafetensorError, KeyError, ValueError, TypeError):
        return {}
    return maps if all(len(one) == slices for one in maps.values()) else {}
