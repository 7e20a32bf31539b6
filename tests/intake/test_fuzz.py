"""Damaged DICOM from strangers: the answer is a series, a reason, or one line.

`DIPTYCH_FUZZ_SECONDS=600 pytest -m slow tests/intake/test_fuzz.py` goes on for that long on each style.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from diptych.errors import DiptychError
from diptych.intake.dicom_files import FileLimits, opened
from diptych.intake.series import read_series
from diptych.phantom.phantom_dicom import DicomStyle, write_series
from diptych.phantom.raw_head import RawSeries

MUTATIONS = 100
SECONDS = float(os.environ.get("DIPTYCH_FUZZ_SECONDS", "60"))
STYLES = [DicomStyle(), DicomStyle(enhanced=True), DicomStyle(syntax="jpeg2000")]
LIMITS = FileLimits(max_file_bytes=2**22, max_pixels=2**22)


def _mutated(data: bytes, rng: np.random.Generator) -> bytes:
    """A few bytes changed near the header, some taken out, or the end cut off."""
    changed = bytearray(data)
    kind = rng.integers(4)
    if kind == 0:
        return bytes(changed[: rng.integers(len(changed))])
    if kind == 1:
        at = int(rng.integers(len(changed)))
        del changed[at : at + int(rng.integers(1, 40))]
        return bytes(changed)
    for at in rng.integers(128, min(len(changed), 2000), 1 if kind == 2 else 12):
        changed[at] = int(rng.integers(256))
    return bytes(changed)


@pytest.mark.parametrize("style", STYLES, ids=str)
def test_damaged_files_are_read_or_refused(oblique: RawSeries, style: DicomStyle, tmp_path: Path) -> None:
    good = [path.read_bytes() for path in write_series(oblique, tmp_path / "good", style=style)]
    rng = np.random.default_rng(len(good))
    for number in range(MUTATIONS):
        _feed(good, tmp_path / "bad", rng, number)


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 120)
@pytest.mark.parametrize("style", STYLES, ids=str)
def test_damaged_files_for_long(
    oblique: RawSeries, style: DicomStyle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = [path.read_bytes() for path in write_series(oblique, tmp_path / "good", style=style)]
    seed, until, number = int(time.time()), time.monotonic() + SECONDS, 0
    rng = np.random.default_rng(seed)
    while time.monotonic() < until:
        _feed(good, tmp_path / "bad", rng, number)
        number += 1
    with capsys.disabled():
        print(f" {number} studies (seed {seed})")


def test_a_number_of_pixels_with_a_damaged_length_is_one_reason(oblique: RawSeries, tmp_path: Path) -> None:
    """Pydicom converts such a value only when asked for it, and raises an error of its own."""
    (path,) = write_series(oblique, tmp_path, style=DicomStyle(enhanced=True))
    data = path.read_bytes()
    at = data.index(b"\x28\x00\x02\x00US\x02\x00")  # SamplesPerPixel
    path.write_bytes(data[: at + 6] + b"\x25" + data[at + 7 :])
    (reading,) = read_series([path])
    assert "header makes no sense (BytesLengthException" in reading.left[0].reason


def _feed(good: list[bytes], folder: Path, rng: np.random.Generator, number: int) -> None:
    """One study with two damaged files."""
    folder.mkdir(exist_ok=True)
    chosen = int(rng.integers(len(good)))
    for place, data in enumerate(good[:9] if len(good) > 1 else good):
        (folder / f"{place}.dcm").write_bytes(_mutated(data, rng) if place in (chosen % 9, 0) else data)
    assert "\n" not in _outcome(folder, load=number % 5 == 0)


def _outcome(folder: Path, *, load: bool) -> str:
    """The one line of a refusal, or nothing where series were read."""
    try:
        with opened(folder, limits=LIMITS) as files:
            for reading in read_series(files, limits=LIMITS):
                for series in reading.series[:1] if load else ():
                    assert np.isfinite(series.load()).all()
    except DiptychError as error:
        return str(error)
    return ""
