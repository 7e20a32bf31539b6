"""`diptych annotate …`: labels for patients that have none. Each command has its own module and one line here."""

from __future__ import annotations

import typer

from diptych.cli import annotate_labels as annotate_anatomy
from diptych.cli import annotate_labels as annotate_import
from diptych.cli import annotate_lesions, annotate_review

app = typer.Typer(
    name="annotate",
    help="Label patients that have no labels, take labels from elsewhere, and let experts correct them.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command("anatomy")(annotate_anatomy.anatomy)
app.add_typer(annotate_lesions.app)
app.command("import")(annotate_import.import_labels)
app.add_typer(annotate_review.app)
