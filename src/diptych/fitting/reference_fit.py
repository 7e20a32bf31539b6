"""What a model's training patients look like: contrasts of whole volumes, and how well the codebooks hold their slices.

Reads patients, not a store: a store keeps z-scores of slices, and what is read later is judged before it becomes any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from diptych.archive.encoding import NetworkEncoder
from diptych.errors import DiptychError, UsageError
from diptych.model import FeatureDecomposingNetwork
from diptych.progress import Progress, silent
from diptych.retrieval.encoded_slice import encode_slice
from diptych.retrieval.trust import quantisation_error
from diptych.slices.splits import read_keys
from diptych.volumes import PatientFiles, read_patient
from diptych.volumes.channel_check import ContrastFeatures, Reference, describe, fit_reference
from diptych.volumes.sources import find_sources

ERROR_ROOM = 1.5
"""Quantisation error that is worth a warning, over that of the 95th of a hundred training patients."""


def training_patients(sources: Sequence[Path], keys: Path | None) -> list[PatientFiles]:
    """Patients found in `sources`, those of a list only where one is given."""
    found = find_sources(sources)
    if keys is None:
        return found
    wanted = set(read_keys(keys))
    if missing := sorted(wanted - {files.patient_key for files in found}):
        raise UsageError(f"{keys}: patient {missing[0]} is in none of the sources; correct the list or the folder")
    return [files for files in found if files.patient_key in wanted]


def fit_model_reference(
    network: FeatureDecomposingNetwork, patients: Sequence[PatientFiles], *, progress: Progress = silent
) -> tuple[Reference, dict[str, str]]:
    """The reference, and patients that could not be read, with the reason."""
    about, encoder = network.description, NetworkEncoder(network)
    found: list[ContrastFeatures] = []
    errors: list[float] = []
    failed: dict[str, str] = {}
    for done, files in enumerate(patients, start=1):
        try:
            volume = read_patient(replace(files, lesion=None, anatomy=None, twin={}), description=about)
            if (features := describe(volume, about.channels)) is not None:
                found.append(features)
                planes = np.flatnonzero(volume.brain.any(axis=(0, 1)))
                subject = encode_slice(volume, encoder, z_index=int(planes[len(planes) // 2]))
                assert subject.image is not None, "it was just read"
                errors.append(quantisation_error(network, subject.image))
        except DiptychError as error:
            failed[files.patient_key] = str(error)
        progress(done, len(patients), files.patient_key)
    reference = fit_reference(about.channels, found)
    return replace(reference, error_limit=ERROR_ROOM * float(np.percentile(errors, 95))), failed
