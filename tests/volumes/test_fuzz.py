"""Damaged files of any kind end in a `DiptychError` of one line, quickly, or in a volume that is sound.

`DIPTYCH_FUZZ_SECONDS=600 pytest -m slow tests/volumes/test_fuzz.py` goes on for that long.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diptych.errors import DiptychError
from diptych.volumes import Limits, patient_from_files, read_patient
from tests.archive.test_fuzz_readers import mutate
from tests.volumes.making import brain, nifti_bytes, packed

SOUND = nifti_bytes(brain())
SOUND_GZIP = packed(SOUND)
SECONDS = float(os.environ.get("DIPTYCH_FUZZ_SECONDS", "60"))
LIMITS = Limits(max_voxels=10_000, max_bytes=100_000)
FIELDS = [(0, 4), (40, 56), (70, 74), (76, 112), (108, 112), (112, 120), (123, 124), (252, 328), (344, 348)]
"""Byte ranges of a NIfTI-1 header that the reader looks at."""

in_header = st.sampled_from(FIELDS).flatmap(lambda span: st.integers(span[0], span[1] - 1))
byte = st.sampled_from([0, 1, 2, 4, 0x7F, 0x80, 0xC0, 0xFF]) | st.integers(0, 255)
QUICK = settings(
    max_examples=250,
    deadline=10_000,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
)


def read(data: bytes, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        for labels in (None, path):
            check(path, labels)


def check(path: Path, labels: Path | None) -> None:
    try:
        volume = read_patient(patient_from_files(t1=path, lesion=labels, patient_key="A"), limits=LIMITS)
    except DiptychError as refusal:
        said = str(refusal)
    else:
        assert np.isfinite(volume.array).all()
        assert np.isfinite(volume.affine).all()
        return
    assert str(path) in said
    assert len(said.splitlines()) == 1


@QUICK
@given(st.dictionaries(in_header, byte, min_size=1, max_size=6))
def test_header_bytes(changes: dict[int, int]) -> None:
    data = bytearray(SOUND)
    for place, value in changes.items():
        data[place] = value
    read(bytes(data), "a.nii")


@QUICK
@given(st.integers(0, len(SOUND_GZIP)), st.dictionaries(st.integers(0, len(SOUND_GZIP) - 1), byte, max_size=3))
def test_gzip_bytes_and_truncation(length: int, changes: dict[int, int]) -> None:
    data = bytearray(SOUND_GZIP)
    for place, value in changes.items():
        data[place] = value
    read(bytes(data[:length]), "a.nii.gz")


@QUICK
@given(st.binary(max_size=600))
def test_any_bytes(data: bytes) -> None:
    read(data, "a.nii")


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 120)
def test_mutations_for_long(capsys: pytest.CaptureFixture[str]) -> None:
    rng, until, tried = np.random.default_rng(int(time.time())), time.monotonic() + SECONDS, 0
    while time.monotonic() < until:
        changed = mutate(SOUND, rng)
        read(changed, "a.nii")
        read(packed(changed) if tried % 2 else mutate(SOUND_GZIP, rng), "a.nii.gz")
        tried += 2
    with capsys.disabled():
        print(f" {tried} files")
