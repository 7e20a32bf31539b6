"""The command line as a whole: help that is quick and complete, errors that are one line."""

from __future__ import annotations

import sys
from typing import Any, cast

import pytest
import typer
from typer.testing import CliRunner

from diptych import errors
from diptych.cli.app import OneLineErrors, app
from diptych.cli.help_types import value_word
from diptych.config import PRESETS
from diptych.errors import DiptychError
from diptych.metrics.searcher import METRICS
from tests.conftest import Run

HEAVY = ("torch", "numpy", "scipy", "nibabel", "numba", "matplotlib", "PIL")
CHOICES = {"search": "metric", "train": "preset"}
"""Commands and the option whose choices their help lists."""


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


def test_help_says_what_a_value_is() -> None:
    pending: list[Any] = [typer.main.get_command(app)]
    words: set[str] = set()
    while pending:
        command = pending.pop()
        pending += getattr(command, "commands", {}).values()
        words |= {value_word(one) for one in command.params if one.param_type_name == "option" and not one.hidden}
    assert [word for word in words if "<" in word or "[" in word] == []
    assert {"", "N", "MODEL", "ARCHIVE", "FILE.png", "anatomy|lesion|both"} <= words


def test_help_lists_every_metric_and_preset() -> None:
    commands = cast(Any, typer.main.get_command(app)).commands
    texts = {
        name: [one.help for one in commands[name].params if one.name == choice] for name, choice in CHOICES.items()
    }
    assert [
        name for name in (*METRICS, *PRESETS) if not any(name in text for row in texts.values() for text in row)
    ] == []


@pytest.mark.parametrize("part", ["tables", "labels", "sketch", "refiner", "worth"])
@pytest.mark.parametrize("spelling", [("fit-{}",), ("fit", "{}")])
def test_a_shipped_model_is_fitted_only_as_a_copy(part: str, spelling: tuple[str, ...]) -> None:
    words = [word.format(part) for word in spelling]
    done = CliRunner().invoke(app, [*words, "store", "--model", "cpu-16x16"])
    assert (done.exit_code, "add --out FOLDER" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("diptych fi", ["fit"]),
        ("diptych fit ", ["tables", "labels", "sketch", "refiner", "worth", "references"]),
        ("diptych index --model cpu-", ["cpu-16x16", "cpu-16x16-any"]),
        ("diptych search A --metric l", ["learned"]),
        ("diptych search A --by le", ["lesion"]),
    ],
)
def test_tab_completes(line: str, offered: list[str]) -> None:
    place = str(len(line.split()) - (not line.endswith(" ")))
    asked = {"_DIPTYCH_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": place}
    assert CliRunner().invoke(app, [], env=asked, prog_name="diptych").stdout.split() == offered
