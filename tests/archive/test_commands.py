"""`diptych index` and `diptych archive` as a user runs them: what they print and how they exit."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from diptych.archive import ArchiveWriter
from diptych.cli.app import app
from diptych.config import ModelConfig
from diptych.model import FeatureDecomposingNetwork, save_model
from tests.archive.patients import write_patient
from tests.archive.samples import make_archive
from tests.conftest import Run

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    config = ModelConfig(image_size=(32, 64), latent_size=(4, 8), widths=(8, 8, 16, 16), codebook_size=32, code_width=8)
    folder = tmp_path_factory.mktemp("model")
    save_model(FeatureDecomposingNetwork(config), folder)
    return folder


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """Run a command in this process, which has torch loaded already."""
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: object) -> Done:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        return Done(result.exit_code, result.stdout, result.stderr)

    return invoke


def test_index_to_import_in_one_story(run: Callable[..., Done], tmp_path: Path, model: Path) -> None:
    for number in range(3):
        write_patient(tmp_path / "source", f"P{number}", seed=number)
    (tmp_path / "source" / "P1" / "P1-t1n.nii.gz").write_bytes(b"no image")

    indexed = run("index", "source", "--archive", "A", "--model", model, "--tag", "x", "--json")
    assert (indexed.returncode, list(json.loads(indexed.stdout)["failed"])) == (4, ["P1"])

    verified = run("archive", "verify", "A", "--model", model)
    assert (verified.returncode, verified.stdout.count("2 volumes encoded again; 0 problems")) == (0, 1)

    listed = run("archive", "list", "A", "--where", "tag = 'x' and volume_key != 'P0'", "--json")
    assert [row["volume_key"] for row in json.loads(listed.stdout)] == ["P2"]

    run("archive", "export", "A", "codes.parquet")
    assert run("archive", "import", "B", "codes.parquet").stdout.startswith("B: 2 added")

    assert run("archive", "remove", "A", "P0").returncode == 0
    assert run("archive", "compact", "A").returncode == 0
    assert json.loads(run("archive", "stat", "A", "--json").stdout)["volumes"] == 1


def test_a_damaged_volume_is_named_and_the_exit_code_says_so(diptych: Run, damaged: Path) -> None:
    done = diptych("archive", "stat", damaged)
    assert done.returncode == 6
    assert "warning: row" in done.stderr
    assert "'P-001'" in done.stderr


def test_repair_drops_it_and_all_is_well(run: Callable[..., Done], damaged: Path) -> None:
    assert "dropped row" in run("archive", "repair", damaged).stdout
    assert run("archive", "verify", damaged).returncode == 0


def test_a_filter_naming_no_column_is_wrong_usage(run: Callable[..., Done], damaged: Path) -> None:
    done = run("archive", "list", damaged, "--where", "weight > 3")
    assert (done.returncode, done.stderr.count("no column 'weight'")) == (2, 1)


def test_a_second_writer_exits_with_the_holders_pid(diptych: Run, damaged: Path) -> None:
    with ArchiveWriter.open(damaged):
        done = diptych("archive", "compact", damaged)
    assert (done.returncode, done.stderr.count(f"process {os.getpid()} is writing")) == (6, 1)


def test_removing_nothing_is_wrong_usage(run: Callable[..., Done], damaged: Path) -> None:
    assert run("archive", "remove", damaged).returncode == 2


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    path = make_archive(tmp_path / "damaged", volumes=3)
    with closing(sqlite3.connect(path / "archive.sqlite")) as database, database:
        database.execute("UPDATE volumes SET age = age + 1 WHERE volume_key = 'P-001'")
    return path
