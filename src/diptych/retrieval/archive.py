"""`Archive`: an archive with its model, opened for questions. The table of contents of retrieval.

    archive = Archive.open("archive", model="model")
    subject = archive.encode("patients/P1")                     # or archive.stored("Phantom-00000-00001", z_index=40)
    answer = archive.query(subject, Question(by="abnormal", top=5))
    print(archive.explain(answer, 0).match.volume.volume_key)

Each question is answered from one version of the archive, the one that was current on opening; `refreshed` opens a
newer one. Knows how the parts fit together; each part has its own file.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from diptych import archive as archives
from diptych.archive.encoding import NetworkEncoder
from diptych.errors import UsageError
from diptych.model import FeatureDecomposingNetwork, load_model
from diptych.retrieval.answers import Answer, named_matches
from diptych.retrieval.catalogue import Catalogue, open_catalogue
from diptych.retrieval.decoding import decode_lesion
from diptych.retrieval.metrics import model_tables
from diptych.retrieval.questions import Question, slice_query
from diptych.retrieval.regions import touched_cells
from diptych.retrieval.subjects import EncodedSlice, encode_slice, stored_slice
from diptych.search import SearchEngine
from diptych.tables import Tables
from diptych.volumes import Volume, find_patients, read_patient

__all__ = ["Archive"]


@dataclass(frozen=True, eq=False)
class Archive:
    """An archive, the model that made it, and an engine that searches it; make one with `Archive.open`."""

    store: archives.Archive
    network: FeatureDecomposingNetwork
    tables: Tables
    catalogue: Catalogue
    threads: int = 1

    @classmethod
    def open(cls, path: Path | str, *, model: Path | str | FeatureDecomposingNetwork, threads: int = 1) -> Archive:
        """Open an archive with the model that made it; any other model is refused."""
        network = model if isinstance(model, FeatureDecomposingNetwork) else load_model(Path(model))
        store = archives.Archive.open(path, model=NetworkEncoder(network).identity)
        tables = model_tables(network)
        return cls(store, network, tables, open_catalogue(store, tables), threads)

    def refreshed(self) -> Archive:
        """The archive as it is now: this very object unless something has changed."""
        if self.store.version == self.catalogue.version.removesuffix("-damaged"):
            return self
        return replace(self, catalogue=open_catalogue(self.store, self.tables))

    @cached_property
    def encoder(self) -> NetworkEncoder:
        return NetworkEncoder(self.network)

    @cached_property
    def engine(self) -> SearchEngine:
        return SearchEngine(self.catalogue.index, self.tables, threads=self.threads)

    @property
    def problems(self) -> tuple[str, ...]:
        """Damaged volumes that no answer contains; show them with every answer."""
        return self.catalogue.problems

    def encode(self, patient: Path | str | Volume, *, z_index: int | None = None) -> EncodedSlice:
        """Read a slice of a patient that need not be in the archive: a folder with its NIfTI files, or a volume.

        Without `z_index` it is the slice with the largest predicted lesion.
        """
        volume = patient if isinstance(patient, Volume) else read_one(Path(patient))
        return encode_slice(volume, self.encoder, z_index=z_index)

    def stored(self, volume_key: str, *, z_index: int | None = None) -> EncodedSlice:
        """A slice of an archived volume; without `z_index`, the one with the largest predicted lesion."""
        return stored_slice(self.store.record(volume_key), self.encoder, z_index=z_index)

    def query(self, subject: EncodedSlice, question: Question = Question()) -> Answer:
        """The slices that are most like this one: the best of each patient, nearest first."""
        query = slice_query(question, subject, self.catalogue, region=self._region(subject, question))
        matches = named_matches(self.engine.search(query), self.catalogue)
        return Answer(subject, question, matches, self.catalogue.version)

    def lesion_cells(self, subject: EncodedSlice) -> NDArray[np.bool_]:
        """Cells in which the model sees a lesion, `[h, w]`; a slice without any is refused."""
        lesion = decode_lesion(self.network, subject.abnormal_ids[None])[0]
        cells = touched_cells(lesion > 0, self.catalogue.index.grid)
        if not cells.any():
            raise UsageError(f"{subject.name}: no lesion is predicted here; choose another slice, or give a region")
        return cells

    def _region(self, subject: EncodedSlice, question: Question) -> NDArray[np.bool_] | None:
        """Cells that are compared: the given ones, those of the lesion, or those of both."""
        if not question.inside_lesion:
            return question.region
        cells = self.lesion_cells(subject)
        if question.region is not None:
            cells &= question.region
            if not cells.any():
                raise UsageError(f"{subject.name}: the region holds no predicted lesion; choose another region")
        return cells


def read_one(folder: Path) -> Volume:
    """The only patient in a folder."""
    patients = find_patients(folder)
    if len(patients) > 1:
        keys = ", ".join(patient.patient_key for patient in patients[:3])
        raise UsageError(f"{folder}: holds {len(patients)} patients ({keys}, …); name the folder of one")
    return read_patient(replace(patients[0], twin={}))
