"""Held-out Dice by fold as a Markdown table, with the paper's figures beside ours. Knows plain values only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from diptych.annotation.lesions.presets import PAPER_DICE

__all__ = ["fold_table"]

SHOWN = ("ET", "ED", "TC", "NET", "WT")


def fold_table(results: Sequence[dict[str, Any]], held_out: dict[str, dict[str, float]]) -> str:
    """A row per fold, one for all patients, one for the paper."""
    rows = [
        ["held out", "patients", *SHOWN],
        ["---"] * (2 + len(SHOWN)),
        *(_row(f"fold {result['fold']}", len(result["patients"]), result["held_out"]) for result in results),
        _row("all folds", sum(len(result["patients"]) for result in results), held_out),
        ["paper, 1 mm", "355", *(f"{PAPER_DICE[name]:.2f}" if name in PAPER_DICE else "–" for name in SHOWN)],
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _row(name: str, patients: int, figures: dict[str, dict[str, float]]) -> list[str]:
    cells = [f"{figures[region]['dice']:.3f}" if region in figures else "–" for region in SHOWN]
    return [name, str(patients), *cells]
