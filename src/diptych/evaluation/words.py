"""How a report says things, on any kind of page. Knows cells and manifests."""

from __future__ import annotations

from typing import Any

from diptych.evaluation.part import Cell

__all__ = ["about", "show_cell"]


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
