"""What an evaluation is made of: a `Part` answers one question with a `Section` of words, tables and figures.

    def run(context: Context, progress: Progress) -> Section: ...
    PART = Part("cross_talk", "Cross-talk", "Whether a search by one panel ignores the other.", run)

Each part lives in `parts/NAME.py` as `PART` and may be run alone. Knows what a section holds and how it survives JSON;
nothing about pages, patients or models.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from diptych.progress import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Plot
    from PIL.Image import Image

    from diptych.evaluation.context import Context


Cell = str | float | int | None


@dataclass(frozen=True)
class Words:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Table:
    """Rows of cells; numbers keep their full precision in JSON and CSV."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    """What the figures are: the measure, its convention, its intervals."""
    formats: Mapping[str, str] = field(default_factory=dict)
    """How numbers of a column are shown, such as `.1%`; three decimals unless told."""
    paper: tuple[str, ...] = ()
    """Columns with the paper's own figures, set apart on the page."""

    @classmethod
    def of(cls, title: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], **options: Any) -> Table:
        """The same from any sequences."""
        wrong = [row for row in rows if len(row) != len(columns)]
        assert not wrong, f"{title}: a row of {len(wrong[0])} cells in a table of {len(columns)} columns"
        return cls(title, tuple(columns), tuple(tuple(row) for row in rows), **options)


@dataclass(frozen=True)
class Figure:
    """A picture, as a PNG file's bytes."""

    title: str
    png: bytes
    caption: str = ""

    @classmethod
    def of_plot(cls, title: str, plot: Plot, *, caption: str = "", dots_per_inch: int = 110) -> Figure:
        """Draw a matplotlib figure (make it with `matplotlib.figure.Figure`, which needs no closing)."""
        file = io.BytesIO()
        plot.savefig(file, format="png", dpi=dots_per_inch, bbox_inches="tight", metadata={"Software": None})
        return cls(title, file.getvalue(), caption)

    @classmethod
    def of_image(cls, title: str, image: Image, *, caption: str = "") -> Figure:
        """Take a Pillow image as it is."""
        file = io.BytesIO()
        image.save(file, format="PNG", optimize=True)
        return cls(title, file.getvalue(), caption)


Block = Words | Table | Figure


@dataclass(frozen=True)
class Section:
    """What a part found."""

    blocks: tuple[Block, ...]
    numbers: Mapping[str, Any] = field(default_factory=dict)
    """The figures as plain JSON values, for programs."""
    headline: tuple[tuple[str, str], ...] = ()
    """A few lines for the terminal: what was measured, and its value as text."""

    @property
    def tables(self) -> list[Table]:
        return [block for block in self.blocks if isinstance(block, Table)]

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` reads them back."""
        return {
            "blocks": [_block_to_json(block) for block in self.blocks],
            "numbers": _plain(self.numbers),
            "headline": [list(line) for line in self.headline],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Section:
        """Read what `to_json` wrote; anything else is a `KeyError`, `TypeError` or `ValueError`."""
        headline = tuple((str(name), str(value)) for name, value in data["headline"])
        return cls(tuple(_block_from_json(block) for block in data["blocks"]), dict(data["numbers"]), headline)


@dataclass(frozen=True)
class Part:
    """One question of an evaluation, which can be answered alone."""

    name: str
    """As on the command line, with underscores."""
    title: str
    summary: str
    """One sentence: what is asked."""
    run: Callable[[Context, Progress], Section]
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What else determines the figures; a part runs again when they change. Raise a `version` here with the code."""
    needs_lesions: bool = True
    """Whether it has nothing to say about patients without any lesion."""
    by_default: bool = True
    """Whether it runs when no parts are named; parts that take many minutes do not."""


def left_out(reason: str) -> Section:
    """The section of a part that cannot be run here: says why, in words."""
    return Section((Words(f"Left out: {reason}"),), {"left_out": reason})


def _block_to_json(block: Block) -> dict[str, Any]:
    if isinstance(block, Words):
        return {"kind": "words", "text": block.text}
    if isinstance(block, Figure):
        png = base64.b64encode(block.png).decode()
        return {"kind": "figure", "title": block.title, "png": png, "caption": block.caption}
    return {"kind": "table", **vars(block), "formats": dict(block.formats), "rows": _plain(block.rows)}


def _plain(value: Any) -> Any:
    """The same with nothing for numbers that are none: JSON has no word for them."""
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _block_from_json(data: Mapping[str, Any]) -> Block:
    kind = data["kind"]
    if kind == "words":
        return Words(data["text"])
    if kind == "figure":
        return Figure(data["title"], base64.b64decode(data["png"]), data["caption"])
    options = {name: data[name] for name in ("caption", "formats")}
    return Table.of(data["title"], data["columns"], data["rows"], **options, paper=tuple(data["paper"]))
