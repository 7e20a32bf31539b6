"""A tiny cross-validation that several tests look at."""

from __future__ import annotations

from pathlib import Path

import pytest

from diptych.annotation.lesions import LesionOptions, train_lesions
from diptych.annotation.lesions import lesion_network as presets
from diptych.runs.run_length import Length
from tests.annotation_lesions.making import TINY, tiny_preset, write_cases

__all__ = ["finished", "patients", "tiny_preset"]


@pytest.fixture(scope="session")
def patients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_cases(tmp_path_factory.mktemp("lesions") / "patients", 6)


@pytest.fixture(scope="session")
def finished(patients: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three folds that nothing disturbed."""
    out = tmp_path_factory.mktemp("finished") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(presets.PRESETS, "tiny", TINY)
        options = LesionOptions(out=out, source=patients, preset="tiny", folds=3, length=Length(steps=8), threads=1)
        train_lesions(options)
    return out
