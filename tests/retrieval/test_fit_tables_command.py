"""`diptych fit tables`: a store and a model in, the metric `learned` out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from diptych.cli.app import app
from diptych.model import load_model, save_model
from diptych.retrieval import Archive
from diptych.slices import SliceGeometry
from tests.retrieval.making import CONFIG, make_record, tiny_network, write_archive
from tests.slices.making import make_store, make_volume


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model, and a store of seven patients beside it, six of them on two lists."""
    save_model(tiny_network(), tmp_path / "model")
    volumes = [make_volume(f"P{number}", seed=number, lesion_at=(4, 5, 4 + number)) for number in range(7)]
    make_store(tmp_path / "store", volumes, SliceGeometry(size=CONFIG.image_size, field=CONFIG.field_mm))
    (tmp_path / "train.txt").write_text("P0\nP1\nP2\nP3\n")
    (tmp_path / "val.txt").write_text("P4\nP5\n")
    return tmp_path / "model"


def fit(model: Path, *options: str, exit_code: int) -> Result:
    store, train_list, val_list = (model.with_name(name) for name in ("store", "train.txt", "val.txt"))
    lists = ["--train-list", str(train_list), "--val-list", str(val_list)]
    done = CliRunner().invoke(app, ["fit", "tables", str(store), "--model", str(model), *lists, *options])
    assert done.exit_code == exit_code, done.output
    return done


def test_an_archive_can_be_searched_by_learned_tables_afterwards(model: Path, tmp_path: Path) -> None:
    before = load_model(model).fingerprint
    report = json.loads(fit(model, "--steps", "3", "--json", exit_code=0).stdout)
    assert (report["patients"], report["judged_patients"]) == (4, 2)
    assert report["share_of_oracle"]["both"]["learned"]["1"] <= 1
    network = load_model(model)
    assert network.fingerprint == before
    path = write_archive(tmp_path / "A", network, [make_record(number) for number in range(3)])
    assert "learned" in Archive.open(path, model=model).tables.normal


def test_a_list_with_unknown_patients_is_refused_in_one_line(model: Path, tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("nobody\n")
    line = fit(model, exit_code=3).stderr
    assert line.count("\n") == 1
    assert "nobody" in line


@pytest.mark.parametrize("given", ["--train-list", "--val-list"])
def test_one_list_alone_is_refused_in_one_line(model: Path, given: str) -> None:
    command = [
        "fit",
        "tables",
        str(model.with_name("store")),
        "--model",
        str(model),
        given,
        str(model.parent / "val.txt"),
    ]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert "learnt from and those who judge" in done.stderr
