"""`diptych search` as a user runs it: what it prints, how it exits, one line for everything that is wrong."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from diptych.cli.app import app
from diptych.model import FeatureDecomposingNetwork, save_model
from tests.archive.patients import write_patient
from tests.retrieval.making import make_record, write_archive

pytestmark = pytest.mark.e2e


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


Ask = Callable[..., Done]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, network: FeatureDecomposingNetwork) -> Path:
    """An archive, its model, a patient that is not in it, and masks."""
    folder = tmp_path_factory.mktemp("search")
    save_model(network, folder / "model")
    write_archive(folder / "A", network, [make_record(number) for number in range(8)])
    write_patient(folder / "patients", "New-1", seed=1)
    mask = np.zeros((32, 64), dtype=np.uint8)
    mask[3, 50] = 255
    Image.fromarray(mask).save(folder / "mask.png")
    Image.fromarray(mask.T.copy()).save(folder / "turned.png")
    return folder


@pytest.fixture
def ask(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    monkeypatch.chdir(folder)

    def invoke(query: str, *options: object, archive: str = "A", model: str = "model") -> Done:
        arguments = ["search", archive, query, "--model", model, *map(str, options)]
        result = CliRunner().invoke(app, arguments)
        return Done(result.exit_code, result.stdout, result.stderr)

    return invoke


def keys(done: Done) -> list[str]:
    return [match["volume_key"] for match in json.loads(done.out)["matches"]]


def test_an_archived_slice_finds_one_slice_of_each_other_patient(ask: Ask) -> None:
    done = ask("V02", "--slice", 5, "--by", "normal")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[0] == "V02 slice 5, by anatomy (euclidean)"
    assert len(done.out.splitlines()) == 5


def test_a_patient_from_files_is_answered_with_its_trust(ask: Ask) -> None:
    done = ask("patients/New-1", "--slice", 4, "--json")
    report = json.loads(done.out)
    assert len(report["matches"]) == 4
    assert report["trust"]["quantisation_error"] > 0
    assert report["notice"].startswith("Research use only")
    contributions = np.array(report["matches"][0]["contributions"])
    assert contributions.sum() == pytest.approx(report["matches"][0]["distance"])


def test_hamming_is_kept_for_the_next_time(ask: Ask, folder: Path) -> None:
    first = ask("V02", "--slice", 5, "--metric", "hamming", "--json")
    assert (folder / "A" / "cache" / "hamming-normal.arrays").is_file()
    assert keys(first) == keys(ask("V02", "--slice", 5, "--metric", "hamming", "--json"))


@pytest.mark.parametrize(
    "options",
    [
        ("--find", "comparators"),
        ("--find", "volumes"),
        ("--by", "abnormal", "--anywhere", "histogram"),
        ("--by", "abnormal", "--anywhere", "shifted", "--cells", "0,0 0,1"),
        ("--preset", "paper", "--weight", 0.9),
        ("--box", "0,0,9,9"),
        ("--mask", "mask.png"),
        ("--lesion-of", "V05:4"),
        ("--where", "sex = 'F'", "--include-own", "--per-volume"),
        ("--metric", "overlap", "--by", "abnormal"),
        ("--rerank", 5, "--top", 2),
        ("--level", 40),
    ],
    ids=lambda options: " ".join(map(str, options)),
)
def test_every_way_of_asking_answers(ask: Ask, options: tuple[object, ...]) -> None:
    done = ask("V02", *(() if "volumes" in options else ("--slice", 5)), *options, "--json")
    assert (done.code, done.err) == (0, "")
    assert keys(done)


def test_a_figure_is_drawn(ask: Ask, folder: Path) -> None:
    assert ask("V02", "--slice", 5, "--figure", "out.png").out.endswith("drawn to out.png\n")
    with Image.open(folder / "out.png") as drawn:
        assert drawn.width > 300


@pytest.mark.parametrize(
    ("query", "options", "code", "says"),
    [
        ("V99", (), 6, "holds no volume 'V99'"),
        ("V02", ("--slice", 99), 2, "slice 99"),
        ("V02", ("--slice", 5, "--top", 0), 2, "top 0"),
        ("V02", ("--slice", 5, "--weight", -0.1), 2, "weight -0.1"),
        ("V02", ("--slice", 5, "--metric", "cosine"), 2, "metric cosine"),
        ("V02", ("--slice", 5, "--where", "age >"), 2, "expected a value"),
        ("V02", ("--slice", 5, "--cells", "9,9"), 2, "cell 9,9"),
        ("V02", ("--slice", 5, "--cells", ""), 2, "empty region"),
        ("V02", ("--slice", 5, "--cells", "a,b"), 2, "--cells a,b"),
        ("V02", ("--slice", 5, "--box", "9,9,9,9"), 2, "rectangle 9,9,9,9"),
        ("V02", ("--slice", 5, "--box", "1,2"), 2, "--box 1,2"),
        ("V02", ("--slice", 5, "--mask", "turned.png"), 2, "mask of shape (64, 32)"),
        ("V02", ("--slice", 5, "--mask", "model/config.json"), 3, "cannot be read as a PNG"),
        ("V02", ("--slice", 5, "--mask", "mask.png", "--box", "0,0,9,9"), 2, "give one of them"),
        ("V02", ("--slice", 5, "--anywhere", "shifted"), 2, "search by lesion"),
        ("V02", ("--slice", 5, "--figure", "out.jpg"), 2, "ends in .png"),
        ("V02", ("--slice", 5, "--figure", "nowhere/out.png"), 3, "cannot be written"),
        ("patients/New-1/nothing", (), 3, "patients/New-1/nothing: no such folder"),
        ("Nobody", (), 6, "holds no volume"),
        ("V02", ("--slice", 5, "--find", "volumes"), 2, "--slice 5: whole volumes"),
        ("V02", ("--slice", 5, "--level", -3), 2, "level_mm is -3.0: give millimetres above zero"),
        ("V02", ("--level", 20, "--find", "patients"), 2, "--level 20: limits slices"),
    ],
)
def test_bad_input_gets_one_line(ask: Ask, query: str, options: tuple[object, ...], code: int, says: str) -> None:
    done = ask(query, *options)
    assert done.code == code
    assert says in done.err
    assert done.err.startswith("diptych: ")
    assert done.err.count("\n") == 1


def test_a_missing_channel_is_named(ask: Ask, folder: Path) -> None:
    short = write_patient(folder / "short", "Short-1")
    (short / "Short-1-t1c.nii.gz").unlink()
    done = ask("short/Short-1")
    assert (done.code, done.err.count("but not t1gd")) == (3, 1)


def test_without_a_model_only_shipped_ones_serve(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    result = CliRunner().invoke(app, ["search", "A", "V02", "--slice", "5"])
    assert (result.exit_code, result.stderr.count("does not come with Diptych")) == (2, 1)


def test_damage_is_told_after_the_answer(ask: Ask, folder: Path, network: FeatureDecomposingNetwork) -> None:
    path = write_archive(folder / "damaged", network, [make_record(number) for number in range(8)])
    with closing(sqlite3.connect(path / "archive.sqlite")) as database, database:
        database.execute("UPDATE volumes SET age = age + 1 WHERE volume_key = 'V07'")
    done = ask("V02", "--slice", 5, archive="damaged")
    assert done.code == 6
    assert "V07" in done.err
    assert "distance" in done.out
