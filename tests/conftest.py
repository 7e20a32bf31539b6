"""What all tests share: where real data lies, how commands are run, few threads."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.warm_command import warm_commands

ROOT = Path(__file__).resolve().parent.parent
BRATS = ROOT.parent / "shared" / "brats"
CLINICAL = ROOT.parent / "shared" / "clinical"

MEMORY = Path("/dev/shm")
ENOUGH = 8 << 30

Run = Callable[..., subprocess.CompletedProcess[str]]


def pytest_configure() -> None:
    """Temporary files lie in memory where there is plenty: else thousands of commits each wait for the disk."""
    if MEMORY.is_dir() and os.access(MEMORY, os.W_OK):
        room = min(shutil.disk_usage(MEMORY).free, psutil.virtual_memory().available)
        if room > ENOUGH:
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


SHARED = ExitStack()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """All worker processes share one that starts commands; it gets ready while they collect."""
    if "commands" not in vars(node.config):
        vars(node.config)["commands"] = str(SHARED.enter_context(warm_commands()))
    node.workerinput["commands"] = vars(node.config)["commands"]


def pytest_unconfigure() -> None:
    SHARED.close()


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


@pytest.fixture(scope="session")
def clinical() -> Path:
    """Real studies, which lie beside the repository where they exist at all."""
    if not CLINICAL.is_dir():
        pytest.skip(f"real studies are not here ({CLINICAL.relative_to(ROOT.parent)} beside the repository)")
    return CLINICAL


@pytest.fixture(scope="session")
def commands(pytestconfig: pytest.Config) -> Iterator[Path]:
    """A folder with a `diptych` that starts warm."""
    shared = getattr(pytestconfig, "workerinput", {}).get("commands")
    with nullcontext(Path(shared)) if shared else warm_commands() as folder:
        yield folder


@pytest.fixture
def diptych(tmp_path: Path, commands: Path) -> Run:
    """Run the `diptych` command in a temporary folder, as a user would."""

    def run(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
        command = [str(commands / "diptych"), *map(str, arguments)]
        environment = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1"}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False
        )

    return run


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what a run did not cover, where that is easily missed."""
    skipped = [report for report in terminalreporter.stats.get("skipped", []) if "tests/viewer/" in report.nodeid]
    if skipped:
        terminalreporter.write_line(
            f"{len(skipped)} browser tests did not run: they need the built page and a browser, which "
            "'make browser-tests' brings (or: apt-get install chromium)"
        )
