"""The command line as a whole: help that is quick and complete, errors that are one line."""

from __future__ import annotations

import sys

import pytest
import typer
from typer.testing import CliRunner

from diptych import errors
from diptych.cli.app import OneLineErrors, app
from diptych.errors import DiptychError
from tests.conftest import Run

HEAVY = ("torch", "numpy", "scipy", "nibabel", "numba", "matplotlib", "PIL")


@pytest.mark.e2e
def test_help_loads_nothing_heavy(diptych: Run) -> None:
    import subprocess

    code = f"import sys, diptych.cli.app; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_command_and_option_explains_itself() -> None:
    group = typer.main.get_command(app)
    silent = []
    pending = [(group.name, group)]
    while pending:
        path, command = pending.pop()
        pending += [(f"{path} {name}", sub) for name, sub in getattr(command, "commands", {}).items()]
        if not command.help:
            silent.append(path)
        silent += [f"{path} {p.name}" for p in command.params if not getattr(p, "help", None)]
    assert silent == []


@pytest.mark.parametrize("error", [kind for kind in vars(errors).values() if isinstance(kind, type)])
def test_an_error_becomes_one_line_and_its_exit_code(error: type[DiptychError]) -> None:
    failing = typer.Typer(cls=OneLineErrors)
    failing.callback()(lambda: None)

    @failing.command()
    def fail() -> None:
        raise error("scan.nii: too dark; give another file")

    done = CliRunner().invoke(failing, ["fail"])
    assert (done.exit_code, done.stderr) == (
        error.exit_code,
        "diptych: scan.nii: too dark; give another file\n",
    )


@pytest.mark.e2e
def test_debug_shows_the_trace(diptych: Run) -> None:
    done = diptych("--debug", "show", "nowhere")
    assert "Traceback" in done.stderr
    assert done.returncode == diptych("show", "nowhere").returncode


@pytest.mark.e2e
def test_an_unknown_command_is_wrong_usage(diptych: Run) -> None:
    assert diptych("serach").returncode == 2


@pytest.mark.e2e
def test_doctor_finds_nothing_wrong(diptych: Run) -> None:
    done = diptych("doctor")
    assert (done.returncode, done.stderr) == (0, "")
