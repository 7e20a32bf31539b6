"""Commands run in this very process: what they print and exit with, without paying for imports each time."""

from __future__ import annotations

from typer.testing import CliRunner, Result

from diptych.cli.app import app


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])
