"""What lies beside a model and shapes answers is whole, or refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from diptych.errors import ModelError
from diptych.metrics.model_file import Companion

KIND = Companion("x.safetensors", "diptych-x", "1", "an x", "diptych fit-x")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    table = np.arange(64, dtype=np.float32).reshape(8, 8)
    KIND.write(tmp_path, {"a": table + table.T, "b": np.ones(3, np.int32)}, fingerprint="f" * 64, report="{}")
    return tmp_path


def test_it_comes_back(model: Path) -> None:
    found = KIND.read(model, fingerprint="f" * 64)
    assert found is not None
    assert found[1]["report"] == "{}"


def test_any_flipped_byte_is_refused(model: Path) -> None:
    whole = (model / KIND.file).read_bytes()
    for place in range(8, len(whole), 7):
        spoilt = bytearray(whole)
        spoilt[place] ^= 0x10
        (model / KIND.file).write_bytes(spoilt)
        with pytest.raises(ModelError, match=r"x\.safetensors"):
            KIND.read(model, fingerprint="f" * 64)
    (model / KIND.file).write_bytes(whole)
    with pytest.raises(ModelError, match="was made for model"):
        KIND.read(model, fingerprint="e" * 64)
