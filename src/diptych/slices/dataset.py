"""`SliceDataset` and `Batch`: the slices of chosen patients, from one store or several, as tensors for the network.

Knows slice stores; nothing about files of patients or about training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from diptych.errors import StoreError
from diptych.slices.augment import Augmentation, augment, graft_lesions
from diptych.slices.preprocess import SliceGeometry
from diptych.slices.slice_batch import Batch
from diptych.slices.slice_store import SliceStore
from diptych.slices.store_record import PatientRecord

THICK = 0.2
"""Share of degraded slices that are thick."""


@dataclass(frozen=True, eq=False)
class SliceTable:
    """One entry per slice of a dataset."""

    patient: NDArray[np.int64]
    """Index into the dataset's `keys`, `[N]`."""
    row: NDArray[np.int64]
    """Row in the patient's arrays, `[N]`."""
    position: NDArray[np.float32]
    """0 at the bottom of the brain, 1 at its top, `[N]`."""
    diseased: NDArray[np.bool_]
    """Whether the slice has any lesion pixel, `[N]`."""


class SliceDataset(Dataset[dict[str, Any]]):
    """Slices of `keys` (default: every patient) with lesion labels, for training and evaluation.

    Several stores (real patients and phantoms, say) may be combined if they have the same channels and geometry. With
    a `graft_share`, that share of the diseased slices of augmented batches become grafts (`graft.py`).
    """

    def __init__(
        self,
        stores: SliceStore | Sequence[SliceStore],
        keys: Iterable[str] | None = None,
        *,
        augmentation: Augmentation | None = None,
        with_twin: bool = False,
        graft_share: float = 0.0,
    ) -> None:
        self.stores = [stores] if isinstance(stores, SliceStore) else list(stores)
        self.augmentation = augmentation
        self.with_twin = with_twin or graft_share > 0
        self.graft_share = graft_share
        self.channels, self.geometry = _common(self.stores)
        self._home = _homes(self.stores)
        self.keys = tuple(sorted(self._home) if keys is None else dict.fromkeys(keys))
        self._records = [self._record(key) for key in self.keys]
        self._pixel_spacing = np.array([record.pixel_spacing for record in self._records], dtype=np.float32)
        self.has_anatomy = np.array(["anatomy" in record.files for record in self._records], dtype=np.bool_)
        """Which of `keys` have anatomy labels."""
        self._has_twin = np.array(["twin" in record.files for record in self._records], dtype=np.bool_)
        self.table = _table(self._records)

    def __len__(self) -> int:
        return len(self.table.row)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """One slice; augmentation is seeded from torch's own generator, as `DataLoader` workers expect."""
        seeds = None if self.augmentation is None else torch.randint(2**62, (1,)).tolist()
        batch = self.batch([index], seeds)
        item = {name: value[0] for name, value in vars(batch).items() if value is not None}
        return {**item, "patient_key": self.keys[self.table.patient[index]]}

    def batch(self, indices: Sequence[int] | NDArray[np.int64], seeds: Sequence[int] | None = None) -> Batch:
        """Gather slices; augment them when the dataset has an augmentation and `seeds` gives one seed per slice."""
        index = np.asarray(indices, dtype=np.int64)
        patient = self.table.patient[index]
        image = self._gather(index, SliceStore.images).float()
        has_twin = torch.from_numpy(self._has_twin[patient])
        batch = Batch(
            image=image,
            lesion=self._gather(index, SliceStore.lesion).long(),
            anatomy=self._gather(index, SliceStore.anatomy).long(),
            has_anatomy=torch.from_numpy(self.has_anatomy[patient]),
            diseased=torch.from_numpy(self.table.diseased[index]),
            position=torch.from_numpy(self.table.position[index]),
            pixel_spacing=torch.from_numpy(self._pixel_spacing[patient]),
            index=torch.from_numpy(index),
            has_twin=has_twin,
            twin=self._twins(index, image, has_twin) if self.with_twin else None,
        )
        if self.augmentation is None or seeds is None:
            return batch
        if self.graft_share > 0:
            batch = graft_lesions(batch, self.graft_share, seeds)
        if self.augmentation.keeps_clean:
            batch = replace(batch, clean=batch.image)
        if self.augmentation.degradations > 0:
            batch = replace(batch, image=self._thickened(batch, has_twin, seeds))
        return augment(batch, self.augmentation, seeds)

    def in_order(self, batch_size: int) -> Iterator[Batch]:
        """Every slice once, patient by patient from bottom to top, not augmented."""
        for start in range(0, len(self), batch_size):
            yield self.batch(np.arange(start, min(start + batch_size, len(self))))

    def _thickened(self, batch: Batch, untouched: Tensor, seeds: Sequence[int]) -> Tensor:
        """Images of which some are averaged with the slices above and below, as thick slices are; grafts stay."""
        drawn = torch.stack([torch.rand(2, generator=torch.Generator().manual_seed(seed ^ 6)) for seed in seeds])
        chosen = ((drawn[:, 0] < THICK) & (batch.has_twin == untouched)).nonzero().flatten()
        if len(chosen) == 0:
            return batch.image
        index = batch.index[chosen].numpy()
        around = [np.clip(index + step, 0, len(self.table.row) - 1) for step in (-1, 1)]
        same = [np.where(self.table.patient[near] == self.table.patient[index], near, index) for near in around]
        below, above = (self._gather(near, SliceStore.images).float() for near in same)
        share = (drawn[chosen, 1] / 3)[:, None, None, None]  # of each neighbour: a third is 6 mm at 2 mm apart
        mixed = (1 - 2 * share) * batch.image[chosen] + share * (below + above)
        return batch.image.index_copy(0, chosen, mixed)

    def _gather(self, index: NDArray[np.int64], array_of: Callable[[SliceStore, str], NDArray[Any] | None]) -> Tensor:
        """Copy rows out of the memory maps, patient by patient; zeros where a patient has no such array."""
        gathered: NDArray[Any] | None = None
        for patient in np.unique(self.table.patient[index]):
            key = self.keys[patient]
            array = array_of(self._home[key], key)
            if array is None:
                continue
            if gathered is None:
                gathered = np.zeros((len(index), *array.shape[1:]), dtype=array.dtype)
            places = np.flatnonzero(self.table.patient[index] == patient)
            gathered[places] = array[self.table.row[index[places]]]
        return (
            torch.zeros(len(index), *self.geometry.size, dtype=torch.uint8)
            if gathered is None
            else torch.from_numpy(gathered)
        )

    def _twins(self, index: NDArray[np.int64], image: Tensor, has_twin: Tensor) -> Tensor:
        if not has_twin.any():
            return image.clone()
        return torch.where(has_twin.view(-1, 1, 1, 1), self._gather(index, SliceStore.twin).float(), image)

    def _record(self, key: str) -> PatientRecord:
        if key not in self._home:
            raise StoreError(f"patient {key}: not in {', '.join(str(store.path) for store in self.stores)}")
        record = self._home[key].patients[key]
        if record.lesion_pixels is None:
            raise StoreError(f"patient {key}: has no lesion labels, which training needs; leave the patient out")
        return record


def _common(stores: list[SliceStore]) -> tuple[tuple[str, ...], SliceGeometry]:
    if not stores:
        raise StoreError("a dataset needs at least one slice store")
    first = stores[0]
    for store in stores[1:]:
        if (store.channels, store.geometry) != (first.channels, first.geometry):
            raise StoreError(f"{store.path}: its channels or geometry differ from {first.path}; prepare both alike")
    return first.channels, first.geometry


def _homes(stores: list[SliceStore]) -> dict[str, SliceStore]:
    homes: dict[str, SliceStore] = {}
    for store in stores:
        for key in store.patients:
            if key in homes:
                raise StoreError(f"patient {key}: both in {homes[key].path} and in {store.path}; leave out one store")
            homes[key] = store
    return homes


def _table(records: list[PatientRecord]) -> SliceTable:
    counts = [record.slices for record in records]
    return SliceTable(
        patient=np.repeat(np.arange(len(records)), counts),
        row=np.concatenate([np.arange(count) for count in counts] or [np.arange(0)]),
        position=np.array([p for record in records for p in record.position], dtype=np.float32),
        diseased=np.array([n > 0 for record in records for n in record.lesion_pixels or ()], dtype=np.bool_),
    )
