"""Which slices make a training batch: healthy and diseased ones in pairs from the same height, or slices as they come.

Gliomas are rare at the bottom and the top of the brain. A critic that is shown all healthy and all diseased slices
would learn height, not health; so every slice that is drawn brings a partner of the other kind from about the same
position and, where possible, from another patient. Every slice is drawn once per round, healthy ones too, or the
network would hardly ever see a cerebellum. The paper draws plain batches instead: every slice once per round, whatever
its kind.

What a step draws is a function of (seed, step) alone. Knows a table of positions, nothing about pixels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from diptych.errors import UsageError
from diptych.slices.dataset import SliceDataset, SliceTable
from diptych.slices.slice_batch import Batch

WINDOW = 0.03
"""Partners lie within this difference in position: two slices of a brain 140 mm high at 2 mm."""

CANDIDATES = 0.01
"""Where the window holds less than this share of the partners, the nearest ones beyond it join: at the bottom of the
brain few slices are diseased, and those few must not be worn out."""


@dataclass(frozen=True, eq=False)
class Draw:
    """The slices of one step, or this process's part of them."""

    indices: NDArray[np.int64]
    """Slices of the dataset, `[n]`; of paired draws 2i and 2i+1 are a pair, so any even cut keeps kinds in balance."""
    seeds: NDArray[np.int64]
    """One augmentation seed per slice, `[n]`."""

    def __len__(self) -> int:
        return len(self.indices)

    def parts(self, size: int) -> Iterator[Draw]:
        """Cut into consecutive draws of at most `size` slices, for gradient accumulation."""
        for start in range(0, len(self), size):
            yield Draw(self.indices[start : start + size], self.seeds[start : start + size])


class MatchedSampler:
    """Draws `batch_size` slices per step over all processes, half healthy and half diseased, matched in position.

    Without `match_position` batches are slices as they come: steps_per_epoch of them show every slice once.
    """

    def __init__(
        self,
        table: SliceTable,
        *,
        batch_size: int,
        seed: int,
        match_position: bool = True,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if batch_size < 2 or batch_size % (2 * world_size):
            raise UsageError(f"batch size {batch_size}: must be a multiple of {2 * world_size}, a pair per process")
        if not len(table.row):
            raise UsageError("there are no slices to draw from; choose patients that are in the store")
        self.table = table
        self.batch_size = batch_size
        self.seed = seed
        self.match_position = match_position
        self.rank = rank
        self.world_size = world_size
        self._kinds = tuple(_Sorted(table, np.flatnonzero(table.diseased == kind)) for kind in (False, True))
        self._round = -1
        self._order: NDArray[np.int64] = np.arange(0)

    @property
    def paired(self) -> bool:
        """False when batches are merely shuffled: as the paper has it, or because all slices are of one kind."""
        return self.match_position and all(len(kind.indices) for kind in self._kinds)

    @property
    def steps_per_epoch(self) -> int:
        """Steps after which as many slices have been drawn as there are."""
        return -(-len(self.table.row) // self.batch_size)

    def draw(self, step: int) -> Draw:
        """This process's slices of a step."""
        rng = np.random.default_rng([self.seed, step, 1])
        seeds = rng.integers(2**62, size=self.batch_size)
        if self.paired:
            pairs = self.batch_size // 2
            anchors = self._shuffled(step * pairs, pairs)
            partners = [self._partner(anchor, rng) for anchor in anchors]
            indices = np.stack([anchors, partners], axis=1).reshape(-1)
        else:
            indices = self._shuffled(step * self.batch_size, self.batch_size)
        share = self.batch_size // self.world_size
        mine = slice(self.rank * share, (self.rank + 1) * share)
        return Draw(indices[mine], seeds[mine])

    def _shuffled(self, start: int, count: int) -> NDArray[np.int64]:
        """Entries `start…start+count` of an endless sequence of rounds, each one a permutation of all slices."""
        drawn = []
        for place in range(start, start + count):
            round_, entry = divmod(place, len(self.table.row))
            if round_ != self._round:
                self._round = round_
                self._order = np.random.default_rng([self.seed, round_, 0]).permutation(len(self.table.row))
            drawn.append(self._order[entry])
        return np.array(drawn)

    def _partner(self, anchor: int, rng: np.random.Generator) -> int:
        """A slice of the other kind, near in position, from another patient where there is one."""
        others = self._kinds[int(not self.table.diseased[anchor])]
        candidates = others.near(float(self.table.position[anchor]))
        strangers = candidates[self.table.patient[candidates] != self.table.patient[anchor]]
        chosen: int = rng.choice(strangers if len(strangers) else candidates)
        return chosen


class _Sorted:
    """Slices of one kind in order of position."""

    def __init__(self, table: SliceTable, indices: NDArray[np.int64]) -> None:
        self.indices = indices[np.argsort(table.position[indices], kind="stable")]
        self.positions = table.position[self.indices]
        self.fewest = max(4, math.ceil(CANDIDATES * len(indices)))

    def near(self, position: float) -> NDArray[np.int64]:
        """All slices within the window, or the nearest few."""
        low, high = np.searchsorted(self.positions, [position - WINDOW, position + WINDOW])
        if high - low >= self.fewest:
            return self.indices[low:high]
        low, high = max(0, low - self.fewest), high + self.fewest
        nearest = np.argsort(np.abs(self.positions[low:high] - position), kind="stable")
        return self.indices[low:high][nearest[: self.fewest]]


class _Steps(Dataset[Batch]):
    """Makes the batch of a step: what a `DataLoader` worker runs."""

    def __init__(self, dataset: SliceDataset, sampler: MatchedSampler) -> None:
        self.dataset = dataset
        self.sampler = sampler

    def __getitem__(self, step: int) -> Batch:
        draw = self.sampler.draw(step)
        return self.dataset.batch(draw.indices, draw.seeds.tolist())


def load_batches(
    dataset: SliceDataset, sampler: MatchedSampler, steps: range, *, workers: int = 0, pin_memory: bool = False
) -> Iterator[Batch]:
    """The batches of `steps` in order, loaded ahead by `workers` processes (0: in this one). The same either way."""
    loader: DataLoader[Batch] = DataLoader(
        _Steps(dataset, sampler),
        batch_size=None,
        sampler=steps,
        num_workers=workers,
        pin_memory=pin_memory,
        multiprocessing_context="forkserver" if workers else None,
    )
    return iter(loader)
