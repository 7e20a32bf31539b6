"""Which distances a model offers: one table per codebook and metric, each made when it is first asked for.

Knows codebooks and tables; nothing about archives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diptych.metrics.binary_codes import Bits, binary_codes, load_binary_codes
from diptych.metrics.learned_tables import METRIC, LearnedTables, load_learned_tables
from diptych.model.stored_model import Identified
from diptych.search import load_arrays, save_arrays
from diptych.search.tables import DistanceTable, Tables, angular_table, euclidean_table, hamming_table


class LazyTables(Mapping[str, DistanceTable]):
    """Tables by metric; what nobody asks for is never worked out."""

    def __init__(self, makers: Mapping[str, Callable[[], DistanceTable]]) -> None:
        self._makers = dict(makers)
        self._made: dict[str, DistanceTable] = {}

    def __getitem__(self, metric: str) -> DistanceTable:
        if metric not in self._made:
            self._made[metric] = self._makers[metric]()
        return self._made[metric]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)

    def __contains__(self, metric: object) -> bool:
        return metric in self._makers  # a Mapping's own would make the table to see whether it is there


def tables_of_model(model: Identified, folder: Path | None, *, cache: Path) -> Tables:
    """Every table of a model, with what lies in its folder beside the weights."""
    if folder is None:
        return model_tables(model, cache=cache)
    config, fingerprint = model.config, model.fingerprint
    rows, columns = config.latent_size
    learned = load_learned_tables(folder, fingerprint=fingerprint, cells=rows * columns, codes=config.codebook_size)
    bits = load_binary_codes(folder, fingerprint=fingerprint, codes=config.codebook_size)
    return model_tables(model, learned=learned, bits=bits, cache=cache)


def model_tables(
    model: Identified,
    *,
    learned: LearnedTables | None = None,
    bits: Mapping[str, Bits] = {},
    cache: Path | None = None,
) -> Tables:
    """Every table that follows from the two codebooks, and the learned ones where there are any.

    Args:
        model: whose codebooks they are.
        learned: learned tables.
        bits: binary codes by panel, where they are known already; they take seconds.
        cache: folder in which what takes seconds is kept.
    """
    rows, columns = model.config.latent_size
    tables = {}
    for name, codebook in model.codebooks.items():
        kept = None if cache is None else cache / f"hamming-{name}.arrays"
        makers = _makers(codebook, rows * columns, bits.get(name), kept)
        if learned is not None and name in learned.panels:
            makers[METRIC] = learned.panels[name].distance_table
        tables[name] = LazyTables(makers)
    return Tables(**tables)


def _makers(
    codebook: NDArray[np.float32], cells: int, bits: Bits | None, cache: Path | None
) -> dict[str, Callable[[], DistanceTable]]:
    return {
        "euclidean": lambda: euclidean_table(codebook, cells=cells),
        "angular": lambda: angular_table(codebook, cells=cells),
        "hamming": lambda: _hamming(codebook, cache) if bits is None else hamming_table(bits),
    }


def _hamming(codebook: NDArray[np.float32], cache: Path | None) -> DistanceTable:
    """The table of binary codes with their length optimised (algorithm A.1), which takes seconds the first time."""
    key = f"hamming 1 of {sha256(codebook.tobytes()).hexdigest()}"
    kept = None if cache is None else load_arrays(cache, key=key)
    if kept is not None:
        return DistanceTable("hamming", "sum", kept["entries"], 1.0)
    table = hamming_table(binary_codes(codebook))
    if cache is not None:
        with suppress(OSError):
            cache.parent.mkdir(mode=0o700, exist_ok=True)
            save_arrays(cache, {"entries": table.entries}, key=key)
    return table
