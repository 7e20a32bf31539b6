"""What all tests share: where real data lies, how commands are run, few threads."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BRATS = ROOT.parent / "shared" / "brats"

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of a file share its fixtures and so run on one core, unless they say that they share nothing."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.relative_to(ROOT).as_posix()))


@pytest.fixture(scope="session")
def brats() -> Path:
    """The folder of real patients, which lies beside the repository where it exists at all."""
    if not BRATS.is_dir():
        pytest.skip(f"real patients are not here ({BRATS.relative_to(ROOT.parent)} beside the repository)")
    return BRATS


@pytest.fixture
def diptych(tmp_path: Path) -> Run:
    """Run the `diptych` command in a temporary folder, as a user would."""

    def run(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "diptych", *map(str, arguments)]
        environment = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1"}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False
        )

    return run
