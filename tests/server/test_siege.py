"""Attacked and used at once, and used for long: nobody honest is refused, and memory comes to rest."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.slow
SECONDS = float(os.environ.get("DIPTYCH_SOAK_SECONDS", "600"))


@pytest.fixture(scope="module")
def besieging() -> Any:
    """The benchmark's parts."""
    spec = importlib.util.spec_from_file_location("siege", ROOT / "benchmarks" / "siege.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["siege"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.timeout(300)
def test_under_siege_every_honest_request_is_answered(besieging: Any, archive_path: Path, model: Path) -> None:
    with besieging.service(archive_path, model) as served, besieging.siege(served):
        seen = besieging.use(served, seconds=20, clients=4)
    assert len(seen.seconds) > 20
    assert seen.failures == ()


@pytest.mark.timeout(SECONDS * 2 + 300)
def test_memory_is_flat(besieging: Any, archive_path: Path, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Thirty-two clients; what the last third needs, the middle one did too."""
    with besieging.service(archive_path, model) as served:
        seen = besieging.use(served, seconds=SECONDS, clients=32)
    with capsys.disabled():
        print(f" {len(seen.seconds)} answers, MB by thirds", *(round(seen.memory_of_third(n)) for n in range(3)))
    assert seen.failures == ()
    assert seen.memory_of_third(2) < 1.1 * seen.memory_of_third(1)
