"""Which distances a model offers: one table per codebook and metric, each made when it is first asked for.

Knows codebooks and tables; nothing about archives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from diptych.model import FeatureDecomposingNetwork, VectorQuantizer
from diptych.tables import DistanceTable, Tables, angular_table, euclidean_table

__all__ = ["LazyTables", "model_tables"]


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
        return metric in self._makers


def model_tables(network: FeatureDecomposingNetwork) -> Tables:
    """Every table that follows from the two codebooks."""
    rows, columns = network.config.latent_size
    return Tables(*(_panel(one, rows * columns) for one in (network.normal_quantizer, network.abnormal_quantizer)))


def _panel(quantizer: VectorQuantizer, cells: int) -> LazyTables:
    codebook = quantizer.codebook.detach().cpu().numpy()
    return LazyTables(
        {
            "euclidean": lambda: euclidean_table(codebook, cells=cells),
            "angular": lambda: angular_table(codebook, cells=cells),
        }
    )
