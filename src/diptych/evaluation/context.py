"""`Context`: what all parts of an evaluation share. Patients, model, seed, and what is worked out once for all parts.

Queries are taken from the query patients, everything that may be found belongs to the reference patients. The two lists
may overlap, because nobody ever finds a volume of the same person (by key, time point or voxels; see `people`).
Knows stores, models and archives; nothing about what is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from diptych.errors import StoreError, UsageError
from diptych.evaluation.compare_metrics import Trial
from diptych.evaluation.evaluation_data import DecomposedPatient, decompose_patient, encode_once
from diptych.fitting.fit_data import LabelledSlices
from diptych.metrics.decoded_planes import PlaneDecoder
from diptych.metrics.label_decoders import LabelDecoders
from diptych.metrics.model_tables import tables_of_model
from diptych.model import FeatureDecomposingNetwork, load_model
from diptych.progress import Progress, silent
from diptych.retrieval import Archive
from diptych.search.tables import Tables
from diptych.slices import PatientRecord, SliceGeometry, SliceStore
from diptych.volumes.people import group_people

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Context:
    """Make one with `Context.open`. What is a verb takes long the first time and is kept from then on."""

    stores: tuple[SliceStore, ...]
    network: FeatureDecomposingNetwork
    model: Path
    """Folder of the model, with what else lies there."""
    queries: tuple[str, ...]
    """Patients whose slices are searched for; also those on whom the model itself is judged."""
    references: tuple[str, ...]
    """Patients whose slices may be found."""
    cache: Path
    """Folder for what may be worked out again: ids, small trained baselines."""
    seed: int = 0
    archive: Archive | None = None
    """An archive of the same model, for parts that search one as users do."""
    autoencoder_images: int = 800
    """Images that the autoencoder among the baselines is trained on."""

    @cached_property
    def people(self) -> NDArray[np.int64]:
        """Number of the person behind each of `keys`, `[V]`."""
        names = (
            {}
            if self.archive is None
            else {info.volume_key: info.patient_key for info in self.archive.catalogue.volumes}
        )
        return people(self.records, names)

    @classmethod
    def open(
        cls,
        stores: Sequence[SliceStore],
        model: Path,
        *,
        cache: Path,
        queries: Sequence[str] | None = None,
        references: Sequence[str] | None = None,
        seed: int = 0,
        archive: Path | None = None,
        autoencoder_images: int = 800,
    ) -> Context:
        """Read the model and check the lists; without lists every patient with lesion labels is on both."""
        asking = tuple(dict.fromkeys(queries if queries is not None else _labelled(stores)))
        found = tuple(dict.fromkeys(references if references is not None else asking))
        context = cls(
            stores=tuple(stores),
            network=load_model(model),
            model=Path(model),
            queries=asking,
            references=found,
            cache=Path(cache),
            seed=seed,
            archive=None if archive is None else Archive.open(archive, model=model),
            autoencoder_images=autoencoder_images,
        )
        context._check()
        return context

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """All patients: references first, then queries that are not among them."""
        return tuple(dict.fromkeys((*self.references, *self.queries)))

    @cached_property
    def homes(self) -> Mapping[str, SliceStore]:
        """The store of each patient."""
        return {key: store for store in self.stores for key in store.patients}

    @cached_property
    def records(self) -> Mapping[str, PatientRecord]:
        """What the stores say about each patient of this evaluation."""
        return {key: self.homes[key].patients[key] for key in self.keys}

    @cached_property
    def others(self) -> tuple[str, ...]:
        """Labelled patients of the stores who are on neither list and no relation of anyone there: to fit baselines."""
        everyone = {key: self.homes[key].patients[key] for key in (*self.keys, *_labelled(self.stores))}
        numbers = dict(zip(everyone, people(everyone).tolist(), strict=True))
        listed = {numbers[key] for key in self.keys}
        return tuple(key for key, number in numbers.items() if number not in listed)

    @cached_property
    def fingerprint(self) -> str:
        """Of the model."""
        return self.network.fingerprint

    @cached_property
    def tables(self) -> Tables:
        """Every table of the model, learned ones where they lie beside it."""
        return tables_of_model(self.network, self.model, cache=self.cache)

    def once(self, name: str, make: Callable[[], T]) -> T:
        """What `make` gives, made once under that name and shared by all parts."""
        if name not in self._made:
            self._made[name] = make()
        return cast(T, self._made[name])

    def slices(self, progress: Progress = silent) -> LabelledSlices:
        """Ids and labels of all slices of all patients, in the order of `keys`."""
        path = self.cache / "ids.arrays"
        return self.once("slices", lambda: encode_once(self.network, self.stores, self.keys, path, progress=progress))

    def trial(self, progress: Progress = silent) -> Trial:
        """All slices ready to be searched: queries ask, references are found, the same person never."""

        def make() -> Trial:
            return Trial(
                self.slices(progress),
                self.tables,
                PlaneDecoder(self.network, LabelDecoders.open(self.model, self.network)),
                people=self.people,
                asking=self._among(self.queries),
                references=self._among(self.references),
                heights=np.concatenate([self.records[key].z_mm for key in self.keys]),
                cache=self.cache,
            )

        return self.once("trial", make)

    def decomposed(self, key: str) -> DecomposedPatient:
        """All slices of a patient with everything that their codes decode to; kept for query patients."""
        if key not in self._decomposed:
            patient = decompose_patient(self.network, self.homes[key], key)
            if key not in self.queries:
                return patient
            self._decomposed[key] = patient
        return self._decomposed[key]

    @cached_property
    def _made(self) -> dict[str, object]:
        return {}

    @cached_property
    def _decomposed(self) -> dict[str, DecomposedPatient]:
        return {}

    def _among(self, keys: Sequence[str]) -> NDArray[np.bool_]:
        chosen = set(keys)
        return np.array([key in chosen for key in self.keys], dtype=np.bool_)

    def _check(self) -> None:
        unknown = [key for key in self.keys if key not in self.homes]
        if unknown:
            raise StoreError(f"patient {unknown[0]}: not in the store; prepare it or take it off the list")
        bare = [key for key in self.keys if self.records[key].lesion_pixels is None]
        if bare:
            raise StoreError(f"patient {bare[0]}: has no lesion labels, which evaluation needs; take it off the list")
        config = self.network.config
        geometry = SliceGeometry(size=config.image_size, field=config.field_mm)
        for store in {self.homes[key] for key in self.keys}:
            if store.geometry != geometry:
                raise StoreError(f"{store.path}: slices of {store.geometry}, the model takes {geometry}; prepare it so")
        numbers = dict(zip(self.keys, self.people.tolist(), strict=True))
        for key in self.queries:
            if all(numbers[other] == numbers[key] for other in self.references):
                raise UsageError(f"patient {key}: there is no reference patient but itself; give more references")


def people(records: Mapping[str, PatientRecord], names: Mapping[str, str] = {}) -> NDArray[np.int64]:
    """Number the person behind each key, `[V]`: one subject, one name or the same voxels are one person."""
    hashes = {key: record.voxel_hash for key, record in records.items()}
    groups = group_people(records, {key: name for key, name in names.items() if key in records}, hashes)
    numbers = {key: number for number, group in enumerate(groups) for key in group}
    return np.array([numbers[key] for key in records], dtype=np.int64)


def _labelled(stores: Sequence[SliceStore]) -> list[str]:
    keys = [key for store in stores for key, record in store.patients.items() if record.lesion_pixels is not None]
    if not keys:
        raise StoreError("no patient of the store has lesion labels, which evaluation needs; prepare labelled patients")
    return keys
