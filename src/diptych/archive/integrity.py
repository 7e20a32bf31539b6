"""Check a whole archive: the file, every checksum, every copy, and a sample encoded anew.

Changes nothing; `ArchiveWriter.repair` and indexing again mend what is found here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from diptych.archive.archive_store import ArchiveStore
from diptych.archive.copies import patient_files
from diptych.archive.encoding import Encoder, encode_volume
from diptych.archive.records import VolumeInfo
from diptych.archive.schema import DATABASE, connect_reader, explain
from diptych.archive.segments import ENDING, FOLDER, read_identities
from diptych.errors import DiptychError
from diptych.progress import Progress, silent
from diptych.volumes import read_patient


@dataclass(frozen=True)
class Verification:
    """What was checked and what is wrong."""

    volumes: int
    slices: int
    files: int
    """Copies and references whose hash was compared."""
    encoded_again: int
    """Volumes whose ids were worked out anew and compared."""
    problems: tuple[str, ...]
    """One sentence each; empty when all is well."""


def verify_archive(
    archive: ArchiveStore,
    *,
    encoder: Encoder | None = None,
    sample: int = 3,
    seed: int = 0,
    progress: Progress = silent,
) -> Verification:
    """Check everything; with an `encoder`, also encode `sample` volumes again from their stored images.

    An encoder of another model is an `ArchiveMismatchError`.
    """
    if encoder is not None:
        archive.model.require(encoder.identity, archive.path)
    problems = _check_file(archive) + _check_segments(archive)
    codes = archive.codes()
    problems += codes.problems
    with_images = []
    for done, info in enumerate(codes.volumes, start=1):
        try:
            if patient_files(archive.path, info).channels:
                with_images.append(info)
        except DiptychError as error:
            problems.append(str(error))
        progress(done, len(codes.volumes), info.volume_key)
    encoded = _choose(with_images, sample if encoder is not None else 0, seed)
    if encoder is not None:
        problems += [problem for info in encoded for problem in _encode_again(archive, info, encoder)]
    return Verification(
        volumes=len(codes.volumes),
        slices=len(codes),
        files=sum(len(info.files) for info in codes.volumes),
        encoded_again=len(encoded),
        problems=tuple(problems),
    )


def _check_file(archive: ArchiveStore) -> list[str]:
    """SQLite's own check of its pages."""
    with explain(archive.path):
        database = connect_reader(archive.path / DATABASE)
        try:
            lines = [str(row[0]) for row in database.execute("PRAGMA integrity_check(10)")]
        finally:
            database.close()
    return [f"{DATABASE}: {line}" for line in lines if line != "ok"]


def _check_segments(archive: ArchiveStore) -> list[str]:
    """Files that searches would not believe."""
    return [
        f"{FOLDER}/{path.name}: is damaged; the next search makes it again from the archive"
        for path in sorted((archive.path / FOLDER).glob(f"*{ENDING}"))
        if read_identities(path) is None
    ]


def _choose(volumes: Sequence[VolumeInfo], count: int, seed: int) -> list[VolumeInfo]:
    order = np.random.default_rng(seed).permutation(len(volumes))
    return [volumes[index] for index in order[:count]]


def _encode_again(archive: ArchiveStore, info: VolumeInfo, encoder: Encoder) -> list[str]:
    stored = archive.record(info.volume_key)
    try:
        fresh = encode_volume(read_patient(patient_files(archive.path, info)), info, encoder)
    except DiptychError as error:
        return [f"{info.volume_key}: cannot be encoded again ({error})"]
    if fresh.normal_ids.shape != stored.normal_ids.shape:
        return [f"{info.volume_key}: gives {fresh.slice_count} slices now, {stored.slice_count} are stored"]
    different = sum(
        int(np.count_nonzero(getattr(fresh, name) != getattr(stored, name))) for name in ("normal_ids", "abnormal_ids")
    )
    total = 2 * stored.normal_ids.size
    if different:
        return [f"{info.volume_key}: {different} of {total} ids differ when encoded again; index it again"]
    return []
