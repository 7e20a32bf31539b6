"""The `diptych` command: which commands there are, and how errors become one line and an exit code.

Each command lives in its own module of this package and imports what it needs inside its function, so that
`diptych --help` stays quick. Exit codes are listed in `diptych.errors`.
"""

from __future__ import annotations

import sys
import traceback
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from diptych.cli import (
    annotate_command,
    archive_command,
    audit_command,
    cluster_command,
    codes_command,
    compare_command,
    demo_command,
    doctor_command,
    edit_command,
    evaluate_command,
    fit_command,
    hash_command,
    index_command,
    intake_command,
    models_command,
    pacs_command,
    phantom_command,
    prepare_command,
    search_command,
    serve_command,
    show_command,
    sweep_command,
    train_command,
    users_command,
)
from diptych.cli.help_types import use_plain_types
from diptych.errors import DiptychError

EXIT_CODES = """**Exit codes**  0 done · 1 unexpected failure · 2 wrong usage · 3 input refused ·
4 some patients failed · 5 optional part missing · 6 archive refused · 7 training stopped ·
8 PACS not reached · 9 cluster not reached · 130 interrupted"""


class OneLineErrors(TyperGroup):
    """Turns a `DiptychError` into one line on standard error and its exit code; `--debug` shows the trace."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except DiptychError as error:
            if ctx.params.get("debug"):
                traceback.print_exc()
            print(f"diptych: {error}", file=sys.stderr)
            ctx.exit(error.exit_code)
        except KeyboardInterrupt:
            print("diptych: interrupted; finished work is kept", file=sys.stderr)
            ctx.exit(130)


use_plain_types()
app = typer.Typer(
    name="diptych",
    cls=OneLineErrors,
    help="Read a medical image as two panels, the anatomy that should be there and what disease has done to it, "
    "and search an archive by either one.\n\nResearch use only, not a medical device.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        print(f"diptych {version('diptych')}")
        raise typer.Exit()


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the full trace when something fails.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and stop.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Options that stand before any command."""


START, PATIENTS, ARCHIVE, TRAINING, RESEARCH = "Start", "Patients", "Archive and search", "Training", "Research"

app.command(rich_help_panel=START)(demo_command.demo)
app.command(rich_help_panel=START)(doctor_command.doctor)
app.command(rich_help_panel=START)(models_command.models)
app.command(rich_help_panel=PATIENTS)(phantom_command.phantom)
app.command(rich_help_panel=PATIENTS)(show_command.show)
app.command(rich_help_panel=PATIENTS)(compare_command.compare)
app.add_typer(intake_command.app, rich_help_panel=PATIENTS)
app.add_typer(annotate_command.app, rich_help_panel=PATIENTS)
app.command(rich_help_panel=ARCHIVE)(index_command.index)
app.command(rich_help_panel=ARCHIVE)(search_command.search)
app.command(rich_help_panel=ARCHIVE)(serve_command.serve)
app.command(rich_help_panel=ARCHIVE)(edit_command.edit)
app.add_typer(archive_command.app, rich_help_panel=ARCHIVE)
app.add_typer(users_command.app, rich_help_panel=ARCHIVE)
app.add_typer(audit_command.app, rich_help_panel=ARCHIVE)
app.add_typer(pacs_command.app, rich_help_panel=ARCHIVE)
app.add_typer(cluster_command.app, rich_help_panel=ARCHIVE)
app.command(rich_help_panel=TRAINING)(prepare_command.prepare)
app.command(rich_help_panel=TRAINING)(prepare_command.split)
app.command(rich_help_panel=TRAINING)(train_command.train)
app.command(rich_help_panel=TRAINING)(evaluate_command.evaluate)
app.add_typer(fit_command.app, rich_help_panel=TRAINING)
app.command(rich_help_panel=RESEARCH)(codes_command.codes)
app.command("hash", rich_help_panel=RESEARCH)(hash_command.hash_codebooks)
app.command(rich_help_panel=RESEARCH)(sweep_command.sweep)
for name, part in fit_command.PARTS.items():
    app.command(f"fit-{name}", hidden=True)(part)  # as they were called before there was a group


def main() -> None:
    """Entry point of the `diptych` script."""
    app()
