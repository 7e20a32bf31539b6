"""From finished parts to what people and programs read: one page, JSON, CSV, a few lines on the terminal.

    REPORT/index.html        everything, pictures inside; opens without a network
    REPORT/results.json      manifest, and the numbers and tables of every part at full precision
    REPORT/report.md         words and tables without the pictures
    REPORT/tables/*.csv      each table

Knows sections; nothing about how they came about.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from diptych.drawing.html import REPORT_STYLE, html_page, png_address
from diptych.drawing.sheet import NOTICE
from diptych.errors import UsageError
from diptych.evaluation.context import Context
from diptych.evaluation.part import Block, Cell, Figure, Table, Words
from diptych.evaluation.runner import Finished, make_manifest


def write_report(finished: Sequence[Finished], context: Context, out: Path) -> Path:
    """Write page, JSON, Markdown and CSV; returns the page."""
    manifest = make_manifest(context)
    found, page = results(finished, context), out / "index.html"
    try:
        (out / "results.json").write_text(json.dumps(found, indent=1, ensure_ascii=False), encoding="utf-8")
        (out / "tables").mkdir(exist_ok=True)
        for done in finished:
            for number, table in enumerate(done.section.tables, start=1):
                (out / "tables" / f"{done.part.name}-{number}.csv").write_text(table_csv(table), encoding="utf-8")
        (out / "report.md").write_text(draw_markdown(finished, manifest), encoding="utf-8")
        page.write_text(draw_page(finished, manifest), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{out}: cannot be written to ({error.strerror}); make room or give another --out") from None
    return page


def results(finished: Sequence[Finished], context: Context) -> dict[str, Any]:
    """Manifest, and numbers and tables of every part, as plain values."""
    return {"manifest": make_manifest(context), "parts": {done.part.name: _results(done) for done in finished}}


def draw_page(finished: Sequence[Finished], manifest: dict[str, Any]) -> str:
    """The whole report as one HTML page that needs nothing else."""
    contents = "".join(f'<li><a href="#{done.part.name}">{escape(done.part.title)}</a></li>' for done in finished)
    sections = "".join(_section(done) for done in finished)
    body = (
        f"<header><h1>Evaluation</h1><p>{escape(about(manifest))}</p><p class=notice>{escape(NOTICE)}</p></header>"
        f"<nav><ol>{contents}</ol></nav><main>{sections}</main>"
        f"<footer>{_foot(manifest)}</footer>"
    )
    return html_page("Diptych: evaluation", body, style=REPORT_STYLE)


def terminal_lines(finished: Sequence[Finished]) -> list[str]:
    """The headlines of all parts, aligned, with how long each part took."""
    lines = []
    for done in finished:
        seconds = "kept" if done.kept else f"{done.seconds:.0f} s"
        lines.append(f"{done.part.title} ({seconds})")
        width = max((len(name) for name, _ in done.section.headline), default=0)
        lines += [f"  {name:{width}}  {value}" for name, value in done.section.headline]
        if "left_out" in done.section.numbers:
            lines.append(f"  left out: {done.section.numbers['left_out']}")
    return lines


def _results(done: Finished) -> dict[str, Any]:
    tables = [
        {"title": table.title, "columns": table.columns, "rows": table.rows, "caption": table.caption}
        for table in done.section.tables
    ]
    return {
        "title": done.part.title,
        "seconds": done.seconds,
        "settings": dict(done.part.settings),
        "numbers": dict(done.section.numbers),
        "tables": tables,
    }


def table_csv(table: Table) -> str:
    """A table at full precision."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(table.rows)
    return file.getvalue()


def _section(done: Finished) -> str:
    blocks = "".join(draw_block(block) for block in done.section.blocks)
    return (
        f'<section id="{done.part.name}"><h2>{escape(done.part.title)}</h2>'
        f"<p class=asked>{escape(done.part.summary)}</p>{blocks}"
        f"<p class=ran><code>--parts {done.part.name}</code> ran {done.seconds:.0f} s</p></section>"
    )


def draw_block(block: Block) -> str:
    """Words, table or figure as HTML."""
    if isinstance(block, Words):
        return f"<p>{escape(block.text)}</p>"
    caption = f"<figcaption>{escape(block.caption)}</figcaption>" if block.caption else ""
    if isinstance(block, Figure):
        picture = f'<img alt="{escape(block.title)}" src="{png_address(block.png)}">'
        return f"<figure><h3>{escape(block.title)}</h3>{picture}{caption}</figure>"
    return f"<figure><h3>{escape(block.title)}</h3><div class=wide>{_table(block)}</div>{caption}</figure>"


def _table(table: Table) -> str:
    classes = [" class=paper" if column in table.paper else "" for column in table.columns]
    head = "".join(f"<th{mark}>{escape(column)}</th>" for column, mark in zip(table.columns, classes, strict=True))
    forms = [table.formats.get(column, ".3f") for column in table.columns]
    body = ""
    for row in table.rows:
        cells = zip(row, forms, classes, strict=True)
        body += (
            "<tr>" + "".join(f"<td{mark}>{escape(show_cell(cell, form))}</td>" for cell, form, mark in cells) + "</tr>"
        )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _foot(manifest: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in manifest["versions"].items())
    return f"<p>{escape(versions)}. All that the figures follow from is in manifest.json beside this page.</p>"


def draw_markdown(finished: Sequence[Finished], manifest: dict[str, Any]) -> str:
    """The whole report; headings begin at the second level, so that it fits into a larger page."""
    lines = [about(manifest), ""]
    for done in finished:
        lines += [f"## {done.part.title}", "", f"*{done.part.summary}*", ""]
        for block in done.section.blocks:
            if isinstance(block, Words):
                lines += [block.text, ""]
            elif isinstance(block, Table):
                lines += [f"### {block.title}", "", *markdown_table(block), ""]
                lines += [block.caption, ""] if block.caption else []
    return "\n".join(lines)


def markdown_table(table: Table) -> list[str]:
    """Head and rows, one line each."""
    forms = [table.formats.get(column, ".3f") for column in table.columns]
    rows = [[show_cell(cell, form) for cell, form in zip(row, forms, strict=True)] for row in table.rows]
    marks = ["---", *["---:"] * (len(table.columns) - 1)]
    return [_line(table.columns), _line(marks), *map(_line, rows)]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def show_cell(cell: Cell, form: str = ".3f") -> str:
    """A cell as it stands on the page: whole numbers and text as they are, other numbers in the column's format."""
    if cell is None or (isinstance(cell, float) and cell != cell):
        return "–"
    if isinstance(cell, str):
        return cell
    if isinstance(cell, int):
        return format(cell, form if form.endswith("d") else "d")
    text = format(cell, ".3f" if form.endswith("d") else form)
    return text if any(digit in text for digit in "123456789") else text.removeprefix("-")


def about(manifest: dict[str, Any]) -> str:
    """Model, patients and seed in a sentence."""
    queries, references = manifest["queries"], manifest["references"]
    among = "one another" if set(queries) == set(references) else f"{len(references)} reference patients"
    fingerprint = manifest["model"]["fingerprint"][:12]
    return f"Model {fingerprint}, {len(queries)} query patients among {among}, seed {manifest['seed']}."
