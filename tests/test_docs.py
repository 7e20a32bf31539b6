"""The pages are true: their code runs, their links lead somewhere, the reference is the one generated now."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.markdown import run_page

PAGES = sorted((ROOT / "docs").rglob("*.md"))
RUNNABLE = [
    pytest.param(page, id=name, marks=pytest.mark.xdist_group(name))
    for page in PAGES
    if page.parent.name in ("tutorial", "how-to", "explanation")
    for name in [f"{page.parent.name}/{page.stem}"]
]


@pytest.mark.e2e
@pytest.mark.parametrize("page", RUNNABLE)
def test_code_blocks_run(page: Path, tmp_path: Path, commands: Path) -> None:
    assert run_page(page, tmp_path, commands) == []


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_troubles_are_told_in_the_words_of_the_program() -> None:
    page = (ROOT / "docs" / "how-to" / "questions.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    assert len(told) >= 8
    assert [words for words in told if words not in source] == []


def test_reference_is_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "docs" / "reference" / "generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
