"""A report as Markdown, words and tables without pictures: for pages that may hold no picture of a patient.

Knows sections; `report.py` writes it to a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from diptych.evaluation.part import Table, Words
from diptych.evaluation.runner import Finished
from diptych.evaluation.words import about, show_cell

__all__ = ["draw_markdown"]


def draw_markdown(finished: Sequence[Finished], manifest: dict[str, Any]) -> str:
    """The whole report; headings begin at the second level, so that it fits into a larger page."""
    lines = [about(manifest), ""]
    for done in finished:
        lines += [f"## {done.part.title}", "", f"*{done.part.summary}*", ""]
        for block in done.section.blocks:
            if isinstance(block, Words):
                lines += [block.text, ""]
            elif isinstance(block, Table):
                lines += [f"### {block.title}", "", *_table(block), ""]
                lines += [block.caption, ""] if block.caption else []
    return "\n".join(lines)


def _table(table: Table) -> list[str]:
    forms = [table.formats.get(column, ".3f") for column in table.columns]
    rows = [[show_cell(cell, form) for cell, form in zip(row, forms, strict=True)] for row in table.rows]
    marks = ["---", *["---:"] * (len(table.columns) - 1)]
    return [_line(table.columns), _line(marks), *map(_line, rows)]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
