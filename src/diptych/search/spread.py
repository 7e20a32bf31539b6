"""How far apart slices of an archive are in one panel: what makes the two panels' distances comparable.

Knows packed codes and a table.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from diptych.search.codes import PanelCodes
from diptych.tables import DistanceTable

__all__ = ["distance_spread", "pair_distances"]


def distance_spread(
    codes: PanelCodes, table: DistanceTable, region: NDArray[np.bool_], *, pairs: int = 4096, seed: int = 0
) -> float:
    """Standard deviation of the distance between random slices; 1 where all distances are equal."""
    if len(codes) < 2:
        return 1.0
    one, other = np.random.default_rng(seed).integers(len(codes), size=(2, pairs))
    distances = pair_distances(codes.ids(one), codes.ids(other), table, region)
    return float(np.std(distances)) or 1.0


def pair_distances(
    one: NDArray[np.integer], other: NDArray[np.integer], table: DistanceTable, region: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Distances between two lists of grids `[n, P]`, pair by pair."""
    weights = table.weights_of(len(region))[region]
    one, other = one[:, region], other[:, region]
    lengths = np.diag(table.entries).astype(np.int64)
    return table.distance(table.entries[one, other] @ weights, lengths[one] @ weights, lengths[other] @ weights)
