"""The README's commands work: the tour in small, `make demo` in full where there is time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
SMALLER = {
    "--patients 8": "--patients 3 --voxel-mm 8",
    "--out store": "--out store --size 64",
    "--preset cpu-8x8": "--preset cpu-8x8-small",
    "--minutes 60": "--steps 2",
    "--out report": "--out report --parts summary",
    "diptych serve archive": "diptych serve --help # archive",
}
"""What makes the tour quick; everything else runs as printed."""


def printed_commands(program: str) -> list[str]:
    """The README's lines that start with `program`, without the explanation behind them."""
    return [line.split("   ")[0] for line in README.splitlines() if line.startswith(f"{program} ")]


@pytest.mark.e2e
def test_the_tour_runs(tmp_path: Path, commands: Path) -> None:
    tour = "\n".join(printed_commands("diptych"))
    for printed, small in SMALLER.items():
        assert printed in tour
        tour = tour.replace(printed, small)
    environment = {**os.environ, "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"}
    done = subprocess.run(["bash", "-e", "-c", tour], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_make_knows_the_two_commands() -> None:
    targets = [command.split()[1] for command in printed_commands("make")]
    dry = [subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True).returncode for target in targets]
    assert (targets, dry) == (["demo", "test"], [0, 0])


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(900)
def test_the_demo_ends_in_a_report(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "diptych", "demo", "--out", str(tmp_path / "demo"), "--patients", "4"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(re.findall("<img ", (tmp_path / "demo" / "report.html").read_text(encoding="utf-8"))) == 4
