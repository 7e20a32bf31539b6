"""Habits that a test can hold: public names, forbidden calls, nothing private committed, small quick commands."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import diptych
from tests.conftest import ROOT

SOURCES = sorted((ROOT / "src").rglob("*.py"))
FORBIDDEN = re.compile(r"allow_pickle=True|yaml\.load\(|shell=True|extractall\(|torch\.load\(|\bimport pickle\b")


def tracked_files() -> list[str]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    return listing.stdout.split("\n")


def test_public_names_exist() -> None:
    assert [name for name in diptych.__all__ if not hasattr(diptych, name)] == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_no_unsafe_calls(path: Path) -> None:
    assert FORBIDDEN.findall(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", [p for p in SOURCES if p.stat().st_size], ids=lambda path: path.stem)
def test_every_module_says_what_it_is(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith('"""')


def test_no_image_data_is_tracked() -> None:
    data = re.compile(r"\.(nii|nii\.gz|dcm|npy|npz|mha|nrrd|pt|pth|pkl)$")
    assert [path for path in tracked_files() if data.search(path)] == []
