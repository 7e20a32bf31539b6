"""Parts run alone, are kept, and become one page, JSON and CSV."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copytree

import pytest
from PIL import Image

from diptych.errors import UsageError
from diptych.evaluation.context import Context
from diptych.evaluation.part import Figure, Part, Section, Table, Words, left_out
from diptych.evaluation.parts import NAMES, find_parts
from diptych.evaluation.report import show_cell, terminal_lines, write_report
from diptych.evaluation.runner import run_parts
from diptych.metrics.binary_codes import BINARY_CODES
from diptych.progress import Progress
from diptych.retrieval.match_worth import FILE as WORTH
from diptych.retrieval.refined_twin import REFINER
from tests.evaluation.conftest import Scene


def section() -> Section:
    table = Table.of(
        "Figures", ("name", "share"), [("<a>", 0.12345), ("b", None)], formats={"share": ".1%"}, paper=("share",)
    )
    picture = Figure.of_image("Picture", Image.new("RGB", (4, 3), (200, 0, 0)), caption="red & small")
    return Section((Words("In words."), table, picture), {"share": 0.12345}, (("share", "12 %"),))


class Counting:
    """A part that knows how often it was run."""

    def __init__(self, **settings: object) -> None:
        self.runs = 0
        self.part = Part("summary", "Counting", "How often?", self.run, settings=settings)

    def run(self, context: Context, progress: Progress) -> Section:
        self.runs += 1
        progress(1, 1)
        return section()


def test_sections_survive_json() -> None:
    assert Section.from_json(json.loads(json.dumps(section().to_json()))) == section()


def test_a_finished_part_is_not_run_again(context: Context, tmp_path: Path) -> None:
    counting = Counting()
    first, second = (run_parts(context, [counting.part], tmp_path)[0] for _ in range(2))
    assert (counting.runs, first.kept, second.kept) == (1, False, True)
    assert second.section == first.section


@pytest.mark.parametrize("damage", ["", "{", '{"key": 1}', "[]"])
def test_a_damaged_result_is_worked_out_anew(context: Context, tmp_path: Path, damage: str) -> None:
    counting = Counting()
    run_parts(context, [counting.part], tmp_path)
    (tmp_path / "parts" / "summary.json").write_text(damage)
    run_parts(context, [counting.part], tmp_path)
    assert counting.runs == 2


def test_other_settings_run_again(context: Context, tmp_path: Path) -> None:
    changed = Counting(version=2)
    run_parts(context, [Counting(version=1).part], tmp_path)
    run_parts(context, [changed.part], tmp_path)
    assert changed.runs == 1


def test_another_seed_runs_again(scene: Scene, context: Context, tmp_path: Path) -> None:
    counting = Counting()
    for seed in (0, 1):
        run_parts(scene.context(context.cache, seed=seed), [counting.part], tmp_path)
    assert counting.runs == 2


@pytest.mark.parametrize("companion", [BINARY_CODES.file, REFINER.file, WORTH.file])
def test_what_is_fitted_to_the_model_later_runs_again(scene: Scene, tmp_path: Path, companion: str) -> None:
    own, counting = Scene(scene.store, tmp_path / "model"), Counting()
    copytree(scene.model, own.model)
    for content in (None, b"one", b"another"):
        if content:
            (own.model / companion).write_bytes(content)
        run_parts(own.context(tmp_path / "cache"), [counting.part], tmp_path / "report")
    assert counting.runs == 3


def test_a_report_is_one_page_with_the_same_numbers_beside_it(context: Context, tmp_path: Path) -> None:
    finished = run_parts(context, [Counting().part], tmp_path)
    page = write_report(finished, context, tmp_path).read_text()
    assert "&lt;a&gt;" in page
    assert "12.3%" in page
    assert "data:image/png;base64," in page
    assert "http" not in page.replace("http-equiv", "")  # nothing from elsewhere, which the page itself forbids
    assert "default-src 'none'" in page
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["parts"]["summary"]["numbers"] == {"share": 0.12345}
    assert results["manifest"]["model"]["fingerprint"] == context.fingerprint
    assert "| <a> | 12.3% |" in (tmp_path / "report.md").read_text()
    assert (tmp_path / "tables" / "summary-1.csv").read_text() == "name,share\n<a>,0.12345\nb,\n"


def test_headlines_go_to_the_terminal(context: Context, tmp_path: Path) -> None:
    lines = terminal_lines(run_parts(context, [Counting().part], tmp_path))
    assert lines[1] == "  share  12 %"


def test_what_was_left_out_is_said(context: Context, tmp_path: Path) -> None:
    part = Part("summary", "Nothing", "Why not?", lambda context, progress: left_out("no reason"))
    assert terminal_lines(run_parts(context, [part], tmp_path))[-1] == "  left out: no reason"


def test_a_folder_of_something_else_is_not_written_into(context: Context, tmp_path: Path) -> None:
    (tmp_path / "thesis.docx").touch()
    with pytest.raises(UsageError, match="neither empty nor a report"):
        run_parts(context, [Counting().part], tmp_path)


def test_an_unknown_part_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"'nothing': there are summary, "):
        find_parts(["nothing"])


@pytest.mark.parametrize("name", NAMES)
def test_every_part_introduces_itself(name: str) -> None:
    (part,) = find_parts([name])
    assert part.title
    assert part.summary.endswith((".", "?"))


@pytest.mark.parametrize(
    ("cell", "form", "shown"),
    [(None, ".3f", "–"), (float("nan"), ".3f", "–"), (3, ".1%", "3"), (0.5, ".0%", "50%"), (-1e-9, ".0%", "0%")],
)
def test_cells_are_shown_in_their_columns_format(cell: float | None, form: str, shown: str) -> None:
    assert show_cell(cell, form) == shown
